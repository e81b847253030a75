// One incarnation of an actor inside its worker: mailbox, execution, end. Calls of one caller to one concurrency group start in the order
// in which they were made; up to the group's maxConcurrency may be under way at once.
import { performance } from 'node:perf_hooks';
import { ActorBusyError, ActorDiedError, CallAbortedError, type Death, RuntimeFailure } from '../api/errors.ts';
import type { ActorSpec, EncodedValue, StopMode } from '../control/index.ts';
import { Ref } from '../objects/index.ts';
import { Answered } from './answered.ts';
import { Arrivals } from './arrivals.ts';
import type { Connection } from './connection.ts';
import { type ActorCounts, checkBlocked, currentRecorder, type MethodCounts } from './counters.ts';
import { bringUp, Checkpoints, runHook, within } from './hooks.ts';
import { ActorScope, CallScope, type InboundCall } from './inbound-call.ts';
import { Lane } from './lane.ts';
import { enter, insideSome, leave, runInside, type Scope, type ScopeActor } from './scope.ts';
import { letGo } from './session.ts';

type Function = (this: unknown, ...args: unknown[]) => unknown;

/** A method of this actor, from its first call on. */
interface Method extends MethodCounts {
  run: Function;
}

export class ActorHost implements ScopeActor {
  readonly spec: ActorSpec;
  readonly incarnation: number;
  readonly gpuIds: readonly number[];
  readonly scope: Scope = new ActorScope(this);
  #instance: object | undefined;
  #methods: Map<string, Method> | undefined;
  readonly #lane: Lane;
  /** By name; only for actors that declare groups. */
  readonly #groups: Map<string, Lane> | undefined;
  #answered: Answered | undefined;
  #running: Set<InboundCall> | undefined;
  readonly #arrivals = new Arrivals(this, (call, lane) => {
    this.#enqueue(call, lane);
    if (this.#ending !== undefined) this.#checkIdle();
  });
  #ending: Death | undefined;
  /** Ending, and what was accepted is still finished. */
  #draining = false;
  #stopped: AbortController | undefined;
  #checkpoints: Checkpoints | undefined;
  /** Calls need an asynchronous scope: several actors share the worker. */
  readonly shared: boolean;
  #idle: (() => void) | undefined;

  constructor(spec: ActorSpec, incarnation: number, gpuIds: readonly number[]) {
    this.spec = spec;
    this.gpuIds = gpuIds;
    this.incarnation = incarnation;
    this.shared = spec.isolation === 'shared';
    this.#lane = new Lane('', spec.maxConcurrency);
    for (const name in spec.concurrencyGroups) {
      this.#groups ??= new Map();
      this.#groups.set(name, new Lane(name, spec.concurrencyGroups[name]!.maxConcurrency));
    }
  }

  get id(): number {
    return this.spec.actor;
  }
  get name(): string {
    return this.spec.name;
  }
  get kind(): string {
    return this.spec.kind;
  }
  get threads(): number {
    return this.spec.threads;
  }
  get methods(): readonly string[] {
    return this.spec.methods;
  }
  get streams(): readonly string[] {
    return this.spec.streams;
  }
  /** Answers to calls that may be made again. */
  get answered(): Answered {
    this.#answered ??= new Answered();
    return this.#answered;
  }
  callerLost(caller: number, gone: () => boolean): void {
    this.#answered?.callerLost(caller, gone);
  }
  /** Calls are under way. */
  get busy(): boolean {
    return this.#running !== undefined && this.#running.size > 0;
  }
  /** Aborts when the incarnation is stopped. */
  get stopSignal(): AbortSignal {
    if (this.#stopped === undefined) {
      this.#stopped = new AbortController();
      if (this.#ending !== undefined && !this.#draining) this.#abort();
    }
    return this.#stopped.signal;
  }

  /** For those who look: calls under way, and calls that wait in the mailbox, oldest first. */
  get running(): Iterable<InboundCall> {
    return this.#running ?? [];
  }
  get runningCount(): number {
    return this.#running?.size ?? 0;
  }
  *queued(): IterableIterator<InboundCall> {
    yield* this.#lane;
    if (this.#groups !== undefined) for (const lane of this.#groups.values()) yield* lane;
  }
  /** Some call has begun, ever. */
  get hasRun(): boolean {
    return this.#methods !== undefined;
  }
  /** Calls whose refs are still being fetched included. */
  get queuedCount(): number {
    let waiting = this.#arrivals.held + this.#lane.waiting;
    if (this.#groups !== undefined) for (const lane of this.#groups.values()) waiting += lane.waiting;
    return waiting;
  }

  #abort(): void {
    this.#stopped?.abort(new RuntimeFailure('SINKFLEX_SHUT_DOWN', `actor ${this.name} is being stopped`));
  }

  /** Runs the constructor, restore() and start(); rejects with what they throw. `keep` takes checkpoints. */
  async start(
    type: new (...args: unknown[]) => object,
    args: unknown[],
    checkpoint?: EncodedValue,
    keep?: (state: EncodedValue) => void,
  ): Promise<void> {
    await runInside(this.scope, async () => {
      const values = args.length === 0 ? args : await Promise.all(args.map((arg) => (arg instanceof Ref ? arg.promise() : arg)));
      const instance = await bringUp(type, values, checkpoint);
      if (keep !== undefined && Checkpoints.wanted(instance))
        this.#checkpoints = new Checkpoints(this, instance, this.spec.checkpointIntervalMs, keep);
      if (this.#ending === undefined) this.#instance = instance;
      else await runHook(this, instance, 'stop', 1000); // killed meanwhile
    });
    this.#nextOfAll();
  }

  /** An instance of the runtime's own in place of start(): asynchronous context, once used, costs every promise of the process. */
  adopt(instance: object): void {
    this.#instance = instance;
    this.#nextOfAll();
  }

  /** Saves the state now. */
  checkpoint(): Promise<void> {
    if (this.#checkpoints !== undefined) return this.#checkpoints.save();
    return Promise.reject(
      new RuntimeFailure(
        'SINKFLEX_UNKNOWN_METHOD',
        `actor ${this.name} (${this.kind}) has no checkpoint(), or is still in its constructor`,
      ),
    );
  }

  // --- arrival

  /** A call arrived. Its place in the caller's order is the order of these calls. */
  deliver(call: InboundCall): void {
    if (this.#ending !== undefined) {
      letGo(call.args);
      call.fail(new ActorDiedError(this.name, this.#ending, false));
      return;
    }
    const lane = this.#laneOf(call);
    if (lane === undefined) {
      letGo(call.args);
      call.fail(
        new RuntimeFailure(
          'SINKFLEX_BAD_OPTION',
          `actor ${this.name} (${this.kind}) has no concurrency group ${JSON.stringify(call.group)}`,
        ),
      );
      return;
    }
    call.lane = lane;
    this.#arrivals.add(call, lane);
  }

  #laneOf(call: InboundCall): Lane | undefined {
    if (call.group !== '') return this.#groups?.get(call.group);
    if (this.#groups === undefined) return this.#lane;
    const { concurrencyGroups } = this.spec;
    for (const [name, lane] of this.#groups) if (concurrencyGroups[name]!.methods.includes(call.method)) return lane;
    return this.#lane;
  }

  /** The caller no longer waits for a call that it did not mark as abortable: if it has not started, it never will. */
  abandon(connection: Connection, number: number): void {
    for (const call of this.queued()) if (call.connection === connection && call.call === number) call.abort();
    for (const calls of connection.held.values()) for (const call of calls) if (call.call === number) call.abort();
  }

  #enqueue(call: InboundCall, lane: Lane): void {
    if (this.#ending !== undefined && !this.#draining) {
      call.fail(new ActorDiedError(this.name, this.#ending, false));
    } else if (this.#instance !== undefined && lane.running < lane.maxConcurrency && lane.waiting === 0) {
      this.#run(call, lane);
    } else if (this.spec.onFull === 'reject' && lane.waiting >= this.spec.maxPending) {
      call.fail(
        new ActorBusyError(`the mailbox of actor ${this.name} is full (maxPending ${this.spec.maxPending}); ${call.method}() did not run`, {
          actor: this.name,
          maxPending: this.spec.maxPending,
        }),
      );
    } else {
      lane.push(call);
    }
  }

  #nextOfAll(): void {
    this.#next(this.#lane);
    if (this.#groups !== undefined) for (const lane of this.#groups.values()) this.#next(lane);
  }

  #next(lane: Lane): void {
    if (this.#instance === undefined) return;
    for (let call = lane.take(); call !== undefined; call = lane.take()) this.#run(call, lane);
  }

  // --- execution

  #method(name: string): Method | undefined {
    const known = this.#methods?.get(name);
    if (known !== undefined) return known;
    const run = this.spec.methods.includes(name) ? (this.#instance as Record<string, unknown>)[name] : undefined;
    if (typeof run !== 'function') return undefined;
    const method: Method = { run: run as Function, started: 0, finished: 0, failed: 0 };
    this.#methods ??= new Map();
    this.#methods.set(name, method);
    return method;
  }

  #run(call: InboundCall, lane: Lane): void {
    if (call.connection.closed) {
      if (call.key !== 0) this.answered.dropped(call);
      return; // nobody waits for it any more
    }
    if (call.failure !== undefined) {
      call.fail(call.failure);
      return;
    }
    if (call.aborted || (call.expiresAt > 0 && performance.now() >= call.expiresAt)) {
      call.fail(new CallAbortedError(`${this.name}.${call.method}()`, false));
      return;
    }
    const method = this.#method(call.method);
    if (method === undefined) {
      call.fail(
        new RuntimeFailure(
          'SINKFLEX_UNKNOWN_METHOD',
          `actor ${this.name} (${this.kind}) has no method ${JSON.stringify(call.method.slice(0, 100))}`,
        ),
      );
      return;
    }
    method.started++;
    if (this.#checkpoints !== undefined) this.#checkpoints.dirty = true;
    if (currentRecorder() !== undefined) call.startedAt = performance.now();
    const began = Date.now();
    let result: unknown;
    try {
      result = this.#apply(call, method.run);
    } catch (error) {
      this.#finish(call, method, error, false);
      return;
    } finally {
      checkBlocked(this.kind, call.method, Date.now() - began);
    }
    if (typeof (result as PromiseLike<unknown> | undefined)?.then !== 'function') {
      this.#finish(call, method, result, true);
      return;
    }
    if (call.startedAt === 0) call.startedAt = performance.now();
    lane.running++;
    this.#running ??= new Set();
    this.#running.add(call);
    (result as PromiseLike<unknown>).then(
      (value) => this.#done(call, method, lane, value, true),
      (error) => this.#done(call, method, lane, error, false),
    );
  }

  #apply(call: InboundCall, run: Function): unknown {
    if (this.shared || call.abortable || call.expiresAt > 0 || insideSome()) {
      const scope = new CallScope(call);
      call.scope = scope;
      return runInside(scope, () => {
        const value = run.apply(this.#instance, call.args);
        return call.stream === undefined ? value : call.stream.run(value, scope.signal, (item) => call.connection.item(call.call, item));
      });
    }
    const outer = enter(this.scope);
    try {
      return run.apply(this.#instance, call.args);
    } finally {
      leave(outer);
    }
  }

  #finish(call: InboundCall, method: Method, outcome: unknown, ok: boolean): void {
    if (ok) {
      method.finished++;
      call.answer(outcome);
    } else {
      method.failed++;
      call.fail(outcome);
    }
    const recorder = currentRecorder();
    if (recorder !== undefined && call.startedAt > 0) {
      recorder({
        actor: this.id,
        name: this.name,
        incarnation: this.incarnation,
        method: call.method,
        caller: call.connection.peer,
        call: call.call,
        receivedAt: call.receivedAt,
        startedAt: call.startedAt,
        durationMs: performance.now() - call.startedAt,
        ok,
      });
    }
  }

  #done(call: InboundCall, method: Method, lane: Lane, outcome: unknown, ok: boolean): void {
    if (!this.#running!.delete(call)) return; // answered when the actor was stopped
    lane.running--;
    // A stream that was cut short by the end of its actor says so.
    const cut = !ok && this.#ending !== undefined && outcome === this.#stopped?.signal.reason;
    this.#finish(call, method, cut ? new ActorDiedError(this.name, this.#ending!, true) : outcome, ok);
    this.#next(lane);
    if (this.#checkpoints !== undefined && !this.busy) this.#checkpoints.idle();
    if (this.#ending !== undefined) this.#checkIdle();
  }

  counts(): ActorCounts {
    const methods: Record<string, MethodCounts> = {};
    for (const [name, { started, finished, failed }] of this.#methods ?? []) methods[name] = { started, finished, failed };
    const { id: actor, name, kind, incarnation } = this;
    return { actor, name, kind, incarnation, mailbox: this.queuedCount, running: this.runningCount, methods };
  }

  // --- end

  #checkIdle(): void {
    if (!this.busy && (!this.#draining || this.queuedCount === 0)) this.#idle?.();
  }

  /** Calls under way have ended; while draining, those that wait as well. */
  #untilIdle(ms: number): Promise<void> {
    if (!this.busy && (!this.#draining || this.queuedCount === 0)) return Promise.resolve();
    return within(ms, new Promise<void>((resolve) => (this.#idle = resolve)));
  }

  #refuseWaiting(death: Death): void {
    for (const lane of [this.#lane, ...(this.#groups?.values() ?? [])])
      for (const call of lane.takeAll()) call.fail(new ActorDiedError(this.name, death, false));
  }

  /**
   * Ends the incarnation. Waiting calls are refused, calls under way get their signal aborted and half of the time to end, stop() gets the
   * rest; with `drain` what was accepted gets that half to finish first. Never throws and never takes longer than about the grace.
   */
  async stop(graceMs: number, mode: StopMode): Promise<void> {
    if (this.#ending !== undefined) return;
    const death: Death = { incarnation: this.incarnation, reason: mode === 'shutdown' ? 'shutdown' : 'killed', lastStderr: [] };
    this.#draining = mode === 'drain' && this.#instance !== undefined;
    this.#ending = death;
    if (!this.#draining) {
      this.#refuseWaiting(death);
      this.#abort();
    }
    const drained = mode === 'kill' ? undefined : runHook(this, this.#instance, 'drain', graceMs / 2);
    await Promise.all([drained, this.#untilIdle(graceMs / 2)]);
    if (this.#draining) {
      this.#draining = false;
      this.#refuseWaiting(death);
      if (this.#checkpoints !== undefined)
        await within(graceMs / 4, this.#checkpoints.save()).catch((error) =>
          process.stderr.write(`checkpoint() of actor ${this.name} failed: ${(error as Error).stack ?? String(error)}\n`),
        );
      this.#abort();
    }
    this.#checkpoints?.close();
    await runHook(this, this.#instance, 'stop', graceMs / (mode === 'drain' ? 4 : 2));
    if (this.#running !== undefined) {
      for (const call of this.#running) call.fail(new ActorDiedError(this.name, death, true));
      this.#running.clear();
    }
    this.#instance = undefined;
  }
}
