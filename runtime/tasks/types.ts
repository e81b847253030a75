// The types that a user of tasks writes: definitions of functions, options of a call, what a running task knows of itself.
import type { AnswerOf, ArgumentsOf, PlacementOptions } from '../api/types.ts';

// biome-ignore lint/suspicious/noExplicitAny: a function constraint must accept every parameter list; it never reaches a user's values
export type TaskFunction = (...args: any[]) => unknown;

declare const taskBrand: unique symbol;

/** The value of defineTask: what task() takes. */
export interface TaskDefinition<F extends TaskFunction> {
  /** Package-relative module and export: the only name of code that ever crosses a wire. */
  readonly id: string;
  readonly name: string;
  readonly [taskBrand]: F;
}

/** Calls the function somewhere else: the same parameters, values or refs, and a ref (for a generator a stream) as its answer. */
export type TaskCaller<F extends TaskFunction> = F extends (...args: infer P) => infer R ? (...args: ArgumentsOf<P>) => AnswerOf<R> : never;

/**
 * A task that asks for anything of PlacementOptions but `cpus` runs in a process of its own wherever the head finds that, and reserves it
 * there, its `cpus` too, while it runs.
 */
export interface TaskOptions extends PlacementOptions {
  /**
   * `thread` (default, unless the head places the task): in a pool of threads of this process. `process`: in a process of its own, which a
   * crash of the task cannot leave.
   */
  isolation?: 'thread' | 'process';
  /** Processors that it takes while it runs; it waits until they are free, of those that this process gives its tasks. Default 1. */
  cpus?: number;
  /** How often it is run again when its thread or process ended under it. Default 3; for a generator 0. */
  maxRetries?: number;
  /** Also run it again when it throws an error for which this is true, up to maxRetries, with growing waits. */
  retryOn?: (error: Error) => boolean;
  /** Deadline, from the call on; calls nested in the task inherit what is left. */
  timeoutMs?: number;
  signal?: AbortSignal;
  /** After a cancel, how long the task may go on before its thread or process is ended. Default 1000. */
  cancelGraceMs?: number;
}

export interface CurrentTask {
  readonly name: string;
  /** 1, and one more with each retry. */
  readonly attempt: number;
  /** Devices that it has, by number, if it asked for whole ones. */
  readonly gpuIds: readonly number[];
  /** Aborts when the task is cancelled or past its deadline: at the next turn of the event loop. */
  readonly signal: AbortSignal;
  /** The same for code that gives the event loop no turn: read from memory that is shared with whoever cancels. */
  readonly cancelled: boolean;
}
