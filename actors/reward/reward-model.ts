/**
 * A reward model: a linear head over the hidden state of an episode's last token, r = w.h + b. The head is here, with its fitting to
 * preferences (Bradley and Terry 1952: P(a over b) = sigmoid(r_a - r_b)); the hidden states come from whoever has an engine that gives them.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { z } from 'zod';
import { ActorsError } from '../errors.ts';
import type { RewardComponent, ScoredEpisode } from './types.ts';

/** What the head stands on. */
export interface HiddenStates {
  /** Width of a state. */
  readonly width: number;
  /** Of the last token of the episode, after the final norm. */
  last(episode: ScoredEpisode, signal: AbortSignal): Promise<Float32Array>;
  close?(): Promise<void>;
}

export interface LinearHead {
  weight: Float64Array;
  bias: number;
}

const HeadFile = z.object({ weight: z.array(z.number()), bias: z.number().default(0) });

/** A head from a JSON file: {"weight": [...], "bias": b}. SINKFLEX_REWARD_OPTION where it cannot be read. */
export function readHead(path: string): LinearHead {
  try {
    const { weight, bias } = HeadFile.parse(JSON.parse(readFileSync(path, 'utf8')));
    return { weight: Float64Array.from(weight), bias };
  } catch (cause) {
    const why = cause instanceof z.ZodError ? cause.issues[0]!.message : (cause as Error).message;
    throw new ActorsError('SINKFLEX_REWARD_OPTION', `the head of a reward model cannot be read from ${path}: ${why}`, {
      cause,
      details: { path },
    });
  }
}

/** What readHead reads. */
export function writeHead(path: string, { weight, bias }: LinearHead): void {
  writeFileSync(path, `${JSON.stringify({ weight: [...weight], bias })}\n`);
}

export function modelReward(name: string, states: HiddenStates, head: LinearHead): RewardComponent {
  if (head.weight.length !== states.width) {
    throw new ActorsError(
      'SINKFLEX_REWARD_OPTION',
      `reward ${name}: the head has ${head.weight.length} weights, the model's states ${states.width}`,
      {
        details: { component: name },
      },
    );
  }
  return {
    name,
    score: async (episode, signal) => headValue(head, await states.last(episode, signal)),
    close: async () => states.close?.(),
  };
}

export function headValue(head: LinearHead, state: ArrayLike<number>): number {
  let sum = head.bias;
  for (let i = 0; i < head.weight.length; i++) sum += head.weight[i]! * state[i]!;
  return sum;
}

/** Fits a head to pairs (better, worse) by gradient descent on -log sigmoid(r_better - r_worse) + l2 |w|^2 / 2. The bias cancels and stays 0. */
export function fitHead(
  pairs: readonly { better: ArrayLike<number>; worse: ArrayLike<number> }[],
  o: { steps?: number; lr?: number; l2?: number } = {},
): { head: LinearHead; accuracy: number } {
  const { steps = 200, lr = 0.5, l2 = 1e-3 } = o;
  const width = pairs[0]?.better.length ?? 0;
  const weight = new Float64Array(width);
  const margin = (p: (typeof pairs)[number]): number => {
    let m = 0;
    for (let i = 0; i < width; i++) m += weight[i]! * (p.better[i]! - p.worse[i]!);
    return m;
  };
  for (let step = 0; step < steps; step++) {
    const gradient = weight.map((w) => l2 * w);
    for (const p of pairs) {
      const pull = 1 / (1 + Math.exp(margin(p))) / pairs.length;
      for (let i = 0; i < width; i++) gradient[i]! -= pull * (p.better[i]! - p.worse[i]!);
    }
    for (let i = 0; i < width; i++) weight[i]! -= lr * gradient[i]!;
  }
  return { head: { weight, bias: 0 }, accuracy: pairs.length === 0 ? 0 : pairs.filter((p) => margin(p) > 0).length / pairs.length };
}
