// The public face of the engine floor: shared memory and process primitives, weights, the model engine and sink attention.
import { SinkflexError } from './errors.ts';
import { addon } from './native.ts';

export { adapterBaseOf, isAdapterFolder, readModelConfig } from './adapter-folder.ts';
export {
  type AttentionArray,
  type AttentionStrides,
  type SinkAttentionBackwardOptions,
  type SinkAttentionGradients,
  type SinkAttentionOptions,
  type SinkAttentionResult,
  type SinkFunction,
  sinkAttention,
  sinkAttentionAsync,
  sinkAttentionBackward,
  sinkAttentionBackwardAsync,
  sinkFunctions,
} from './attention.ts';
export { type BackendChoice, cudaLibrary, deviceChoice, probeDevice } from './backend-library.ts';
export { Engine, type ForwardOptions, type ForwardResult, type OptimizerStep, type PackedBatch } from './engine.ts';
export type { EngineStats } from './engine-stats.ts';
export type { CacheOnUpdate, DrawnToken, EngineOptions, GenerateRequest, GenerateResult } from './generation.ts';
export * from './host.ts';
export { adapterConfigJson, type LoraConfig, type LoraModule, loraModules, parseLora } from './lora.ts';
export { type LinearMeasurement, measureFmaPeak, measureLinear } from './measure.ts';
export { type LayerType, type ModelConfig, type ModelType, modelTypes, parseModelConfig, type RopeScaling } from './model-config.ts';
export { type MomentDtype, type Shard, shardRange } from './optimizer-state.ts';
export type { StoreAddress, StoreOptions, TensorView } from './store-types.ts';
export { type WeightDtype, weightDtypes } from './tensor-layout.ts';
export { longestSequence, scoringMemory, type TrainingMemory, type TrainingShape, trainingMemory } from './training-memory.ts';
export { WeightStore } from './weight-store.ts';

export interface CpuInfo {
  /** The instruction set the operators run on; SINKFLEX_CPU forces one. */
  isa: 'avx512' | 'avx2' | 'neon' | 'portable';
}

export const cpu: CpuInfo = {
  get isa(): CpuInfo['isa'] {
    const name = (addon.backendName as () => string | undefined)();
    if (name === undefined) {
      throw new SinkflexError(
        'SINKFLEX_CPU_UNSUPPORTED',
        `this machine or build cannot run SINKFLEX_CPU=${process.env.SINKFLEX_CPU ?? ''}`,
      );
    }
    return name.replace(/^cpu-/, '') as CpuInfo['isa'];
  },
};
