// The task that runs in this thread. One at a time, so it needs no asynchronous context.
import { CallAbortedError, RuntimeFailure } from '../api/errors.ts';
import { type Scope, setAlone } from '../worker/index.ts';
import type { CurrentTask } from './types.ts';

export class RunningTask implements CurrentTask, Scope {
  readonly name: string;
  readonly attempt: number;
  readonly gpuIds: readonly number[];
  // As a scope: what calls made inside inherit.
  readonly actor = undefined as unknown as Scope['actor'];
  readonly expiresAt: number;
  /** Tasks that wait for it, each called by the one before. */
  readonly depth: number;
  readonly abortable = true;
  over = false;
  #controller: AbortController | undefined;
  readonly #flag: () => boolean;

  /** `flag`: whether it was cancelled. */
  constructor(name: string, attempt: number, expiresAt: number, flag: () => boolean, depth = 0, gpuIds: readonly number[] = []) {
    this.name = name;
    this.attempt = attempt;
    this.expiresAt = expiresAt;
    this.#flag = flag;
    this.depth = depth;
    this.gpuIds = gpuIds;
  }

  get cancelled(): boolean {
    return this.#controller?.signal.aborted === true || this.#flag();
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (!this.#controller.signal.aborted && this.#flag()) this.abort();
    return this.#controller.signal;
  }

  abort(): void {
    this.#controller ??= new AbortController();
    this.#controller.abort(new CallAbortedError(`task ${this.name}()`, true));
  }
}

let running: RunningTask | undefined;

export function runningDepth(): number {
  return running?.depth ?? 0;
}

/** Until end(), all code of this thread belongs to the task. */
export function begin(task: RunningTask): void {
  running = task;
  setAlone(task);
}

export function end(task: RunningTask): void {
  task.over = true;
  if (running !== task) return;
  running = undefined;
  setAlone(undefined);
}

/**
 * The task whose code is running.
 *
 * @example
 * while (!currentTask().cancelled && !found()) step();
 */
export function currentTask(): CurrentTask {
  if (running === undefined) throw new RuntimeFailure('SINKFLEX_NOT_INITIALISED', 'currentTask() is for code that runs in a task');
  return running;
}
