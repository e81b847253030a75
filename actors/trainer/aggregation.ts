/**
 * How token losses become one number: L = sum_i c_i sum_t m_t loss_t with one coefficient a sequence, known for a whole optimiser step
 * before its first micro-batch, so that no split into micro-batches can change a gradient. Counts are those of the original mask: a token
 * that a correction rejects still counts.
 */
import type { PackedTrajectories, SequenceRange } from '../trajectory/index.ts';

export const aggregationModes = [
  'token-mean',
  'seq-mean-token-mean',
  'seq-mean-token-sum',
  'seq-mean-token-sum-norm',
  'prompt-mean',
] as const;
export type AggregationMode = (typeof aggregationModes)[number];

/** T_i of every sequence. */
export function responseTokenCounts(p: Pick<PackedTrajectories, 'mask' | 'cuSeqlens'>): Int32Array {
  const counts = new Int32Array(p.cuSeqlens.length - 1);
  for (let i = 0; i < counts.length; i++) {
    let n = 0;
    for (let t = p.cuSeqlens[i]!; t < p.cuSeqlens[i + 1]!; t++) n += p.mask[t]!;
    counts[i] = n;
  }
  return counts;
}

/**
 * [s] c_i of the sequences in `range`, 0 elsewhere. `horizon`: the constant token count of seq-mean-token-sum-norm (Dr. GRPO).
 * Sequences without a produced token leave the sequence and prompt counts.
 */
export function sequenceCoefficients(
  mode: AggregationMode,
  counts: Int32Array,
  groupOf: Int32Array,
  range: SequenceRange,
  horizon: number,
): Float64Array {
  const c = new Float64Array(counts.length);
  let tokens = 0;
  let sequences = 0;
  const groupTokens = new Map<number, number>();
  for (let i = range.from; i < range.to; i++) {
    const n = counts[i]!;
    if (n === 0) continue;
    tokens += n;
    sequences++;
    groupTokens.set(groupOf[i]!, (groupTokens.get(groupOf[i]!) ?? 0) + n);
  }
  for (let i = range.from; i < range.to; i++) {
    const n = counts[i]!;
    if (n === 0) continue;
    switch (mode) {
      case 'token-mean':
        c[i] = 1 / tokens;
        break;
      case 'seq-mean-token-mean':
        c[i] = 1 / (sequences * n);
        break;
      case 'seq-mean-token-sum':
        c[i] = 1 / sequences;
        break;
      case 'seq-mean-token-sum-norm':
        c[i] = 1 / (sequences * horizon);
        break;
      case 'prompt-mean':
        c[i] = 1 / (groupTokens.size * groupTokens.get(groupOf[i]!)!);
        break;
    }
  }
  return c;
}
