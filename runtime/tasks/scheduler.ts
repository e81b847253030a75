// Decides which task of this worker runs when: in the order of their calls, as processors become free. Tasks that are known to be quick
// leave in batches, since a thread's wake-up costs more than many of them.

import { performance } from 'node:perf_hooks';
import { RuntimeFailure } from '../api/errors.ts';
import { Admission, UNIT } from './admission.ts';
import type { Holder, TaskCall } from './call.ts';
import { countSent, type SeenTask } from './seen.ts';
import { WaitingCalls } from './waiting-calls.ts';

/** Runs calls of one task under one lease; resolves when the lease is free. Settles the calls. */
export interface Executor {
  run(calls: TaskCall[]): Promise<void>;
}

/** A batch should not last longer. */
const BATCH_MS = 1;
const LARGEST_BATCH = 64;
/** Leases at once, whatever the processors: also the most threads of a pool. */
export const MOST_LEASES = 64;

export class Scheduler implements Holder {
  readonly admission: Admission;
  readonly #threads: Executor;
  readonly #processes: Executor;
  readonly #waiting = new WaitingCalls();
  #leases = 0;
  readonly #reservations = new Map<TaskCall, (over: () => void) => void>();
  /** Sent, and not settled as far as their executor knows: calls of one lease, and when they were sent. */
  readonly #sent = new Map<TaskCall[], number>();
  /** Task -> time of one execution, as measured lately, in ms; Infinity: it is not known to be quick. */
  readonly #meanMs = new Map<string, number>();

  constructor(cpus: number, threads: Executor, processes: Executor) {
    this.admission = new Admission(cpus);
    this.#threads = threads;
    this.#processes = processes;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  submit(call: TaskCall): void {
    if (call.options.cpus > this.admission.total) {
      call.ref.reject(
        new RuntimeFailure(
          'SINKFLEX_BAD_OPTION',
          `task ${call.task.name}() asks for ${call.options.cpus / UNIT} cpus, and this node has ${this.admission.total / UNIT}`,
        ),
      );
      return;
    }
    call.holder = this;
    this.#waiting.push(call);
    this.pump();
  }

  /** A lease for something that is no call of an executor. `then` gets the function that gives it back. */
  reserve(call: TaskCall, then: (over: () => void) => void): void {
    this.#reservations.set(call, then);
    this.submit(call);
    if (call.over) this.#reservations.delete(call);
  }

  /** A task waits for others: what it takes is free for them. One processor is what most have. */
  lend(): void {
    this.admission.give(UNIT);
    this.pump();
  }

  takeBack(): void {
    this.admission.takeBack(UNIT);
  }

  /** Nothing to do: it is passed over when its turn comes. */
  abandoned(): void {}

  pump(): void {
    for (let call = this.#waiting.peek(); call !== undefined; call = this.#waiting.peek()) {
      const { cpus, isolation } = call.options;
      if (this.#leases >= MOST_LEASES || !this.admission.tryTake(cpus)) return;
      this.#leases++;
      let calls: TaskCall[] = [];
      const over = (): void => {
        this.#sent.delete(calls);
        this.#leases--;
        this.admission.give(cpus);
        this.pump();
      };
      const reserved = this.#reservations.get(call);
      if (reserved !== undefined) {
        this.#reservations.delete(call);
        calls = this.#one();
        this.#note(calls);
        reserved(over);
        continue;
      }
      const executor = isolation === 'thread' ? this.#threads : this.#processes;
      calls = isolation === 'thread' ? this.#batch(call) : this.#one();
      this.#note(calls);
      void executor.run(calls).finally(over);
    }
  }

  #note(calls: TaskCall[]): void {
    this.#sent.set(calls, performance.now());
    countSent(calls[0]!.task.name, calls.length);
  }

  /** For those who look: what runs, then what waits, oldest first. */
  *seen(): IterableIterator<SeenTask> {
    const of = (call: TaskCall, sentAt: number): SeenTask => ({
      task: call.task.name,
      running: sentAt > 0,
      since: call.ref.since,
      sentAt,
      expiresAt: call.terms.expiresAt,
    });
    for (const [calls, at] of this.#sent) for (const call of calls) if (!call.over) yield of(call, at);
    for (const call of this.#waiting) if (!call.over) yield of(call, 0);
  }

  #one(): TaskCall[] {
    return [this.#waiting.take()];
  }

  #batch(first: TaskCall): TaskCall[] {
    const { task, options } = first;
    const mean = this.#meanMs.get(task.id) ?? Number.POSITIVE_INFINITY;
    const share = Math.ceil((this.waiting * Math.max(options.cpus, 1)) / this.admission.total);
    const most = Math.max(1, Math.min(LARGEST_BATCH, Math.floor(BATCH_MS / mean), share));
    const calls = this.#one();
    while (calls.length < most) {
      const next = this.#waiting.peek();
      if (
        next?.task !== task ||
        this.#reservations.has(next) ||
        next.options.cpus !== options.cpus ||
        next.options.depth !== options.depth ||
        next.options.isolation !== options.isolation
      )
        break;
      calls.push(...this.#one());
    }
    return calls;
  }

  /** `waited`: it was asynchronous, so how long it takes is not for us to say. */
  measured(task: string, ms: number, waited: boolean): void {
    if (waited) this.#meanMs.set(task, Number.POSITIVE_INFINITY);
    else {
      const before = this.#meanMs.get(task);
      this.#meanMs.set(task, before === undefined || before === Number.POSITIVE_INFINITY ? ms : before * 0.8 + ms * 0.2);
    }
  }
}
