/**
 * Held-out tasks played by a model behind any OpenAI-compatible endpoint: the same tasks, environments and scores as a validation, with messages
 * and tool calls in place of token ids. What the endpoint fails at says nothing about the model: such episodes are left out and counted.
 */
import { askEndpoint, EndpointFailure, type EndpointMessage, type EndpointOptions, messageOf } from '../endpoint.ts';
import { type Action, EnvironmentHost, entry, type Message, type ToolSchema } from '../environment/index.ts';
import { ActorsError } from '../errors.ts';
import { parseToolCalls, readArguments } from '../language/index.ts';
import type { TrainingConfig } from './config.ts';
import { checkEnvironment } from './preflight.ts';
import { environmentOptions, environmentTimeoutMs } from './settings.ts';
import { type Interval, passRates, scoreInterval } from './statistics.ts';
import { openTaskSource } from './task-source.ts';
import { clipValidation } from './validation.ts';

export interface EndpointEvaluationOptions {
  endpoint: EndpointOptions;
  /** Name of the model there. */
  model: string;
  signal: AbortSignal;
  onProgress?: (done: number, of: number) => void;
}

export interface PlayedEpisode {
  task: number;
  sample: number;
  seed: number;
  /** NaN where the endpoint or the environment failed. */
  reward: number;
  rewardParts: Record<string, number>;
  /** `stop`, `turns`, or why there is no score. */
  ended: string;
  messages: Message[];
}

export interface EndpointEvaluation {
  tasks: number;
  n: number;
  temperature: number;
  score: Interval;
  passRates: ReturnType<typeof passRates>;
  /** Episodes that infrastructure lost, in none of the numbers. */
  failed: number;
  episodes: PlayedEpisode[];
}

/** `data.val_size` tasks, `val.n` samples each at `val.temperature`, `rollout.max_num_seqs` at once; turns as `rollout` and `env` bound them. */
export async function evaluateEndpoint(asked: TrainingConfig, o: EndpointEvaluationOptions): Promise<EndpointEvaluation> {
  await checkEnvironment({ ...asked, sft: { ...asked.sft, total_steps: 0 } });
  // Nothing is trained: files of training tasks are not read.
  const heldOut = { ...asked.data, train_files: null, sampler: { ...asked.data.sampler, class_name: 'uniform' as const } };
  const source = await openTaskSource({ ...asked, data: heldOut });
  const config = clipValidation(asked, source);
  const { n, temperature } = config.val;
  const tasks = config.data.val_size;
  const host = new EnvironmentHost({ environment: config.env.name, options: environmentOptions(config), reward: config.reward });
  const episodes: PlayedEpisode[] = [];
  let next = 0;
  let why: unknown;
  try {
    const worker = async (): Promise<void> => {
      for (let i = next++; i < tasks * n; i = next++) {
        o.signal.throwIfAborted();
        const [task, sample] = [Math.floor(i / n), i % n];
        const episode = await play(host, config, o, { task, sample, ...source.heldOut(task) });
        if (episode.failure !== undefined) why ??= episode.failure;
        episodes.push(episode.played);
        o.onProgress?.(episodes.length, tasks * n);
      }
    };
    await Promise.all(Array.from({ length: Math.min(config.rollout.max_num_seqs, tasks * n) }, worker));
  } finally {
    await host.stop();
  }
  episodes.sort((a, b) => a.task - b.task || a.sample - b.sample);
  const groups: number[][] = Array.from({ length: tasks }, () => []);
  for (const { task, reward } of episodes) if (Number.isFinite(reward)) groups[task]!.push(reward);
  const failed = episodes.filter(({ reward }) => !Number.isFinite(reward)).length;
  if (failed === episodes.length)
    throw new ActorsError('SINKFLEX_ENDPOINT_FAILED', `${o.endpoint.baseUrl}: none of ${failed} episodes came to an end: ${reason(why)}`, {
      cause: why,
    });
  return { tasks, n, temperature, score: scoreInterval(groups), passRates: n > 1 ? passRates(groups, n) : [], failed, episodes };
}

const reason = (error: unknown): string => (error instanceof Error ? error.message : String(error));

async function play(
  host: EnvironmentHost,
  config: TrainingConfig,
  o: EndpointEvaluationOptions,
  { options, ...id }: { task: number; sample: number; seed: number; options?: Record<string, unknown> },
): Promise<{ played: PlayedEpisode; failure?: unknown }> {
  const instance = `${id.task}/${id.sample}`;
  const messages: Message[] = [];
  const wire: Record<string, unknown>[] = [];
  const hear = (observed: readonly Message[], open: readonly string[]): void => {
    messages.push(...observed);
    wire.push(...answersOf(observed, open));
  };
  let reward = 0;
  try {
    const opening = await inTime(host.reset(instance, { seed: id.seed, ...(options ? { options } : {}) }), o.signal);
    hear(opening.observation, []);
    for (let turn = 0; ; turn++) {
      const { action, said, open } = await answer(config, o, wire, opening.tools, id, turn);
      wire.push(said);
      messages.push({ role: 'assistant', content: action.text, ...(action.toolCalls.length > 0 ? { toolCalls: action.toolCalls } : {}) });
      const step = await inTime(host.step(instance, action), o.signal);
      reward += step.reward;
      hear(step.observation, open);
      if (!step.terminated && !step.truncated && turn + 1 < config.env.max_turns) continue;
      const rewardParts = (step.info.rewardParts ?? {}) as Record<string, number>;
      return { played: { ...id, reward, rewardParts, ended: step.terminated ? 'stop' : 'turns', messages } };
    }
  } catch (failure) {
    if (o.signal.aborted) throw failure;
    const ended = failure instanceof EndpointFailure ? `endpoint: ${failure.message}` : reason(failure);
    return { played: { ...id, reward: Number.NaN, rewardParts: {}, ended, messages }, failure };
  } finally {
    await host.close(instance);
  }
}

