/**
 * The objective of one micro-batch and its derivatives by each token's log-probability and entropy:
 *   L = sum_i c_i sum_t m_t [ w_t J_t + beta KL_t - gamma H_t ]
 * J from the policy loss, w from the off-policy correction (a constant), KL against the reference, H the entropy. c_i comes from the whole
 * optimiser step (aggregation.ts). Masked tokens are left out by selection, never by multiplying: what stands there may be NaN.
 */
import { klDerivative, klValue } from './kl.ts';
import { type CorrectionOptions, correctionWeights } from './off-policy.ts';
import type { PolicyLoss, PolicyLossOptions, PolicyLossOutput, SequenceTokens } from './policy-losses.ts';

export interface ObjectiveOptions extends PolicyLossOptions {
  policyLoss: PolicyLoss;
  correction: CorrectionOptions;
  /** beta; 0 leaves the KL out. */
  klCoefficient: number;
  klEstimator: 'k2' | 'k3';
  /** gamma; 0 leaves the entropy out. */
  entropyCoefficient: number;
}

/** One micro-batch; all arrays are its own (views), offsets start at 0. */
export interface ObjectiveInput {
  cuSeqlens: Int32Array;
  mask: Uint8Array;
  /** log pi_theta */
  l: Float32Array;
  entropy: Float32Array;
  /** log pi_old; undefined where this is the first update of a step: then o = l, detached. */
  o: Float32Array | undefined;
  /** log pi_behaviour */
  b: Float32Array;
  /** log pi_ref */
  f: Float32Array | undefined;
  /** [s] */
  advantages: Float64Array;
  /** [s] c_i */
  coefficients: Float64Array;
}

/** Sums over the micro-batches of one optimiser step. */
type SumName = { [K in keyof ObjectiveSums]: ObjectiveSums[K] extends number ? K : never }[keyof ObjectiveSums];

export class ObjectiveSums {
  /** Parts of the loss, aggregated. */
  policyLoss = 0;
  klLoss = 0;
  entropy = 0;
  /** Produced tokens seen, and of these: clipped, clipped by the dual clip, left out by the correction, not finite. */
  tokens = 0;
  clipped = 0;
  clippedLower = 0;
  rejected = 0;
  notFinite = 0;
  /** Plain token sums. */
  negativeLogRatio = 0;
  entropyTokens = 0;
  weight = 0;
  weightMax = 0;

  add(other: ObjectiveSums): void {
    for (const k of sumNames) this[k] = k === 'weightMax' ? Math.max(this[k], other[k]) : this[k] + other[k];
  }

  /** As plain numbers, and back. */
  values(): Float64Array {
    return Float64Array.from(sumNames, (k) => this[k]);
  }

  static of(values: ArrayLike<number>): ObjectiveSums {
    const sums = new ObjectiveSums();
    for (const [i, k] of sumNames.entries()) sums[k] = values[i]!;
    return sums;
  }
}

const sumNames = Object.keys(new ObjectiveSums()) as SumName[];

export interface ObjectiveGradients {
  /** [n] dL/dl */
  dLogprobs: Float32Array;
  /** [n] dL/dH, only where the entropy has a weight. */
  dEntropy: Float32Array | undefined;
}

export function objective(input: ObjectiveInput, options: ObjectiveOptions, sums: ObjectiveSums): ObjectiveGradients {
  const { cuSeqlens, mask, l, entropy, b, f, advantages, coefficients } = input;
  const n = l.length;
  const o = input.o ?? l;
  const scratch: PolicyLossOutput = { loss: new Float64Array(n), derivative: new Float64Array(n), clipped: 0, clippedLower: 0 };
  const weights = new Float64Array(n);
  const dLogprobs = new Float32Array(n);
  const dEntropy = options.entropyCoefficient === 0 ? undefined : new Float32Array(n);
  const withKl = options.klCoefficient > 0 && f !== undefined;
  for (let i = 0; i + 1 < cuSeqlens.length; i++) {
    const c = coefficients[i]!;
    const s: SequenceTokens = { start: cuSeqlens[i]!, end: cuSeqlens[i + 1]!, l, o, mask, advantage: advantages[i]! };
    options.policyLoss.compute(s, options, scratch);
    correctionWeights({ start: s.start, end: s.end, o, b, mask }, options.correction, weights);
    for (let t = s.start; t < s.end; t++) {
      if (mask[t] !== 1) continue;
      sums.tokens++;
      if (!Number.isFinite(l[t]!) || !Number.isFinite(o[t]!) || !Number.isFinite(scratch.loss[t]!)) {
        sums.notFinite++;
        continue;
      }
      const w = weights[t]!;
      if (w === 0) sums.rejected++;
      sums.weight += w;
      if (w > sums.weightMax) sums.weightMax = w;
      sums.policyLoss += c * w * scratch.loss[t]!;
      sums.entropy += c * entropy[t]!;
      sums.entropyTokens += entropy[t]!;
      sums.negativeLogRatio += o[t]! - l[t]!;
      let derivative = w * scratch.derivative[t]!;
      if (withKl) {
        sums.klLoss += c * klValue(options.klEstimator, l[t]!, f[t]!);
        derivative += options.klCoefficient * klDerivative(options.klEstimator, l[t]!, f[t]!);
      }
      dLogprobs[t] = c * derivative;
      if (dEntropy) dEntropy[t] = -options.entropyCoefficient * c;
    }
  }
  sums.clipped += scratch.clipped;
  sums.clippedLower += scratch.clippedLower;
  return { dLogprobs, dEntropy };
}

/** The value of the loss so far. */
export function lossValue(sums: ObjectiveSums, o: Pick<ObjectiveOptions, 'klCoefficient' | 'entropyCoefficient'>): number {
  return sums.policyLoss + o.klCoefficient * sums.klLoss - o.entropyCoefficient * sums.entropy;
}
