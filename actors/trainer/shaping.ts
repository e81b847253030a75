/**
 * What the trainer does to the rewards of a batch before advantages are taken: a penalty for sequences near the length limit, and the KL
 * to the reference counted as a cost. Both leave the environment's score as it was; `critic/score` shows that, `critic/rewards` this.
 */
import { ActorsError } from '../errors.ts';
import type { PackedTrajectories } from '../trajectory/index.ts';
import { type KlEstimator, klValue } from './kl.ts';

export interface ShapingOptions {
  /** DAPO's soft overlong punishment: from `limit - buffer` tokens on the reward falls linearly by up to `factor`. */
  overlong: { limit: number; buffer: number; factor: number } | null;
  /** beta of the KL of the policy at the start of the step against the reference, summed over the produced tokens. */
  kl: { coefficient: number; estimator: KlEstimator } | null;
  /** Episodes cut off by a length or turn limit keep their reward in the group's statistics, but their tokens are not trained. */
  maskTruncated: boolean;
}

/** min(-(tokens - (limit - buffer)) / buffer * factor, 0), not below -factor. */
export function overlongPenalty(tokens: number, o: { limit: number; buffer: number; factor: number }): number {
  const exceed = tokens - (o.limit - o.buffer);
  return exceed <= 0 ? 0 : -Math.min(1, exceed / o.buffer) * o.factor;
}

export interface ShapedRewards {
  rewards: Float64Array;
  metrics: Record<string, number>;
}

/** `old` and `reference`: log-probabilities of every token, needed where the KL has a weight. */
export function shapeRewards(
  p: Pick<PackedTrajectories, 'rewards' | 'cuSeqlens' | 'mask'>,
  o: ShapingOptions,
  old?: Float32Array,
  reference?: Float32Array,
): ShapedRewards {
  const rewards = Float64Array.from(p.rewards);
  const metrics: Record<string, number> = {};
  const n = Math.max(1, rewards.length);
  if (o.overlong) {
    let sum = 0;
    let hit = 0;
    for (let i = 0; i < rewards.length; i++) {
      const penalty = overlongPenalty(p.cuSeqlens[i + 1]! - p.cuSeqlens[i]!, o.overlong);
      rewards[i]! += penalty;
      sum += penalty;
      if (penalty < 0) hit++;
    }
    metrics['reward/overlong_penalty/mean'] = sum / n;
    metrics['reward/overlong_fraction'] = hit / n;
  }
  if (o.kl && old && reference) {
    let tokens = 0;
    let total = 0;
    for (let i = 0; i < rewards.length; i++) {
      let sum = 0;
      for (let t = p.cuSeqlens[i]!; t < p.cuSeqlens[i + 1]!; t++) {
        if (p.mask[t] !== 1) continue;
        sum += klValue(o.kl.estimator, old[t]!, reference[t]!);
        tokens++;
      }
      total += sum;
      rewards[i]! -= o.kl.coefficient * sum;
    }
    metrics['actor/reward_kl_penalty'] = total / Math.max(1, tokens);
    metrics['actor/reward_kl_penalty_coeff'] = o.kl.coefficient;
  }
  return { rewards, metrics };
}

/** The batch with the tokens of truncated episodes left out of training; groups, rewards and the token stream stay. */
export function maskTruncated(p: PackedTrajectories): PackedTrajectories {
  if (!p.truncated.includes(1)) return p;
  const mask = Uint8Array.from(p.mask);
  p.truncated.forEach((cut, i) => {
    if (cut === 1) mask.fill(0, p.cuSeqlens[i]!, p.cuSeqlens[i + 1]!);
  });
  return { ...p, mask };
}

/** NaN and infinite rewards never come so far: the queue leaves them out. */
export function refuseInvalidRewards({ rewards, tasks, samples }: Pick<PackedTrajectories, 'rewards' | 'tasks' | 'samples'>): void {
  const i = rewards.findIndex((r) => !Number.isFinite(r));
  if (i < 0) return;
  throw new ActorsError(
    'SINKFLEX_REWARD_INVALID',
    `task ${tasks[i]} sample ${samples[i]} has reward ${rewards[i]}: it must be excluded before training.`,
  );
}
