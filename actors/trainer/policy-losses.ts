/**
 * Policy losses: for one sequence, the loss of each produced token and its derivative by l = log pi_theta, before aggregation.
 *   rho = exp(clamp(l - o, -20, 20)), rho_bar = clip(rho, 1 - low, 1 + high)
 * Where a clamp or clip is active the derivative is exactly 0. Everything in float64.
 */
import { ActorsError, didYouMean } from '../errors.ts';

/** One sequence: tokens `start` to `end` (exclusive) of the arrays. */
export interface SequenceTokens {
  start: number;
  end: number;
  l: Float32Array;
  o: Float32Array;
  mask: Uint8Array;
  advantage: number;
}

export interface PolicyLossOptions {
  clipLow: number;
  clipHigh: number;
  /** Dual clip c for negative advantages, or null. */
  dualClip: number | null;
}

/** What a policy loss writes; indexes are those of the sequence's tokens. */
export interface PolicyLossOutput {
  loss: Float64Array;
  /** dLoss/dl */
  derivative: Float64Array;
  /** Produced tokens whose loss was clipped / clipped by the dual clip. */
  clipped: number;
  clippedLower: number;
}

export interface PolicyLoss {
  compute(s: SequenceTokens, o: PolicyLossOptions, out: PolicyLossOutput): void;
  /** The loss only makes sense under this aggregation. */
  aggregation?: 'seq-mean-token-mean';
}

export const logRatioLimit = 20;

const losses = new Map<string, PolicyLoss>();

/** Adds a policy loss under a name that `actor.policy_loss.loss_mode` may take. */
export function registerPolicyLoss(name: string, loss: PolicyLoss): void {
  losses.set(name, loss);
}

export function policyLoss(name: string): PolicyLoss {
  const found = losses.get(name);
  if (found) return found;
  const near = didYouMean(name, losses.keys());
  throw new ActorsError(
    'SINKFLEX_RECIPE_UNKNOWN',
    `actor.policy_loss.loss_mode=${name} is not known${near ? `: did you mean ${near}?` : ''} (there are ${[...losses.keys()].join(', ')})`,
  );
}

export function policyLossNames(): string[] {
  return [...losses.keys()];
}

function clip(x: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, x));
}

/** -min(rho A, rho_bar A), with max(that, ...) bounded by -c A where A < 0. */
registerPolicyLoss('vanilla', {
  compute(s, o, out) {
    const a = s.advantage;
    for (let t = s.start; t < s.end; t++) {
      if (s.mask[t] !== 1) continue;
      const d = s.l[t]! - s.o[t]!;
      const rho = Math.exp(clip(d, -logRatioLimit, logRatioLimit));
      const plain = -rho * a;
      const bounded = -clip(rho, 1 - o.clipLow, 1 + o.clipHigh) * a;
      let loss = plain;
      let derivative = Math.abs(d) < logRatioLimit ? plain : 0;
      if (bounded > plain) {
        loss = bounded;
        derivative = 0;
        out.clipped++;
      }
      if (a < 0 && o.dualClip !== null && loss > -o.dualClip * a) {
        loss = -o.dualClip * a;
        derivative = 0;
        out.clippedLower++;
      }
      out.loss[t] = loss;
      out.derivative[t] = derivative;
    }
  },
});

/** GSPO: one ratio a sequence, s = exp(sum m (l - o) / sum m), clipped as a whole; always the mean over sequences of the token mean. */
registerPolicyLoss('gspo', {
  aggregation: 'seq-mean-token-mean',
  compute(s, o, out) {
    let sum = 0;
    let count = 0;
    for (let t = s.start; t < s.end; t++) {
      if (s.mask[t] !== 1) continue;
      sum += s.l[t]! - s.o[t]!;
      count++;
    }
    if (count === 0) return;
    const d = sum / count;
    const ratio = Math.exp(clip(d, -logRatioLimit, logRatioLimit));
    const plain = -ratio * s.advantage;
    const bounded = -clip(ratio, 1 - o.clipLow, 1 + o.clipHigh) * s.advantage;
    const active = bounded > plain;
    if (active) out.clipped += count;
    const derivative = active || Math.abs(d) >= logRatioLimit ? 0 : plain;
    for (let t = s.start; t < s.end; t++) {
      if (s.mask[t] !== 1) continue;
      out.loss[t] = active ? bounded : plain;
      // d(ratio)/dl_t = ratio / count, and the token mean of equal losses has `count` terms of weight 1 / count each.
      out.derivative[t] = derivative;
    }
  },
});

/** CISPO: -stopgrad(clip(rho)) A l. */
registerPolicyLoss('cispo', {
  compute(s, o, out) {
    for (let t = s.start; t < s.end; t++) {
      if (s.mask[t] !== 1) continue;
      const rho = Math.exp(clip(s.l[t]! - s.o[t]!, -logRatioLimit, logRatioLimit));
      const weight = clip(rho, 1 - o.clipLow, 1 + o.clipHigh);
      if (weight !== rho) out.clipped++;
      out.loss[t] = -weight * s.advantage * s.l[t]!;
      out.derivative[t] = -weight * s.advantage;
    }
  },
});
