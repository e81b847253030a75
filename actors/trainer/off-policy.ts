/**
 * Correction for tokens of an older policy, from d = o - b (the policy at the start of this training step against the one that sampled):
 * a constant factor on the policy loss of each token, applied once.
 *   token:     w = min(exp(d), C), the truncated importance weight
 *   sequence:  the same with the sum of d over the produced tokens of the sequence
 *   decoupled: AReaL's decoupled PPO, w = exp(d) on the clipped objective; tokens beyond C are left out instead of capped
 *   icepop:    w = exp(d), tokens whose weight is outside [1 / C, C] are left out
 * Rejection (`rs`) leaves tokens or whole sequences out for being too far away, by an estimate of the divergence: k1 = |d| against
 * log C (so the ratio lies within [1 / C, C]), k2 = d^2 / 2 and k3 = exp(d) - d - 1 against C.
 */
import { ActorsError } from '../errors.ts';
import { logRatioLimit } from './policy-losses.ts';

export const corrections = ['token', 'sequence', 'decoupled', 'icepop'] as const;
export type Correction = (typeof corrections)[number];

/** What is measured, and over what: single tokens, or the sum, mean or largest of a sequence. */
export const rejections = [
  'token_k1',
  'token_k2',
  'token_k3',
  'seq_sum_k1',
  'seq_sum_k2',
  'seq_sum_k3',
  'seq_mean_k1',
  'seq_mean_k2',
  'seq_mean_k3',
  'seq_max_k1',
  'seq_max_k2',
  'seq_max_k3',
] as const;
export type Rejection = (typeof rejections)[number];

export interface CorrectionOptions {
  mode: Correction | null;
  /** C */
  threshold: number;
  rejection?: { mode: Rejection; threshold: number } | null;
}

/** One sequence: produced tokens of `start` to `end` (exclusive). */
export interface CorrectionInput {
  start: number;
  end: number;
  o: Float32Array;
  b: Float32Array;
  mask: Uint8Array;
}

const clamp = (d: number) => Math.min(logRatioLimit, Math.max(-logRatioLimit, d));

/** Fills the weight of each produced token; 0 leaves it out. A difference that is not finite leaves its token out. */
export function correctionWeights(s: CorrectionInput, { mode, threshold, rejection }: CorrectionOptions, weights: Float64Array): void {
  const { start, end, o, b, mask } = s;
  if (mode === null && !rejection) {
    weights.fill(1, start, end);
    return;
  }
  let sum = 0;
  for (let t = start; t < end; t++) {
    weights[t] = 0;
    if (mask[t] !== 1) continue;
    const d = o[t]! - b[t]!;
    if (!Number.isFinite(d)) continue;
    sum += d;
    weights[t] = mode === 'sequence' ? 1 : tokenWeight(clamp(d), mode, threshold);
  }
  if (mode === 'sequence') {
    const w = Math.min(Math.exp(clamp(sum)), threshold);
    for (let t = start; t < end; t++) weights[t]! *= w;
  }
  if (rejection) reject(s, rejection, weights);
}

function tokenWeight(d: number, mode: Exclude<Correction, 'sequence'> | null, threshold: number): number {
  if (mode === null) return 1;
  const w = Math.exp(d);
  if (mode === 'token') return Math.min(w, threshold);
  return w > threshold || (mode === 'icepop' && w < 1 / threshold) ? 0 : w;
}

function reject({ start, end, o, b, mask }: CorrectionInput, r: { mode: Rejection; threshold: number }, weights: Float64Array): void {
  const kind = r.mode.slice(-2) as 'k1' | 'k2' | 'k3';
  const limit = kind === 'k1' ? Math.log(r.threshold) : r.threshold;
  const token = r.mode.startsWith('token');
  let [sum, n, max] = [0, 0, 0];
  for (let t = start; t < end; t++) {
    if (mask[t] !== 1) continue;
    const d = clamp(o[t]! - b[t]!);
    // k1 of a sequence is signed, so that differences of both directions cancel in its sum and mean, as in the sequence's own ratio.
    const value = kind === 'k1' ? (token ? Math.abs(d) : d) : kind === 'k2' ? (d * d) / 2 : Math.expm1(d) - d;
    if (token && value > limit) weights[t] = 0;
    if (Number.isNaN(value)) continue;
    sum += value;
    n++;
    max = Math.max(max, Math.abs(value));
  }
  if (token || n === 0) return;
  const whole = r.mode.startsWith('seq_sum') ? Math.abs(sum) : r.mode.startsWith('seq_mean') ? Math.abs(sum) / n : max;
  if (whole > limit) weights.fill(0, start, end);
}

/** With o := b (no recomputation) the ratio itself holds the correction; a weight on top would count it twice. */
export function refuseDoubleCorrection(oldIsBehaviour: boolean, { mode, rejection }: CorrectionOptions): void {
  if (!oldIsBehaviour) return;
  if (mode !== null) {
    throw new ActorsError(
      'SINKFLEX_LOSS_OPTION',
      `algorithm.rollout_correction.rollout_is=${mode} would be applied on top of a ratio against the sampling policy, twice in all: set it to null.`,
    );
  }
  if (rejection) {
    throw new ActorsError(
      'SINKFLEX_LOSS_OPTION',
      `algorithm.rollout_correction.rollout_rs=${rejection.mode} compares the sampling policy with a recomputation that bypass_mode leaves out: set one of them to null or false.`,
    );
  }
}
