// Supervised fine-tuning: what of an example is learnt, files that cannot be used, learning, and going on bit for bit.
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { ChatTemplate, type FineTuneOptions, fineTune, readExamples, readMetrics, ServedModel, Tokenizer } from '../../actors/index.ts';
import { checkTrainingMemory } from '../../actors/supervised/memory.ts';
import { parseModelConfig, trainingMemory } from '../../kernels/index.ts';
import { main } from '../../scripts/main.ts';
import { writeByteModel } from '../serving/byte-model.ts';

const root = mkdtempSync(join(tmpdir(), 'supervised-'));
t.teardown(() => rmSync(root, { recursive: true }));
const model = join(root, 'byte-model');
mkdirSync(model);
writeByteModel(model);
const tokenizer = Tokenizer.load(model);
const end = tokenizer.id('<|im_end|>');
const reader = {
  tokenizer,
  template: ChatTemplate.of(tokenizer),
  stopIds: [tokenizer.id('<|endoftext|>'), end],
  maxLength: 200,
  truncation: 'error' as const,
};

let files = 0;
function fileOf(lines: readonly (object | string)[]): string {
  const path = join(root, `examples-${files++}.jsonl`);
  writeFileSync(path, lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n'));
  return path;
}
/** The text of what is learnt. */
const learnt = ({ ids, mask }: { ids: Int32Array; mask: Uint8Array }): string => tokenizer.decode([...ids].filter((_, i) => mask[i] === 1));

t.test('of a chat, what the assistant says is learnt, each turn with its end, and nothing else', (t) => {
  const messages = [
    { role: 'user', content: 'hi' },
    { role: 'assistant', content: 'hello' },
    { role: 'user', content: 'call it' },
    { role: 'assistant', content: '', tool_calls: [{ function: { name: 'f', arguments: '{"x": 7}' } }] },
    { role: 'tool', content: 'done' },
    { role: 'assistant', content: 'bye' },
    { role: 'user', content: 'never answered' },
  ];
  const [sequence] = readExamples(fileOf([{ messages }]), reader).sequences;
  t.equal(learnt(sequence!), 'hello<|im_end|><tool_call>f7</tool_call><|im_end|>bye<|im_end|>');
  const whole = reader.template.renderRaw(
    messages
      .slice(0, 6)
      .map((m) => ({ ...m, ...(m.tool_calls ? { tool_calls: [{ function: { name: 'f', arguments: { x: 7 } } }] } : {}) })),
    { generationPrompt: false },
  );
  t.equal(tokenizer.decode(sequence!.ids), whole, 'the ids are those of the whole chat');
  t.end();
});

t.test('prompts with completions, plain text, empty lines, and no newline at the end', (t) => {
  const { sequences } = readExamples(fileOf([{ prompt: 'ab', completion: 'cd' }, '', { text: 'xyz' }, '  ']), reader);
  t.same(sequences.map(learnt), ['cd<|im_end|>', 'yz<|im_end|>'], 'nothing predicts the first token');
  t.end();
});

t.test('longer examples are an error, cut, or left out, as asked', (t) => {
  const path = fileOf([{ text: 'short' }, { text: 'x'.repeat(300) }, { prompt: 'p'.repeat(300), completion: 'never seen' }]);
  t.throws(() => readExamples(path, reader), { code: 'SINKFLEX_EXAMPLE', message: /jsonl:2: it has 301 tokens, max_length is 200/ });
  const cut = readExamples(path, { ...reader, truncation: 'right' });
  t.match(cut, { truncated: 1, dropped: 1 }, 'an example whose answer is cut away teaches nothing');
  t.same(
    cut.sequences.map(({ ids }) => ids.length),
    [6, 200],
  );
  t.match(readExamples(path, { ...reader, truncation: 'drop' }), { truncated: 0, dropped: 2 });
  t.end();
});

t.test('what cannot be used is named by file and line', (t) => {
  const rewriting = new ChatTemplate('{% for m in messages %}{{ m.role }}{{ messages | length }}{{ m.content }}<|im_end|>{% endfor %}');
  for (const [line, message, over] of [
    ['{"text": ', /:2: no JSON/, {}],
    [{ content: 'x' }, /:2: a line has `messages`/, {}],
    [{ messages: [{ role: 'user', content: 'x' }] }, /:2: nothing in it is to be learnt/, {}],
    [{ messages: [{ role: 'user', content: [1] }] }, /:2: a line has/, {}],
    [
      {
        messages: [
          { role: 'user', content: 'a' },
          { role: 'assistant', content: 'b' },
        ],
      },
      /:2: the chat template rewrites earlier turns at message 1/,
      { template: rewriting },
    ],
    [{ messages: [{ role: 'assistant', content: 'b' }] }, /:2: it is a chat, and the model has no chat template/, { template: undefined }],
  ] as const)
    t.throws(() => readExamples(fileOf([{ text: 'fine' }, line]), { ...reader, ...over }), { code: 'SINKFLEX_EXAMPLE', message });
  t.throws(() => readExamples(fileOf([]), reader), { message: /holds no example/ });
  t.throws(() => readExamples(join(root, 'nowhere'), reader), { code: 'SINKFLEX_EXAMPLE' });
  t.end();
});

const pairs = ['red', 'blue', 'green', 'black'].map((colour, i) => ({
  messages: [
    { role: 'user', content: colour },
    { role: 'assistant', content: String(i) },
  ],
}));
const options = (output: string, over: Partial<FineTuneOptions> = {}): FineTuneOptions => ({
  model,
  train: fileOf(pairs),
  val: fileOf(pairs),
  output: join(root, output),
  resume: false,
  epochs: 30,
  batchSize: 3,
  lr: 1e-2,
  warmupRatio: 0.05,
  schedule: 'cosine',
  minLrRatio: 0.1,
  weightDecay: 0,
  betas: [0.9, 0.999],
  gradClip: 1,
  maxLength: 100,
  truncation: 'error',
  microBatchTokens: 64,
  saveSteps: 25,
  valSteps: 0,
  seed: 4,
  threads: 1,
  ...over,
});

t.test('a model learns its examples, and a run that was stopped goes on to the same bits', async (t) => {
  const whole = await fineTune(options('whole'));
  t.equal(whole.steps, 60);
  t.ok(whole.val!.after < 0.2 && whole.val!.before > 2, `val loss ${whole.val!.before} -> ${whole.val!.after}`);
  const served = new ServedModel(whole.model, { maxSequences: 1 });
  const sampling = { maxNewTokens: 4, temperature: 0, topK: 0, topP: 1, stop: [], ignoreEos: false, key: [0, 0, 0, 0] as const };
  for (const { messages } of pairs) {
    const prompt = served.tokenizer.encode(served.template!.renderRaw(messages.slice(0, 1), { generationPrompt: true }));
    t.equal((await served.answer(prompt, sampling)).text, messages[1]!.content);
  }
  await served.close();

  const stop = new AbortController();
  const stopped = fineTune(
    options('stopped', { signal: stop.signal, onProgress: (e) => e.kind === 'advance' && e.done === 40 && stop.abort() }),
  );
  await t.rejects(stopped, { name: 'AbortError' });
  await t.rejects(fineTune(options('stopped')), { code: 'SINKFLEX_OUTPUT_EXISTS', message: /with --resume$/ });
  await t.rejects(fineTune(options('stopped', { resume: true, epochs: 31 })), {
    code: 'SINKFLEX_CHECKPOINT_INVALID',
    message: /60 steps over 4 examples, this one has 62 over 4/,
  });
  await t.rejects(fineTune(options('never begun', { resume: true })), {
    code: 'SINKFLEX_CHECKPOINT_INVALID',
    message: /no folder .* to go on in/,
  });
  const early = new AbortController();
  const begun = options('early', {
    saveSteps: 0,
    epochs: 1,
    signal: early.signal,
    onProgress: (e) => e.kind === 'advance' && early.abort(),
  });
  await t.rejects(fineTune(begun), { name: 'AbortError' });
  await fineTune(options('early', { resume: true, epochs: 1 }));
  const steps = readMetrics(join(root, 'early', 'metrics.jsonl')).filter((r) => r['train/loss'] !== undefined);
  t.same(
    steps.map((r) => r['training/global_step']),
    [1, 2],
    'what had no checkpoint begins again, and its record too',
  );
  const resumed = await fineTune(options('stopped', { resume: true }));
  const weights = (folder: string): Buffer => readFileSync(join(folder, 'model.safetensors'));
  t.ok(weights(resumed.model).equals(weights(whole.model)), 'the same weights');
  const losses = (folder: string): unknown[] =>
    readMetrics(join(root, folder, 'metrics.jsonl')).map((r) => [r['training/global_step'], r['train/loss'], r['val/loss']]);
  t.same(losses('stopped'), losses('whole'), 'the same record');
  t.equal(resumed.tokens, whole.tokens);
  t.same(readdirSync(join(root, 'stopped', 'checkpoints')), ['step-0000000025', 'step-0000000050', 'step-0000000060']);
});

t.test('LoRA: the adapters learn, go on to the same bits, and come out as a PEFT folder and merged', async (t) => {
  const lora = { loraRank: 4, loraAlpha: 8, lr: 3e-2, gradientCheckpointing: true };
  const whole = await fineTune(options('lora', lora));
  t.ok(whole.val!.after < 0.8 * whole.val!.before, `val loss ${whole.val!.before} -> ${whole.val!.after}`);
  t.same(readdirSync(join(root, 'lora', 'adapter')), ['adapter_config.json', 'adapter_model.safetensors', 'config.json']);
  const checkpoint = join(root, 'lora', 'checkpoints', 'step-0000000025', 'model');
  t.ok(readdirSync(checkpoint).includes('adapter_model.safetensors'), 'a checkpoint is the adapters');
  const adapter = readFileSync(join(root, 'lora', 'adapter', 'adapter_model.safetensors'));
  for (const step of ['step-0000000060', 'step-0000000050']) rmSync(join(root, 'lora', 'checkpoints', step), { recursive: true });
  rmSync(join(root, 'lora', 'adapter'), { recursive: true });
  await fineTune(options('lora', { ...lora, resume: true }));
  t.ok(readFileSync(join(root, 'lora', 'adapter', 'adapter_model.safetensors')).equals(adapter), 'the same bits after going on');
});

t.test('the command: one line of JSON, and refusals', async (t) => {
  const output = join(root, 'by-command');
  const text = (calls: readonly { args: readonly unknown[] }[]): string => calls.map(({ args }) => String(args[0])).join('');
  const sinkflex = async (words: readonly string[]) => {
    const [out, errors] = [t.capture(process.stdout, 'write'), t.capture(process.stderr, 'write')];
    try {
      return { code: await main(words), out: text(out()), errors: text(errors()) };
    } finally {
      out.restore();
      errors.restore();
    }
  };
  const done = await sinkflex(['sft', fileOf(pairs), '-m', model, '-o', output, '--epochs', '1', '--json', '--threads', '1']);
  t.equal(done.code, 0, done.errors);
  t.match(JSON.parse(done.out), { steps: 1, examples: 4, model: join(output, 'model'), seed: 1 });
  for (const [words, message] of [
    [['sft', fileOf(['{'])], /--model/],
    [['sft', fileOf(['{']), '-m', model], /SINKFLEX_EXAMPLE.*:1: no JSON/],
    [['sft', fileOf(pairs), '-m', model, '--lr', 'fast'], /must be a number from 0 to 1/],
    [['sft', fileOf(pairs), '-m', model, '--schedule', 'step'], /constant, linear, cosine/],
    [['sft', fileOf(pairs), '-m', join(root, 'nowhere')], /is no model/],
  ] as const) {
    const { code, errors } = await sinkflex(words);
    t.equal(code, 2, words.slice(2).join(' '));
    t.match(errors, message);
  }
});

t.test('what cannot fit is refused with its numbers and the longest sequence that does', (t) => {
  const config = parseModelConfig({
    ...{ model_type: 'gpt_oss', architectures: ['GptOssForCausalLM'], vocab_size: 96, hidden_size: 32, intermediate_size: 32 },
    ...{ num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1, head_dim: 16, num_local_experts: 4, num_experts_per_tok: 2 },
    ...{ sliding_window: 16, layer_types: ['full_attention', 'sliding_attention'], rms_norm_eps: 1e-5, rope_theta: 10000, swiglu_limit: 7 },
    ...{ tie_word_embeddings: false, max_position_embeddings: 128, attention_bias: true, initializer_range: 0.02 },
  });
  const o = { longest: 2000, checkpointing: false, threads: 1 };
  const { total } = trainingMemory(config, { lengths: [o.longest] });
  t.doesNotThrow(() => checkTrainingMemory(config, o, total));
  const error = t.throws(() => checkTrainingMemory(config, o, total - 1), { code: 'SINKFLEX_MEMORY_SHORT' }) as unknown as Error & {
    details: { longestSequence: number };
  };
  t.match(error.message, /2000 tokens.*weights .* MiB, gradients .*activations .*lower --max-length.*--gradient-checkpointing/);
  t.ok(error.details.longestSequence < 2000 && error.details.longestSequence > 1000);
  t.throws(() => checkTrainingMemory(config, o, 1), { message: /no sequence fits/ });
  t.end();
});
