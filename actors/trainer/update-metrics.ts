/** What one update measures, under verl's names. Everything here is a function of the batch and the passes: no clock. */
import type { PackedTrajectories } from '../trajectory/index.ts';
import type { ObjectiveSums } from './objective.ts';
import type { Recipe } from './recipe.ts';

export type Metrics = Record<string, number>;

export function spread(name: string, values: ArrayLike<number>, weights?: ArrayLike<number>): Metrics {
  let sum = 0;
  let count = 0;
  let max = -Infinity;
  let min = Infinity;
  for (let i = 0; i < values.length; i++) {
    const w = weights ? weights[i]! : 1;
    if (w === 0) continue;
    sum += w * values[i]!;
    count += w;
    max = Math.max(max, values[i]!);
    min = Math.min(min, values[i]!);
  }
  if (count === 0) return { [`${name}/mean`]: 0, [`${name}/max`]: 0, [`${name}/min`]: 0 };
  return { [`${name}/mean`]: sum / count, [`${name}/max`]: max, [`${name}/min`]: min };
}

/** Of the optimiser steps of one update, averaged over them. */
export function objectiveMetrics(sums: ObjectiveSums, optimizerSteps: number, r: Recipe): Metrics {
  const tokens = Math.max(1, sums.tokens);
  const policy = sums.policyLoss / optimizerSteps;
  const kl = sums.klLoss / optimizerSteps;
  const entropy = sums.entropy / optimizerSteps;
  return {
    'actor/loss': policy + r.kl.coefficient * kl - r.entropyCoefficient * entropy,
    'actor/pg_loss': policy,
    'actor/pg_clipfrac': sums.clipped / tokens,
    'actor/pg_clipfrac_lower': sums.clippedLower / tokens,
    'actor/ppo_kl': sums.negativeLogRatio / tokens,
    'actor/kl_loss': kl,
    'actor/kl_coef': r.kl.coefficient,
    'actor/entropy': sums.entropyTokens / tokens,
    'rollout_corr/rollout_is_mean': sums.weight / tokens,
    'rollout_corr/rollout_is_max': sums.weightMax,
    'rollout_corr/rejected_fraction': sums.rejected / tokens,
    'training/not_finite_tokens': sums.notFinite,
  };
}

/** How far the sampling policy b is from the policy at the start of the update o; over produced tokens. */
export function mismatchMetrics(p: Pick<PackedTrajectories, 'mask' | 'behaviour'>, old: Float32Array): Metrics {
  let n = 0;
  let sum = 0;
  let squares = 0;
  let max = 0;
  let kl = 0;
  let k3 = 0;
  let [sx, sy, sxx, syy, sxy] = [0, 0, 0, 0, 0];
  for (let t = 0; t < old.length; t++) {
    if (p.mask[t] !== 1) continue;
    const b = p.behaviour[t]!;
    const o = old[t]!;
    const x = Math.exp(b);
    const y = Math.exp(o);
    const diff = Math.abs(x - y);
    n++;
    sum += diff;
    squares += diff * diff;
    if (diff > max) max = diff;
    kl += b - o;
    k3 += Math.expm1(o - b) - (o - b);
    sx += x;
    sy += y;
    sxx += x * x;
    syy += y * y;
    sxy += x * y;
  }
  if (n === 0) return {};
  const mean = sum / n;
  const variance = (sxx / n - (sx / n) ** 2) * (syy / n - (sy / n) ** 2);
  return {
    'training/rollout_probs_diff_mean': mean,
    'training/rollout_probs_diff_max': max,
    'training/rollout_probs_diff_std': Math.sqrt(Math.max(0, squares / n - mean * mean)),
    'training/rollout_actor_probs_pearson_corr': variance > 0 ? (sxy / n - (sx / n) * (sy / n)) / Math.sqrt(variance) : 1,
    'rollout_corr/kl': kl / n,
    'rollout_corr/k3_kl': k3 / n,
  };
}

/** How many versions behind `version` the tokens were sampled; measured where they are consumed. */
export function stalenessMetrics(p: Pick<PackedTrajectories, 'mask' | 'versions' | 'cuSeqlens'>, version: number): Metrics {
  let tokens = 0;
  let sum = 0;
  let worst = 0;
  let mixed = 0;
  const sequences = p.cuSeqlens.length - 1;
  for (let i = 0; i < sequences; i++) {
    let low = Infinity;
    let high = -Infinity;
    for (let t = p.cuSeqlens[i]!; t < p.cuSeqlens[i + 1]!; t++) {
      if (p.mask[t] !== 1) continue;
      const v = p.versions[t]!;
      tokens++;
      sum += version - v;
      if (v < low) low = v;
      if (v > high) high = v;
    }
    if (high >= low) {
      worst = Math.max(worst, version - low);
      if (high > low) mixed++;
    }
  }
  return {
    'training/off_policy/trajectory_staleness/mean': tokens === 0 ? 0 : sum / tokens,
    'training/off_policy/trajectory_staleness/max': worst,
    'training/off_policy/trajectory_spans/mixed_fraction': sequences === 0 ? 0 : mixed / sequences,
  };
}
