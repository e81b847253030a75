/** The pipeline: settings, the run, its record. */
export { shellWord } from './advice.ts';
export { type PlannedActor, planPlacement } from './cast.ts';
export * from './config.ts';
export { type CurveSeries, drawCurve, PALETTE } from './curve.ts';
export { Dataflow, type DataflowOptions } from './dataflow.ts';
export { type DebugResult, debugRun, isDebugRun } from './debug-modes.ts';
export { type EndpointEvaluation, evaluateEndpoint, type PlayedEpisode } from './endpoint-evaluation.ts';
export { type PipelineErrorCode, pipelineErrorCodes } from './errors.ts';
export { memoryRows, predictMemory, type RunMemory, runMemory, sizeText } from './memory.ts';
export { isTiming, type MetricRecord, readMetrics, SFT_STEP, TRAINING_STEP, validationPoints, withoutTimings } from './metrics.ts';
export { importModule } from './module.ts';
export { type Assignment, RolloutPool, type RolloutWorker } from './pool.ts';
export type { Baseline, Phase, ProgressEvent, ProgressListener, ProgressNumbers, TrainingOptions, TrainingResult } from './progress.ts';
export { bestFixedScript } from './progress.ts';
export { checkOutput, RunFolder, type ValidationScores } from './run-folder.ts';
export { atomicWrite } from './run-folder-io.ts';
export { type Interval, mean, median, type PairedComparison, pairedComparison } from './statistics.ts';
export { train } from './train.ts';
