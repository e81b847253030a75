// SinkFlex as a library: `train` runs the job that `sinkflex launch` runs.
import { type ProgressListener, type TrainingConfig, type TrainingResult, train as trainWith } from '../actors/index.ts';
import { compose } from './presets.ts';

export type { Baseline, Interval, ProgressEvent, ProgressListener, TrainingConfig, TrainingResult } from '../actors/index.ts';
export { defineActor, get, init, kill, put, shutdown, spawn, wait } from '../runtime/index.ts';

type Partly<T> = T extends readonly unknown[] ? T : T extends object ? { [K in keyof T]?: Partly<T[K]> } : T;

export type TrainOptions = Partly<TrainingConfig> & {
  /** `desk` unless another is named. */
  preset?: string;
  /** YAML files over the preset. */
  files?: readonly string[];
  onProgress?: ProgressListener;
  signal?: AbortSignal;
} & {
  /** Dotted keys: `'rollout.n': 16`. */
  [key: `${string}.${string}`]: unknown;
};

/**
 * Trains an agent and gives its scores before and after, with their intervals, and the run folder.
 *
 * @example
 * ```ts
 * import { train } from 'sinkflex';
 *
 * const result = await train({
 *   preset: 'desk',
 *   seed: 7,
 *   'trainer.total_training_steps': 100,
 *   rollout: { n: 16 },
 *   onProgress: (event) => event.kind === 'end' && console.log(event.phase, event.seconds),
 * });
 * console.log(result.before?.mean, '->', result.after.mean, result.folder);
 * ```
 */
export async function train(options: TrainOptions = {}): Promise<TrainingResult> {
  const { preset, files, onProgress, signal, ...values } = options;
  const composed = await compose({
    ...(preset === undefined ? {} : { preset }),
    ...(files ? { files } : {}),
    values: { source: 'train()', values },
  });
  return trainWith(composed.config, { preset: composed.preset, ...(onProgress ? { onProgress } : {}), ...(signal ? { signal } : {}) });
}
