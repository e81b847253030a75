/** What the trainer is made with, is told, and answers. */
import type { Shard, StoreAddress } from '../../kernels/index.ts';
import type { Recipe } from './recipe.ts';
import type { Metrics } from './update-metrics.ts';

export interface TrainerOptions {
  store: StoreAddress;
  threads: number;
  /** Where the engine computes: cpu (default), cuda or cuda:1. */
  device?: string;
  recipe: Recipe;
  /**
   * Refuse to learn until `begin` or `restore` was called. A restarted trainer has lost its moments, and a call made while it was away
   * must not be answered as if nothing had happened.
   */
  fenced?: boolean;
  /** Its place among data-parallel trainers, which `join` brings together. */
  shard?: Shard;
}

export interface SftOptions {
  lr: number;
  weightDecay: number;
  gradClip: number;
}

export interface UpdateResult {
  metrics: Metrics;
  /** [e] of the episodes, in their order. */
  advantages: Float64Array;
  lineage: number;
  version: number;
}
