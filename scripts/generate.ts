// `sinkflex generate`: one answer, or a chat in the terminal, streamed as it is drawn.
import { randomInt } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { createInterface } from 'node:readline/promises';
import { Command, Option } from 'commander';
import { type TurnDelta, turnReader } from '../actors/index.ts';
import { type WeightDtype, weightDtypes } from '../kernels/index.ts';
import { CommandError } from './errors.ts';
import { openModel } from './model-folder.ts';
import { between, deviceOption, wholeNumber } from './option-values.ts';
import { stopSignal } from './stop-signal.ts';

interface GenerateOptions {
  system?: string;
  raw?: boolean;
  maxNewTokens: number;
  temperature?: string;
  topP?: string;
  topK?: number;
  minP?: number;
  repetitionPenalty?: number;
  presencePenalty?: number;
  frequencyPenalty?: number;
  stop: string[];
  ignoreEos: boolean;
  topLogprobs?: number;
  seed?: number;
  threads: number;
  device: string;
  dtype: WeightDtype;
  maxModelLen?: number;
  json?: boolean;
}

export function generateCommand(): Command {
  return new Command('generate')
    .summary('talk to a model in the terminal')
    .description('Answers one prompt, or without one chats: each line is a turn, an empty line ends it. Text appears as it is drawn.')
    .argument('<folder>', 'a Hugging Face folder, org/name of the hub, a run folder, or one of its checkpoints')
    .argument('[prompt]', 'what to answer; without it a chat begins')
    .option('--system <text>', 'system message')
    .option('--raw', 'go on from the prompt as it is, without the chat template')
    .option('-n, --max-new-tokens <n>', 'tokens of an answer', wholeNumber(1), 512)
    .option('-t, --temperature <number>', "0: greedy; default the model's own")
    .option('--top-p <number>', "default the model's own")
    .option('--top-k <n>', "0: all; default the model's own", wholeNumber(0))
    .option('--min-p <number>', "least part of the largest probability; default the model's own", between(0, 1))
    .option('--repetition-penalty <number>', "default the model's own", between(0.01, 100))
    .option('--presence-penalty <number>', 'from -2 to 2', between(-2, 2))
    .option('--frequency-penalty <number>', 'from -2 to 2', between(-2, 2))
    .option('--stop <text>', 'ends the answer and is not part of it; may be repeated', (text: string, all: string[]) => [...all, text], [])
    .option('--ignore-eos', "draw on after the model's own end of turn", false)
    .option('--top-logprobs <n>', 'with --json: the most likely tokens beside each one drawn', wholeNumber(0))
    .option('--seed <n>', 'the same seed gives the same answer; default a random one', wholeNumber(0))
    .option('--threads <n>', 'default all processors', wholeNumber(1), availableParallelism())
    .addOption(deviceOption())
    .addOption(
      new Option('--dtype <dtype>', 'what the weights are held in; bfloat16 halves their memory, mxfp4 keeps experts that are stored so')
        .choices(weightDtypes)
        .default('float32'),
    )
    .option('--max-model-len <tokens>', 'tokens of the whole conversation', wholeNumber(2))
    .option('--json', 'one JSON line for the answer: text, token ids, log-probabilities, finish reason')
    .addHelpText(
      'after',
      '\nExamples\n  sinkflex generate runs/20260131T090503Z-desk\n  sinkflex generate ./Qwen2.5-0.5B-Instruct "Say hello" -t 0\n',
    )
    .action(generate);
}

