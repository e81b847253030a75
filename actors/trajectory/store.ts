/**
 * The trajectory store: what a run sampled and trained, found by phase, step, task, group and version, and the marks that make
 * consumption exactly-once. One interface for one file of SQLite (the default) and for Redis (many hosts).
 *
 * A step is one transaction: its records, and a mark (task, sample) for every trajectory that was trained. A mark stands once: training
 * the same trajectory again is refused, in this process or after any crash. `rewind` takes back what came after a checkpoint.
 */
import { ActorsError } from '../errors.ts';
import type { TrajectoryHead, TrajectoryRecord } from './record.ts';

export interface TrajectoryFilter {
  phase?: 'train' | 'validation';
  /** [from, to], both included. */
  steps?: readonly [number, number];
  task?: number;
  group?: string;
  /** A version that produced some of its tokens. */
  version?: number;
}

export interface ConsumedMark {
  task: number;
  sample: number;
}

/** What one step leaves. */
export interface StepEntry {
  step: number;
  lineage: number;
  records: readonly TrajectoryRecord[];
  /** Trajectories that the optimiser consumed, recorded or not. */
  consumed: readonly ConsumedMark[];
}

export interface TrajectoryStore {
  /** Where it is, for messages. */
  readonly place: string;
  /** One transaction. SINKFLEX_TRAJECTORY_TWICE, and nothing is written, where a trajectory was consumed before. */
  step(entry: StepEntry): Promise<void>;
  /** Replaces the records of the validation after `step`. */
  validation(step: number, records: readonly TrajectoryRecord[]): Promise<void>;
  /** Takes back training records and marks of later steps. Validations stay: one that is repeated replaces its own. */
  rewind(step: number): Promise<void>;
  /** In the order in which they were written. */
  read(filter?: TrajectoryFilter): AsyncGenerator<TrajectoryRecord>;
  heads(filter?: TrajectoryFilter): AsyncGenerator<TrajectoryHead>;
  /** The step that consumed a trajectory, or undefined. */
  consumedAt(mark: ConsumedMark): Promise<number | undefined>;
  consumedCount(): Promise<number>;
  /** Steps that have records of the phase, ascending. */
  stepsOf(phase: 'train' | 'validation'): Promise<number[]>;
  /** Makes what was written survive a loss of power: called with each checkpoint. */
  flush(): Promise<void>;
  close(): Promise<void>;
}

export const consumedTwice = (place: string, mark: ConsumedMark, step: number, cause?: unknown): ActorsError =>
  new ActorsError(
    'SINKFLEX_TRAJECTORY_TWICE',
    `task ${mark.task} sample ${mark.sample} of step ${step} was trained before (${place}). This is a defect of the dataflow; please report it.`,
    { details: { ...mark, step }, cause },
  );

export const storeFailure = (place: string, what: string, cause: unknown): ActorsError =>
  new ActorsError('SINKFLEX_TRAJECTORY_STORE', `cannot ${what} trajectories at ${place}: ${(cause as Error).message}.`, { cause });
