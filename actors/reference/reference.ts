/** The reference: frozen weights in a store of its own, and their log-probabilities for the sequences that are trained. */
import { deviceChoice, Engine, readModelConfig, type StoreAddress, WeightStore } from '../../kernels/index.ts';
import { defineActor } from '../../runtime/index.ts';
import { microBatches, sliceBatch, tokenSpan } from '../trajectory/index.ts';

export interface ReferenceOptions {
  /** Hugging Face folder; where the policy learns adapters, one of those. */
  folder: string;
  /** The policy's store: matrices are stored as there, and a model below adapters is read in place. */
  policy?: StoreAddress;
  threads: number;
  /** Where the engine computes: cpu (default), cuda or cuda:1. */
  device?: string;
  temperature: number;
  /** Tokens of one pass. */
  microBatchTokens: number;
}

export class Reference {
  readonly #store: WeightStore;
  readonly #engine: Engine;
  readonly #o: ReferenceOptions;

  constructor(o: ReferenceOptions) {
    this.#o = o;
    // Written once, never again: one slot holds the weights, one lets the store publish.
    this.#store = o.policy?.adapter
      ? WeightStore.createAdapter(WeightStore.open(o.policy.adapter.base), o.policy.adapter.config, { slots: 2 })
      : WeightStore.create(readModelConfig(o.folder), { slots: 2, ...(o.policy?.dtype && { dtype: o.policy.dtype }) });
    this.#store.loadFolder(o.folder);
    this.#engine = new Engine({
      store: this.#store,
      ...deviceChoice(o.device ?? 'cpu'),
      threads: o.threads,
      maxSequences: 1,
      maxSequenceTokens: 64,
    });
  }

  /** [n] log pi_ref of the tokens that the policy produced (mask 1), 0 elsewhere. */
  async logprobs(ids: Int32Array, cuSeqlens: Int32Array, mask: Uint8Array): Promise<Float32Array> {
    const out = new Float32Array(ids.length);
    for (const range of microBatches(cuSeqlens, this.#o.microBatchTokens)) {
      const { start, end } = tokenSpan(cuSeqlens, range);
      const { logprobs } = await this.#engine.forward(sliceBatch(ids, cuSeqlens, range), {
        temperature: this.#o.temperature,
        mask: mask.subarray(start, end),
      });
      out.set(logprobs, start);
    }
    return out;
  }

  async stop(): Promise<void> {
    await this.#engine.dispose();
    this.#store.close();
  }
}

export const ReferenceActor = defineActor(import.meta.url, 'ReferenceActor', Reference);
