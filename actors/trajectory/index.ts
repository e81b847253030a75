/** Trajectories: what they are, how they queue, where they went, how they are packed and stored. */
export { Ledger, type LedgerSnapshot, type TrajectoryKey, trajectoryKey } from './ledger.ts';
export {
  compareTrajectories,
  microBatches,
  miniBatches,
  type PackedTrajectories,
  pack,
  type SequenceRange,
  selectSequences,
  sliceBatch,
  tokenSpan,
} from './packing.ts';
export { type Batch, type QueueOptions, TrajectoryQueue, zeroSpread } from './queue.ts';
export { fromRecord, readTrajectories, type TrajectoryRecord, TrajectoryStore, toRecord, truncateStore } from './store.ts';
export {
  hasValidReward,
  promptTokens,
  responseTokens,
  type StopReason,
  type Trajectory,
  type TrajectoryGroup,
  type TrajectorySeconds,
} from './types.ts';
