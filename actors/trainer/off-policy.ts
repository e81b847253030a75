/**
 * Correction for tokens of an older policy, by the weight of o (the policy at the start of this training step) against b (the one that
 * sampled): a constant factor on the policy loss of each token, applied once.
 *   token:     w = min(exp(o - b), C), the truncated importance weight
 *   decoupled: AReaL's decoupled PPO, w = exp(o - b) on the clipped objective; tokens beyond C are left out instead of capped
 *   icepop:    tokens whose weight is outside [1 / C, C] are left out
 */
import { ActorsError } from '../errors.ts';
import { logRatioLimit } from './policy-losses.ts';

export const corrections = ['token', 'decoupled', 'icepop'] as const;
export type Correction = (typeof corrections)[number];

export interface CorrectionOptions {
  mode: Correction | null;
  /** C */
  threshold: number;
}

/** The weight of one token. A difference that is not finite gives 0: such a token is left out. */
export function importanceWeight(o: number, b: number, { mode, threshold }: CorrectionOptions): number {
  if (mode === null) return 1;
  const d = o - b;
  if (!Number.isFinite(d)) return 0;
  const w = Math.exp(Math.min(logRatioLimit, Math.max(-logRatioLimit, d)));
  switch (mode) {
    case 'token':
      return Math.min(w, threshold);
    case 'decoupled':
      return w > threshold ? 0 : w;
    case 'icepop':
      return w > threshold || w < 1 / threshold ? 0 : w;
  }
}

/** With o := b (no recomputation) the ratio itself holds the correction; a weight on top would count it twice. */
export function refuseDoubleCorrection(oldIsBehaviour: boolean, { mode }: CorrectionOptions): void {
  if (oldIsBehaviour && mode !== null) {
    throw new ActorsError(
      'SINKFLEX_LOSS_OPTION',
      `algorithm.rollout_correction.rollout_is=${mode} would be applied on top of a ratio against the sampling policy, twice in all: set it to null.`,
    );
  }
}
