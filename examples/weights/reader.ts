// The reader of main.ts: a process that opens the store and never copies a weight.
import { type StoreAddress, WeightStore } from 'sinkflex/kernels';
import { defineActor } from 'sinkflex/runtime';

export const Reader = defineActor(
  import.meta.url,
  'Reader',
  class {
    readonly #store: WeightStore;

    constructor(address: StoreAddress) {
      this.#store = WeightStore.open(address);
    }

    /** Waits for a version after `version`, on a thread of the addon, and reads it while it is pinned. */
    async after(version: number): Promise<{ version: number; norm: number }> {
      await this.#store.waitForVersion(version, { timeoutMs: 10_000 });
      const pin = this.#store.pin();
      const { data } = this.#store.tensors(pin).get('lm_head.weight')!;
      const norm = Math.hypot(...data);
      pin.release();
      return { version: pin.version.version, norm };
    }
  },
);
