// Hidden actors that run one task at a time: processes for tasks that ask for one or that the head places, and threads or processes for
// generators. A call takes the first that is free, be it a new one or one that another call has done with; idle ones are kept for a while.
import { kill, spawn, withOptions } from '../api/actors.ts';
import { ActorDiedError, ActorFailedError } from '../api/errors.ts';
import type { ActorHandle, ObjectStream, SpawnOptions } from '../api/types.ts';
import type { Holder, TaskCall } from './call.ts';
import { TaskRunner } from './runner-actor.ts';
import type { Executor } from './scheduler.ts';

type Runner = ActorHandle<typeof TaskRunner>;
const IDLE_MS = 30_000;

/** A call that waits for a runner. */
interface Waiter {
  take(runner: Runner): void;
  fail(error: unknown): void;
}

export class Runners implements Executor {
  readonly #options: SpawnOptions<[]>;
  readonly #idleMs: number;
  readonly #onEmpty: () => void;
  readonly #idle: { runner: Runner; timer: NodeJS.Timeout }[] = [];
  #busy = 0;
  #waiters: Waiter[] = [];
  /** Not there yet: one for each call that waits. */
  readonly #coming = new Set<Runner>();

  /** `onEmpty`: none is left. */
  constructor(options: SpawnOptions<[]>, idleMs = IDLE_MS, onEmpty: () => void = () => {}) {
    this.#options = options;
    this.#idleMs = idleMs;
    this.#onEmpty = onEmpty;
  }

  /** Undefined when the caller of the task gave up meanwhile. */
  async #take(call: TaskCall): Promise<Runner | undefined> {
    const runner = await this.#next(call);
    if (runner === undefined || !call.over) return runner;
    this.#give(runner);
    return undefined;
  }

  #next(call: TaskCall): Runner | Promise<Runner | undefined> {
    const idle = this.#idle.pop();
    if (idle !== undefined) {
      clearTimeout(idle.timer);
      this.#busy++;
      return idle.runner;
    }
    return new Promise((resolve, reject) => {
      const waiter: Waiter = { take: resolve, fail: reject };
      this.#waiters.push(waiter);
      call.holder = {
        abandoned: () => {
          this.#waiters = this.#waiters.filter((each) => each !== waiter);
          this.#callOff();
          resolve(undefined);
        },
      };
      this.#start();
    });
  }

  #start(): void {
    const runner = spawn(TaskRunner, { maxRestarts: Number.POSITIVE_INFINITY, restartBackoffMs: 0, ...this.#options });
    this.#coming.add(runner);
    runner.idle().then(
      () => {
        if (this.#coming.delete(runner)) this.#offer(runner);
      },
      (error: unknown) => {
        if (!this.#coming.delete(runner)) return;
        end(runner);
        this.#waiters.shift()?.fail(error);
        this.#left();
      },
    );
  }

  /** What no call waits for any more need not come. */
  #callOff(): void {
    for (const runner of [...this.#coming].reverse()) {
      if (this.#coming.size <= this.#waiters.length) break;
      this.#coming.delete(runner);
      end(runner);
    }
    this.#left();
  }

  #offer(runner: Runner): void {
    const waiter = this.#waiters.shift();
    if (waiter !== undefined) {
      this.#busy++;
      waiter.take(runner);
      this.#callOff();
      return;
    }
    const timer = setTimeout(() => {
      const at = this.#idle.findIndex((idle) => idle.runner === runner);
      if (at >= 0) this.#idle.splice(at, 1);
      end(runner);
      this.#left();
    }, this.#idleMs);
    timer.unref();
    this.#idle.push({ runner, timer });
  }

  /** A call has done with it. */
  #give(runner: Runner, usable = true): void {
    this.#busy--;
    if (usable) this.#offer(runner);
    else this.#left();
  }

  #left(): void {
    if (this.#busy + this.#idle.length + this.#coming.size === 0) this.#onEmpty();
  }

  async run([call]: TaskCall[]): Promise<void> {
    const { id, name, module } = call!.task;
    let runner: Runner | undefined;
    try {
      runner = await this.#take(call!);
    } catch (error) {
      call!.lost(error); // there is no place for it to be in
      return;
    }
    if (runner === undefined) return;
    const held = new Held(runner);
    call!.sentTo(held);
    // The deadline is the call's own: when it passes, it aborts this.
    const bound = withOptions(runner, { signal: held.signal });
    let error: unknown;
    call!.begun();
    const answer = bound.run({ id, name, module }, call!.attempt, ...call!.args);
    try {
      const value = await answer;
      held.over();
      this.#give(runner);
      call!.succeeded(value);
      return;
    } catch (caught) {
      error = caught;
    }
    // An abandoned one is still running: its runner is free when it has ended, or is gone.
    if (held.aborted) await held.ended();
    held.over();
    const gone = error instanceof ActorDiedError && error.details?.final === true;
    this.#give(runner, !held.killed && !gone);
    if (error instanceof ActorDiedError || error instanceof ActorFailedError) {
      if (error.details?.mayHaveRun === false && error instanceof ActorDiedError) call!.back();
      else call!.lost(error);
    } else call!.threw(error as Error);
  }

  /** The items of a generator; `over` is called once, when the runner is free again. */
  async stream(call: TaskCall, over: () => void): Promise<{ stream: ObjectStream<unknown>; over: () => void }> {
    const { id, name, module } = call.task;
    let runner: Runner | undefined;
    try {
      runner = await this.#take(call);
    } catch (error) {
      over();
      throw error;
    }
    if (runner === undefined) {
      over();
      throw call.ref.value;
    }
    const taken = runner;
    const { signal, timeoutMs } = call.options;
    const options = { ...(signal === undefined ? {} : { signal }), ...(timeoutMs === undefined ? {} : { timeoutMs }) };
    const stream = withOptions(taken, options).stream({ id, name, module }, call.attempt, ...call.args);
    let done = false;
    return {
      stream: stream as ObjectStream<unknown>,
      over: () => {
        if (done) return;
        done = true;
        this.#give(taken);
        over();
      },
    };
  }

  close(): void {
    for (const { timer } of this.#idle.splice(0)) clearTimeout(timer);
  }
}

function end(runner: Runner): void {
  kill(runner).catch(() => {});
}

/** A call that runs in a runner. */
class Held implements Holder {
  readonly #runner: Runner;
  readonly #controller = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  killed = false;

  constructor(runner: Runner) {
    this.#runner = runner;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }
  get aborted(): boolean {
    return this.#controller.signal.aborted;
  }

  abandoned(call: TaskCall): void {
    this.#timer = setTimeout(() => {
      this.killed = true;
      end(this.#runner);
    }, call.options.cancelGraceMs);
    this.#timer.unref();
    this.#controller.abort();
  }

  /** Calls of one caller run one after the other: an answer to the next says that the task has ended. */
  async ended(): Promise<void> {
    await this.#runner.idle().catch(() => {});
  }

  over(): void {
    clearTimeout(this.#timer);
  }
}
