/**
 * Supervised learning: which sequences each step takes, and the gradients of their cross-entropy. Shared by the warm start of a run and by
 * fine-tuning on files.
 */
import type { Engine } from '../../kernels/index.ts';
// Not by way of the room's face, which brings every domain: trainers are processes that start often.
import { CounterRandom } from '../environment/random.ts';
import { microBatches, type SequenceRange, sliceBatch, tokenSpan } from '../trajectory/index.ts';

/** Ids, and 1 on those that are to be learnt. */
export interface MaskedSequence {
  ids: Int32Array;
  mask: Uint8Array;
}

/** Sequences laid end to end. */
export interface DemonstrationBatch extends MaskedSequence {
  /** [sequences + 1] where each starts. */
  cuSeqlens: Int32Array;
}

const orderKey = 0x73667431;

/** Draws the demonstrations of each step: passes over all of them in a new random order each. */
export class DemonstrationOrder {
  readonly #count: number;
  readonly #random: CounterRandom;
  #order: number[] = [];

  constructor(count: number, seed: number) {
    this.#count = count;
    this.#random = new CounterRandom(orderKey, seed);
  }

  next(n: number): number[] {
    const out: number[] = [];
    while (out.length < n) {
      if (this.#order.length === 0) {
        this.#order = this.#random.sample(
          Array.from({ length: this.#count }, (_, i) => i),
          this.#count,
        );
      }
      out.push(...this.#order.splice(0, n - out.length));
    }
    return out;
  }
}

export function packDemonstrations(chosen: readonly MaskedSequence[]): DemonstrationBatch {
  let n = 0;
  for (const d of chosen) n += d.ids.length;
  const batch: DemonstrationBatch = { ids: new Int32Array(n), cuSeqlens: new Int32Array(chosen.length + 1), mask: new Uint8Array(n) };
  let offset = 0;
  chosen.forEach((d, i) => {
    batch.ids.set(d.ids, offset);
    batch.mask.set(d.mask, offset);
    offset += d.ids.length;
    batch.cuSeqlens[i + 1] = offset;
  });
  return batch;
}

/**
 * Passes over a batch: cross-entropy, mean over its masked tokens. `learn` adds its gradients to the engine's (zero them before); without
 * it nothing but the loss is computed.
 */
export async function crossEntropy(
  engine: Engine,
  batch: DemonstrationBatch,
  o: {
    microBatchTokens: number;
    microBatchSequences?: number | null;
    checkpointing?: boolean;
    /** Weight of the router's load-balancing loss of each pass; passes count by their tokens. */
    routerAuxLossCoefficient?: number;
    /** Sequences that are passed here; others are passed by other trainers, and this one's loss and gradients are a part of the sum. */
    within?: SequenceRange;
    learn: boolean;
  },
): Promise<{ loss: number; tokens: number; entropy: number; routerAuxLoss: number }> {
  let tokens = 0;
  for (const m of batch.mask) tokens += m;
  let [sum, entropySum, routerAuxLoss] = [0, 0, 0];
  for (const range of microBatches(batch.cuSeqlens, o.microBatchTokens, o.within, o.microBatchSequences ?? undefined)) {
    const { start, end } = tokenSpan(batch.cuSeqlens, range);
    const mask = batch.mask.subarray(start, end);
    const {
      logprobs,
      entropy,
      routerAuxLoss: aux,
    } = await engine.forward(sliceBatch(batch.ids, batch.cuSeqlens, range), {
      keep: o.learn,
      checkpointing: o.checkpointing ?? false,
      mask,
    });
    const share = (end - start) / batch.ids.length;
    routerAuxLoss += share * aux;
    const dLogprobs = new Float32Array(end - start);
    for (let t = 0; t < dLogprobs.length; t++) {
      if (mask[t] !== 1) continue;
      sum -= logprobs[t]!;
      entropySum += entropy[t]!;
      dLogprobs[t] = -1 / tokens;
    }
    if (o.learn) await engine.backward({ dLogprobs, dRouterAuxLoss: share * (o.routerAuxLossCoefficient ?? 0) });
  }
  return { loss: sum / tokens, tokens, entropy: entropySum / tokens, routerAuxLoss };
}
