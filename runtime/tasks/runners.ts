// Hidden actors that run one task at a time: processes for tasks that ask for one, and threads or processes for generators. Idle ones are
// kept for a while.
import { kill, spawn, withOptions } from '../api/actors.ts';
import { ActorDiedError, ActorFailedError } from '../api/errors.ts';
import type { ActorHandle, ObjectStream } from '../api/types.ts';
import type { Holder, TaskCall } from './call.ts';
import { TaskRunner } from './runner-actor.ts';
import type { Executor } from './scheduler.ts';

type Runner = ActorHandle<typeof TaskRunner>;
const IDLE_MS = 30_000;

export class Runners implements Executor {
  readonly #isolation: 'thread' | 'process';
  readonly #idle: { runner: Runner; timer: NodeJS.Timeout }[] = [];

  constructor(isolation: 'thread' | 'process') {
    this.#isolation = isolation;
  }

  #take(): Runner {
    const idle = this.#idle.pop();
    if (idle === undefined)
      return spawn(TaskRunner, { isolation: this.#isolation, maxRestarts: Number.POSITIVE_INFINITY, restartBackoffMs: 0 });
    clearTimeout(idle.timer);
    return idle.runner;
  }

  #give(runner: Runner): void {
    const timer = setTimeout(() => {
      const at = this.#idle.findIndex((idle) => idle.runner === runner);
      if (at >= 0) this.#idle.splice(at, 1);
      end(runner);
    }, IDLE_MS);
    timer.unref();
    this.#idle.push({ runner, timer });
  }

  async run([call]: TaskCall[]): Promise<void> {
    const { id, name, module } = call!.task;
    const runner = this.#take();
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
    if (!held.killed) this.#give(runner);
    if (error instanceof ActorDiedError || error instanceof ActorFailedError) {
      if (error.details?.mayHaveRun === false && error instanceof ActorDiedError) call!.back();
      else call!.lost(error);
    } else call!.threw(error as Error);
  }

  /** The items of a generator; `over` is called once, when the runner is free again. */
  stream(call: TaskCall, over: () => void): { stream: ObjectStream<unknown>; over: () => void } {
    const { id, name, module } = call.task;
    const runner = this.#take();
    const { signal, timeoutMs } = call.options;
    const options = { ...(signal === undefined ? {} : { signal }), ...(timeoutMs === undefined ? {} : { timeoutMs }) };
    const stream = withOptions(runner, options).stream({ id, name, module }, call.attempt, ...call.args);
    let done = false;
    return {
      stream: stream as ObjectStream<unknown>,
      over: () => {
        if (done) return;
        done = true;
        this.#give(runner);
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
