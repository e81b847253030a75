// One call of a task at its owner: its arguments, how often it may still run, and its ref.
import { performance } from 'node:perf_hooks';
import { CallAbortedError, RuntimeFailure } from '../api/errors.ts';
import { PENDING, type Ref, VALUE } from '../objects/index.ts';
import { callScope, session } from '../worker/index.ts';
import { retryDelayMs } from '../worker/retry.ts';
import { Terms } from '../worker/terms.ts';
import type { Task } from './definition.ts';
import type { CheckedOptions } from './options.ts';
import { countSettled } from './seen.ts';

/** Who has the call at the moment: a queue, or what runs it. */
export interface Holder {
  /** The caller no longer waits. */
  abandoned(call: TaskCall): void;
}

export class TaskCall {
  readonly task: Task;
  readonly ref: Ref;
  readonly options: CheckedOptions;
  readonly terms = new Terms();
  args: unknown[] = [];
  attempt = 1;
  holder: Holder | undefined = undefined;
  /** Puts it back to where it waits to run. */
  readonly #again: (call: TaskCall) => void;
  /** Lets go of the refs that are kept for it. */
  release: (() => void) | undefined = undefined;

  constructor(task: Task, ref: Ref, options: CheckedOptions, again: (call: TaskCall) => void) {
    this.task = task;
    this.ref = ref;
    this.options = options;
    this.#again = again;
    ref.client = this;
    ref.method = task.name;
    ref.since = performance.now();
  }

  /** Begins to watch deadline and signals. Answers whether it should run at all. */
  begin(): boolean {
    const { timeoutMs, signal } = this.options;
    const refused = this.terms.begin(this, this.ref, { timeoutMs, signal }, callScope());
    if (refused !== undefined) {
      this.ref.reject(refused);
      return false;
    }
    this.ref.guard = this;
    return true;
  }

  get over(): boolean {
    return this.ref.state !== PENDING;
  }

  get remainingMs(): number {
    return this.terms.remaining(performance.now());
  }

  // --- as the owner of its terms, and as the client of its ref

  describe(method: string): string {
    return `task ${method}()`;
  }

  keyDone(): void {}

  settled(): void {
    countSettled(this.task.name, this.ref.state === VALUE);
    this.terms.settled();
    this.release?.();
    this.release = undefined;
    this.args = [];
  }

  abandon(_ref: Ref, error: Error): boolean {
    if (this.over) return false;
    const { holder } = this;
    this.holder = undefined;
    this.ref.reject(error);
    holder?.abandoned(this);
    return true;
  }

  cancel(): boolean {
    return this.abandon(this.ref, new CallAbortedError(this.describe(this.task.name), this.terms.doubt(this.ref)));
  }

  /** It was sent, so it may run at any moment. */
  sentTo(holder: Holder): void {
    this.holder = holder;
    this.ref.callId = 1;
  }

  /** From now on it may have run. */
  begun(): void {
    this.terms.mayHaveRun = true;
  }

  // --- outcomes

  succeeded(value: unknown): void {
    this.holder = undefined;
    this.ref.resolve(value);
  }

  /** The task threw. */
  threw(error: Error): void {
    this.holder = undefined;
    if (this.over) return;
    if (this.attempt > this.options.maxRetries || this.options.retryOn?.(error) !== true) {
      this.ref.reject(error);
      return;
    }
    const delay = retryDelayMs(this.attempt, session().random);
    this.attempt++;
    setTimeout(() => {
      if (!this.over) this.#again(this);
    }, delay);
  }

  /** What ran it ended under it. */
  lost(cause: unknown): void {
    this.holder = undefined;
    if (this.over) return;
    if (this.attempt <= this.options.maxRetries) {
      this.attempt++;
      this.#again(this);
      return;
    }
    const times = this.attempt === 1 ? '' : ` at each of ${this.attempt} attempts`;
    this.ref.reject(
      new RuntimeFailure(
        'SINKFLEX_TASK_DIED',
        `what ran task ${this.task.name}() ended under it${times}: ${(cause as Error)?.message ?? cause}`,
        {
          cause,
          details: { task: this.task.name, attempts: this.attempt, mayHaveRun: this.terms.mayHaveRun },
        },
      ),
    );
  }

  /** It was not begun: that costs nothing. */
  back(): void {
    this.holder = undefined;
    this.ref.callId = 0;
    if (!this.over) this.#again(this);
  }
}