async function generate(target: string, prompt: string | undefined, o: GenerateOptions): Promise<void> {
  const number = (option: string, text: string | undefined, low: number, high: number): number | undefined => {
    if (text === undefined) return undefined;
    const value = Number(text);
    if (!(value >= low && value <= high)) throw new CommandError('SINKFLEX_USAGE', `${option} must be a number from ${low} to ${high}`);
    return value;
  };
  const temperature = number('--temperature', o.temperature, 0, 100);
  const topP = number('--top-p', o.topP, 1e-6, 1);
  if (o.json && prompt === undefined) throw new CommandError('SINKFLEX_USAGE', '--json needs a prompt');
  const stop = stopSignal();
  const model = await openModel(target, stop.signal, {
    dtype: o.dtype,
    maxSequences: 1,
    threads: o.threads,
    device: o.device,
    ...(o.maxModelLen === undefined ? {} : { maxModelLength: o.maxModelLen }),
  });
  const seed = o.seed ?? randomInt(2 ** 32);
  let turn = 0;
  const answer = async (ids: Int32Array, specials = false): Promise<string> => {
    const sampling = {
      maxNewTokens: o.maxNewTokens,
      temperature: temperature ?? model.defaults.temperature,
      topP: topP ?? model.defaults.topP,
      topK: o.topK ?? model.defaults.topK,
      minP: o.minP ?? model.defaults.minP,
      repetitionPenalty: o.repetitionPenalty ?? model.defaults.repetitionPenalty,
      presencePenalty: o.presencePenalty ?? 0,
      frequencyPenalty: o.frequencyPenalty ?? 0,
      topLogprobs: o.topLogprobs ?? 0,
      stop: o.stop,
      ignoreEos: o.ignoreEos,
      key: [seed, 0, 0, turn++] as const,
    };
    // What a model of channels thinks goes to stderr, what it says to stdout.
    const reader = specials ? turnReader(model.turnFormat, { tools: false }) : undefined;
    const show = ({ content, reasoning }: TurnDelta): void => {
      if (o.json) return;
      if (reasoning !== '') process.stderr.write(reasoning);
      process.stdout.write(content);
    };
    const result = await model.answer(ids, sampling, {
      signal: stop.signal,
      specials,
      onPiece: ({ text }) => show(reader?.push(text) ?? { content: text, reasoning: '' }),
    });
    const end = reader?.end();
    if (end !== undefined) show(end);
    if (o.json) {
      const { finish } = result;
      const text = end?.turn.text ?? result.text;
      const line = {
        text,
        finish_reason: finish,
        prompt_tokens: ids.length,
        token_ids: [...result.tokens],
        logprobs: [...result.logprobs],
        ...(result.topTokens === undefined ? {} : { top_token_ids: [...result.topTokens], top_logprobs: [...result.topLogprobs!] }),
        seed,
      };
      process.stdout.write(`${JSON.stringify(line)}\n`);
    } else process.stdout.write(result.finish === 'length' ? ' [cut]\n' : '\n');
    return end?.turn.text ?? result.text;
  };
  try {
    if (prompt !== undefined && (o.raw || model.template === undefined)) {
      await answer(model.tokenizer.encode(prompt));
      return;
    }
    if (model.template === undefined) throw new CommandError('SINKFLEX_USAGE', `${target} has no chat template: give a prompt`);
    const messages: { role: string; content: string }[] = o.system === undefined ? [] : [{ role: 'system', content: o.system }];
    const say = async (content: string): Promise<void> => {
      messages.push({ role: 'user', content });
      const text = await answer(
        model.tokenizer.encode(model.template!.renderRaw(messages, { generationPrompt: true })),
        model.chatSpecials,
      );
      messages.push({ role: 'assistant', content: text });
    };
    if (prompt !== undefined) await say(prompt);
    else await chat(say, stop.signal);
  } finally {
    await model.close();
    stop.dispose();
  }
}

async function chat(say: (text: string) => Promise<void>, signal: AbortSignal): Promise<void> {
  const lines = createInterface({ input: process.stdin, output: process.stdout, terminal: process.stdin.isTTY === true });
  signal.addEventListener('abort', () => lines.close(), { once: true });
  const prompt = process.stdin.isTTY ? '> ' : '';
  if (prompt !== '') process.stdout.write(prompt);
  try {
    for await (const line of lines) {
      if (line.trim() === '') return;
      await say(line);
      if (prompt !== '') process.stdout.write(prompt);
    }
  } finally {
    lines.close();
  }
}
