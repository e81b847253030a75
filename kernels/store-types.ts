// How a weight store is made and found, and what it shows.
import type { LoraConfig } from './lora.ts';
import type { ModelConfig } from './model-config.ts';
import type { MomentDtype } from './optimizer-state.ts';
import type { SegmentAddress } from './segment.ts';
import type { WeightDtype } from './tensor-layout.ts';

/** Plain data; opens the same store in another process of the host. */
export interface StoreAddress {
  segment: SegmentAddress;
  config: ModelConfig;
  /** Of the matrices; float32 where it is left out. */
  dtype?: WeightDtype;
  /** The slots hold the moments of the optimiser as well. */
  moments?: MomentDtype;
  /** The store holds adapters only; the base is read from its own store. */
  adapter?: { config: LoraConfig; base: StoreAddress };
  /** Folder that the weights were read from, which saved adapters name. */
  folder?: string;
}

export interface StoreOptions {
  /** Allocated at once; default 3. */
  slots?: number;
  maxSlots?: number;
  readers?: number;
  /** Keep AdamW's moments in the slots, beside the weights that they belong to. */
  moments?: MomentDtype | undefined;
}

export interface TensorView {
  shape: number[];
  data: Float32Array;
}

export interface LoadOptions {
  /** Published as; default the next version. */
  as?: { lineage: number; version: number };
  /** A file of saveOptimizer, for a store whose slots hold the moments. */
  optimizer?: string;
  signal?: AbortSignal;
  onProgress?: (done: number, total: number) => void;
}
