/** Tasks: from files or generators, drawn by samplers. */
export { type EstimateState, Estimates } from './estimates.ts';
export { type RowReader, readTaskFiles } from './files.ts';
export { parseRow, readPlainRow } from './row.ts';
export { adaptiveGroupSize, makeSampler, type Sampler, type SamplerContext, type SamplerState, samplerNames } from './samplers.ts';
export { type DrawnTask, TaskSource, type TaskSourceOptions } from './source.ts';
export type { Task, TaskResult, TaskRow } from './types.ts';