/** Rejects when the environment takes too long, and at an abort: what it is at then is given up with its instance. */
async function inTime<T>(answer: T | Promise<T>, signal: AbortSignal): Promise<T> {
  const late = AbortSignal.any([signal, AbortSignal.timeout(environmentTimeoutMs)]);
  let give = (): void => {};
  const over = new Promise<never>((_, reject) => {
    give = () => reject(late.reason as Error);
    late.addEventListener('abort', give, { once: true });
  });
  try {
    return await Promise.race([answer, over]);
  } finally {
    late.removeEventListener('abort', give);
  }
}

/** One turn: what was said as an action, as a message of the conversation, and the calls that wait for an answer. */
async function answer(
  config: TrainingConfig,
  o: EndpointEvaluationOptions,
  messages: readonly Record<string, unknown>[],
  tools: readonly ToolSchema[] | undefined,
  id: { task: number; sample: number },
  turn: number,
): Promise<{ action: Action; said: Record<string, unknown>; open: string[] }> {
  const { rollout, val } = config;
  const body = {
    model: o.model,
    messages,
    ...(tools?.length ? { tools } : {}),
    temperature: val.temperature,
    ...(rollout.top_p < 1 ? { top_p: rollout.top_p } : {}),
    max_tokens: rollout.max_tokens_per_turn,
    // Each turn of each sample draws by itself; servers that know seeds repeat it.
    seed: (id.task * 1_000_003 + id.sample * 1009 + turn) % 2 ** 31,
  };
  const said = await askEndpoint(o.endpoint, body, messageOf, o.signal);
  const calls = (said.tool_calls ?? []).map((call, i) => ({ ...call, id: call.id ?? `call_${turn}_${i}` }));
  const words = entry(config.env.name).chat?.parse;
  return {
    action: actionOf({ ...said, tool_calls: calls }, words),
    said: {
      role: 'assistant',
      content: said.content ?? '',
      ...(calls.length > 0 ? { tool_calls: calls.map((call) => ({ ...call, type: 'function' })) } : {}),
    },
    open: calls.map((call) => call.id),
  };
}

function actionOf(said: EndpointMessage, words: ((text: string) => Action) | undefined): Action {
  const text = said.content ?? '';
  const structured = said.tool_calls ?? [];
  if (structured.length === 0) {
    // A server that leaves calls in the text.
    const read = parseToolCalls('hermes', text);
    if (read.toolCalls.length === 0 && read.malformed === undefined && words !== undefined) return words(text);
    const malformed = read.toolCalls.length === 0 ? read.malformed : undefined;
    return { text: read.text, toolCalls: read.toolCalls, finish: false, ...(malformed === undefined ? {} : { malformed }) };
  }
  const toolCalls: Action['toolCalls'] = [];
  let malformed: string | undefined;
  for (const { id, function: call } of structured) {
    const args = readArguments(call.arguments);
    if (typeof args === 'string') malformed ??= `the arguments of ${call.name} are ${args}`;
    else toolCalls.push({ name: call.name, ...args, ...(id === undefined ? {} : { id }) });
  }
  // One that cannot be read holds up the others: the API wants an answer to each.
  return { text, toolCalls: malformed === undefined ? toolCalls : [], finish: false, ...(malformed === undefined ? {} : { malformed }) };
}

/** Observations as the API takes them: each open call gets an answer, and what answers no call is said by the user. */
function answersOf(observed: readonly Message[], open: readonly string[]): Record<string, unknown>[] {
  const waiting = [...open];
  const out: Record<string, unknown>[] = [];
  const rest: Record<string, unknown>[] = [];
  for (const { role, content, toolCallId } of observed) {
    if (role !== 'tool') rest.push({ role, content });
    else if (waiting.length === 0) rest.push({ role: 'user', content });
    else {
      const at = Math.max(0, waiting.indexOf(toolCallId ?? ''));
      out.push({ role: 'tool', content, tool_call_id: waiting.splice(at, 1)[0] });
    }
  }
  const unread = (out[0]?.content as string | undefined) ?? '';
  return [...out, ...waiting.map((id) => ({ role: 'tool', content: unread, tool_call_id: id })), ...rest];
}
