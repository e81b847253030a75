/**
 * The agent loop of one episode: observe, generate a turn, act, until the environment or a budget ends it. Text is for the environment;
 * what is trained are the ids that the engine emitted. Reads time only for its timings.
 */
import type { Engine } from '../../kernels/index.ts';
import { onAbort } from '../../runtime/index.ts';
import type { Action, ResetResult, StepResult } from '../environment/index.ts';
import type { Chat } from '../language/index.ts';
import type { StopReason, Trajectory } from '../trajectory/index.ts';
import { CompactableContext, type CompactionOptions } from './compaction.ts';
import { TokenBuffer } from './token-buffer.ts';

/** The part of the engine that an episode uses. */
export type GenerationEngine = Pick<Engine, 'openSequence' | 'generate' | 'closeSequence'>;

/** One episode of an environment that lives somewhere else. */
export interface RemoteEpisode {
  reset(): PromiseLike<ResetResult>;
  step(action: Action): PromiseLike<StepResult>;
  close(): void;
}

/** The part of a chat format that an episode uses: messages to ids, and ids to actions. */
export type Dialogue = Pick<Chat, 'prompt' | 'delta' | 'parse' | 'stopIds'>;

export interface EpisodeTask {
  task: number;
  sample: number;
  group: string;
  seed: number;
}

export interface EpisodeLimits {
  /** Tokens of the whole conversation. */
  maxTokens: number;
  maxTokensPerTurn: number;
  maxTurns: number;
}

export interface Sampling {
  /** First word of every random key: the run's seed, or the constant of validation. */
  seed: number;
  /** 0 is greedy. */
  temperature: number;
  topK?: number;
  topP?: number;
  minP?: number;
}

export interface EpisodeContext {
  engine: GenerationEngine;
  environment: RemoteEpisode;
  dialogue: Dialogue;
  limits: EpisodeLimits;
  sampling: Sampling;
  /** An episode that outgrows the context goes on in a new sequence; without it, it ends as `length`. */
  compaction?: CompactionOptions;
  /** Where the engine records experts: how many numbers a token has, and whether they take two bytes. */
  experts?: { each: number; wide: boolean };
  signal: AbortSignal;
}

/** Plays one episode. Rejects only for infrastructure: whatever the policy does wrong is an observation or an end of the episode. */
export async function playEpisode(task: EpisodeTask, c: EpisodeContext): Promise<Trajectory> {
  const { engine, environment, dialogue, limits, sampling, signal } = c;
  const tokens = new TokenBuffer();
  const began = performance.now();
  const seconds = { began: (performance.timeOrigin + began) / 1000, total: 0, generate: 0, environment: 0 };
  let stopReason: StopReason = 'aborted';
  let reward = 0;
  let rewardParts: Record<string, number> = {};
  let diagnostics: Record<string, number> = {};
  let turns = 0;
  let toolCalls = 0;
  let malformed = 0;
  let lineage = 0;
  let sequence = await engine.openSequence();
  let stopWaiting: (() => void) | undefined;
  try {
    if (!signal.aborted) {
      stopWaiting = onAbort(signal, () => engine.closeSequence(sequence));
      let mark = performance.now();
      const opening = await environment.reset();
      seconds.environment += performance.now() - mark;
      let pending = dialogue.prompt(opening.observation, opening.tools);
      const context = c.compaction && new CompactableContext(pending, dialogue, c.compaction);
      while (!signal.aborted) {
        let room = limits.maxTokens - tokens.context - pending.length;
        const compacted =
          room < limits.maxTokensPerTurn && turns > 0 ? context?.compact(limits.maxTokens - limits.maxTokensPerTurn) : undefined;
        if (compacted) {
          engine.closeSequence(sequence);
          sequence = await engine.openSequence();
          if (signal.aborted) break;
          tokens.fork();
          pending = compacted;
          room = limits.maxTokens - pending.length;
        }
        if (room < 1) {
          // An overlong prompt is a truncation, not an error: the trajectory holds it, with nothing to train.
          if (tokens.length === 0) tokens.observe(pending);
          stopReason = 'length';
          break;
        }
        mark = performance.now();
        const turn = await engine.generate(sequence, {
          tokens: pending,
          maxNewTokens: Math.min(limits.maxTokensPerTurn, room),
          stopTokens: [...dialogue.stopIds],
          temperature: sampling.temperature,
          ...(sampling.topK === undefined ? {} : { topK: sampling.topK }),
          ...(sampling.minP === undefined ? {} : { minP: sampling.minP }),
          ...(sampling.topP === undefined ? {} : { topP: sampling.topP }),
          key: [sampling.seed, task.task, task.sample, turns],
        });
        seconds.generate += performance.now() - mark;
        if (turn.stopReason === 'aborted') break;
        tokens.observe(pending);
        tokens.produce(turn.tokens, turn.logprobs, turn.versions);
        if (turn.experts) tokens.route(turn.experts);
        lineage = turn.lineage;
        turns++;
        const ended = turn.stopReason === 'stop';
        if (!ended && tokens.context >= limits.maxTokens) {
          stopReason = 'length';
          break;
        }
        const action = dialogue.parse(turn.tokens);
        toolCalls += action.toolCalls.length;
        if (action.malformed !== undefined) malformed++;
        mark = performance.now();
        const step = await environment.step(action);
        seconds.environment += performance.now() - mark;
        reward += step.reward;
        if (step.terminated || step.truncated || turns >= limits.maxTurns) {
          rewardParts = readParts(step.info.rewardParts);
          diagnostics = readParts(step.info.diagnostics);
          stopReason = step.terminated ? 'stop' : 'turns';
          break;
        }
        pending = dialogue.delta(step.observation, !ended);
        context?.exchange(turn.tokens, step.observation, !ended, pending);
      }
    }
  } finally {
    stopWaiting?.();
    engine.closeSequence(sequence);
    environment.close();
  }
  if (signal.aborted) stopReason = 'aborted';
  seconds.total = performance.now() - began;
  for (const k of ['total', 'generate', 'environment'] as const) seconds[k] /= 1000;
  return {
    ...task,
    ...tokens.take(c.experts),
    lineage,
    reward,
    rewardParts,
    diagnostics,
    stopReason,
    turns,
    toolCalls,
    malformed,
    redone: 0,
    seconds,
  };
}

function readParts(parts: unknown): Record<string, number> {
  if (typeof parts !== 'object' || parts === null) return {};
  return Object.fromEntries(Object.entries(parts).filter((e): e is [string, number] => typeof e[1] === 'number'));
}
