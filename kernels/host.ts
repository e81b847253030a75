// The part of the face that knows no model: shared memory, collectives and process primitives. Every worker of the runtime loads this, and
// none has to load the engine.

export {
  Collective,
  type CollectiveBrokenDetails,
  type CollectiveEnd,
  type CollectiveGroup,
  type CollectiveOptions,
  collectiveSlice,
  createCollective,
  joinCollective,
  type NumberArray,
  type Reduction,
} from './collective.ts';
export { applyDelta, encodeDelta } from './delta.ts';
export { isSinkflexError, type KernelErrorCode, kernelErrorCodes, SinkflexError } from './errors.ts';
export { didYouMean } from './nearest-name.ts';
export { os, type ProcessStatus } from './os.ts';
export { type Pin, type SegmentAddress, type SegmentOptions, type Slot, type Version, VersionedSegment, type Writing } from './segment.ts';
export {
  BlockPool,
  type BlockPoolStats,
  type BlockState,
  type BlockView,
  closeView,
  makeBlockAccount,
  newBlockChannel,
  openBlock,
  SharedBlock,
  tellViews,
} from './shared-block.ts';
export { SharedMemory, type SharedMemoryAddress } from './shared-memory.ts';
