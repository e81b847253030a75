/** A task as a run draws it: what the environment is reset with, and how many samples it gets. */
export interface Task {
  /** uint32 that the environment is reset with. */
  seed: number;
  /** Reset options of the environment, over those that it was made with. */
  options?: Record<string, unknown>;
}

/** One row of a task file, read and checked. */
export interface TaskRow {
  seed?: number;
  options?: Record<string, unknown>;
  /** Difficulty, for the curriculum. */
  level?: number;
}

/** What became of one drawn group. */
export interface TaskResult {
  /** Index of the draw. */
  task: number;
  /** Of the members that count. */
  rewards: readonly number[];
}
