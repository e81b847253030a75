/** Trajectories: what they are, how they queue, where they went, how they are packed and stored. */
export { type ExportFormat, exportFormats, exportTrajectories, readTrajectories } from './export.ts';
export { Ledger, type LedgerSnapshot, type TrajectoryKey, trajectoryKey } from './ledger.ts';
export { openTrajectoryStore } from './open-store.ts';
export {
  compareTrajectories,
  microBatches,
  miniBatches,
  type PackedTrajectories,
  pack,
  type SequenceRange,
  selectSequences,
  sliceBatch,
  sliceExperts,
  tokenSpan,
} from './packing.ts';
export { type Batch, type QueueOptions, TrajectoryQueue, zeroSpread } from './queue.ts';
export { fromRecord, headOf, type TrajectoryHead, type TrajectoryRecord, toRecord } from './record.ts';
export { SqliteTrajectoryStore } from './sqlite-store.ts';
export type { ConsumedMark, StepEntry, TrajectoryFilter, TrajectoryStore } from './store.ts';
export {
  hasValidReward,
  promptTokens,
  responseTokens,
  type StopReason,
  type Trajectory,
  type TrajectoryGroup,
  type TrajectorySeconds,
} from './types.ts';
