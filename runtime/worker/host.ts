// One incarnation of an actor inside its worker: mailbox, execution, end. Calls of one caller start in the order in which they were
// made; up to maxConcurrency may be under way at once.
import { performance } from 'node:perf_hooks';
import { ActorBusyError, ActorDiedError, CallAbortedError, type Death, RuntimeFailure } from '../api/errors.ts';
import type { ActorSpec } from '../control/index.ts';
import { FAILED, PENDING, RELEASED, Ref } from '../objects/index.ts';
import type { Connection } from './connection.ts';
import { enter, insideSome, leave, runInside, type Scope, type ScopeActor } from './scope.ts';

type Method = (this: unknown, ...args: unknown[]) => unknown;
interface Instance {
  start?: () => unknown;
  stop?: () => unknown;
}

/** A call that an actor owes an answer. */
export class Task {
  readonly host: ActorHost;
  readonly connection: Connection;
  readonly call: number;
  readonly method: string;
  readonly args: unknown[];
  /** performance.now() of the deadline; 0: none. */
  readonly expiresAt: number;
  /** performance.now() of its arrival, and of its start if it is asynchronous; 0: not started. */
  readonly receivedAt: number;
  startedAt = 0;
  /** Refs among the arguments that have not arrived. */
  waiting = 0;
  failure: unknown = undefined;
  #controller: AbortController | undefined;
  readonly abortable: boolean;
  aborted = false;
  scope: Scope | undefined = undefined;

  constructor(
    host: ActorHost,
    connection: Connection,
    call: number,
    method: string,
    args: unknown[],
    expiresAt: number,
    abortable: boolean,
  ) {
    this.host = host;
    this.connection = connection;
    this.call = call;
    this.method = method;
    this.args = args;
    this.expiresAt = expiresAt;
    this.abortable = abortable;
    this.receivedAt = connection.channel.receivedAt;
    if (abortable) connection.inbound.set(call, this);
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.aborted) this.#controller.abort();
    return this.#controller.signal;
  }

  abort(): void {
    this.aborted = true;
    this.#controller?.abort(new CallAbortedError(`${this.host.spec.name}.${this.method}()`, true));
  }

  answer(value: unknown): void {
    if (this.scope !== undefined) this.scope.over = true;
    if (this.abortable) this.connection.inbound.delete(this.call);
    this.connection.answer(this.call, value);
  }

  fail(error: unknown): void {
    if (this.scope !== undefined) this.scope.over = true;
    if (this.abortable) this.connection.inbound.delete(this.call);
    this.connection.fail(this.call, error);
  }
}

export class ActorHost implements ScopeActor {
  readonly spec: ActorSpec;
  readonly incarnation: number;
  #instance: object | undefined;
  readonly #methods = new Map<string, Method>();
  readonly #queue: Task[] = [];
  #head = 0;
  readonly #running = new Set<Task>();
  #ending: Death | undefined;
  readonly #stopped = new AbortController();
  readonly #scope: Scope;
  /** Calls need an asynchronous scope: several actors share the worker. */
  readonly #shared: boolean;
  #idle: (() => void) | undefined;

  constructor(spec: ActorSpec, incarnation: number) {
    this.spec = spec;
    this.incarnation = incarnation;
    this.#shared = spec.isolation === 'shared';
    this.#scope = { actor: this, expiresAt: 0, signal: this.#stopped.signal, abortable: false, over: false };
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
  get scope(): Scope {
    return this.#scope;
  }

  /** For those who look: calls under way, and calls that wait in the mailbox, oldest first. */
  get running(): Iterable<Task> {
    return this.#running;
  }
  get runningCount(): number {
    return this.#running.size;
  }
  *queued(): IterableIterator<Task> {
    for (let i = this.#head; i < this.#queue.length; i++) yield this.#queue[i]!;
  }
  get queuedCount(): number {
    return this.#queue.length - this.#head;
  }

  /** Runs the constructor and start(); rejects with what they throw. */
  async start(type: new (...args: unknown[]) => object, args: unknown[]): Promise<void> {
    await runInside(this.#scope, async () => {
      const values = await Promise.all(args.map((arg) => (arg instanceof Ref ? arg.promise() : arg)));
      const instance = new type(...values);
      for (const name of this.spec.methods) {
        const method = (instance as Record<string, unknown>)[name];
        if (typeof method === 'function') this.#methods.set(name, method as Method);
      }
      await (instance as Instance).start?.();
      if (this.#ending === undefined) this.#instance = instance;
      else await (instance as Instance).stop?.(); // killed meanwhile
    });
    this.#next();
  }

  /** A call arrived. Its place in the caller's order is the order of these calls. */
  deliver(task: Task): void {
    if (this.#ending !== undefined) {
      task.fail(new ActorDiedError(this.name, this.#ending, false));
      return;
    }
    const held = task.connection.held.get(this.id);
    let refs = 0;
    for (let i = 0; i < task.args.length; i++) if (task.args[i] instanceof Ref) refs++;
    if (refs > 0) this.#fetch(task, refs);
    if (held !== undefined) held.push(task);
    else if (task.waiting > 0) task.connection.held.set(this.id, [task]);
    else this.#enqueue(task);
  }

  #fetch(task: Task, refs: number): void {
    task.waiting = refs;
    const arrived = (ref: Ref, index: number): void => {
      if (ref.state === FAILED) task.failure ??= ref.value;
      else if (ref.state === RELEASED)
        task.failure ??= new RuntimeFailure('SINKFLEX_OBJECT_RELEASED', `argument ${index} of ${this.name}.${task.method}() was released`);
      else task.args[index] = ref.read();
      if (ref.borrowed !== undefined) ref.release();
      task.waiting--;
      if (task.waiting === 0) this.#unhold(task.connection);
    };
    for (let i = 0; i < task.args.length; i++) {
      const arg = task.args[i];
      if (!(arg instanceof Ref)) continue;
      // Never settles within this loop's deliver(): order is decided first.
      if (arg.state === PENDING) arg.whenSettled((ref) => arrived(ref, i));
      else queueMicrotask(() => arrived(arg, i));
    }
  }

  #unhold(connection: Connection): void {
    const held = connection.held.get(this.id);
    if (held === undefined) return;
    let ready = 0;
    while (ready < held.length && held[ready]!.waiting === 0) ready++;
    const tasks = held.splice(0, ready);
    if (held.length === 0) connection.held.delete(this.id);
    for (const task of tasks) this.#enqueue(task);
  }

  #enqueue(task: Task): void {
    if (this.#ending !== undefined) {
      task.fail(new ActorDiedError(this.name, this.#ending, false));
    } else if (this.#instance !== undefined && this.#head === this.#queue.length && this.#running.size < this.spec.maxConcurrency) {
      this.#run(task);
    } else if (this.spec.onFull === 'reject' && this.#queue.length - this.#head >= this.spec.maxPending) {
      task.fail(
        new ActorBusyError(`the mailbox of actor ${this.name} is full (maxPending ${this.spec.maxPending}); ${task.method}() did not run`, {
          actor: this.name,
          maxPending: this.spec.maxPending,
        }),
      );
    } else {
      this.#queue.push(task);
    }
  }

  #next(): void {
    while (this.#instance !== undefined && this.#running.size < this.spec.maxConcurrency && this.#head < this.#queue.length) {
      const task = this.#queue[this.#head]!;
      this.#head++;
      if (this.#head === this.#queue.length) {
        this.#queue.length = 0;
        this.#head = 0;
      } else if (this.#head >= 1024 && this.#head * 2 > this.#queue.length) {
        this.#queue.splice(0, this.#head);
        this.#head = 0;
      }
      this.#run(task);
    }
  }

  #run(task: Task): void {
    if (task.connection.closed) return; // nobody waits for it any more
    if (task.failure !== undefined) {
      task.fail(task.failure);
      return;
    }
    if (task.aborted || (task.expiresAt > 0 && performance.now() >= task.expiresAt)) {
      task.fail(new CallAbortedError(`${this.name}.${task.method}()`, false));
      return;
    }
    const method = this.#methods.get(task.method);
    if (method === undefined) {
      task.fail(
        new RuntimeFailure(
          'SINKFLEX_UNKNOWN_METHOD',
          `actor ${this.name} (${this.kind}) has no method ${JSON.stringify(task.method.slice(0, 100))}`,
        ),
      );
      return;
    }
    let result: unknown;
    try {
      if (this.#shared || task.abortable || task.expiresAt > 0 || insideSome()) {
        const scope: Scope = {
          actor: this,
          expiresAt: task.expiresAt,
          signal: task.abortable ? AbortSignal.any([task.signal, this.#stopped.signal]) : this.#stopped.signal,
          abortable: task.abortable,
          over: false,
        };
        task.scope = scope;
        result = runInside(scope, () => method.apply(this.#instance, task.args));
      } else {
        const outer = enter(this.#scope);
        try {
          result = method.apply(this.#instance, task.args);
        } finally {
          leave(outer);
        }
      }
    } catch (error) {
      task.fail(error);
      return;
    }
    if (typeof (result as PromiseLike<unknown> | undefined)?.then !== 'function') {
      task.answer(result);
      return;
    }
    task.startedAt = performance.now();
    this.#running.add(task);
    (result as PromiseLike<unknown>).then(
      (value) => this.#done(task, value, true),
      (error) => this.#done(task, error, false),
    );
  }

  #done(task: Task, outcome: unknown, ok: boolean): void {
    if (!this.#running.delete(task)) return; // answered when the actor was stopped
    if (ok) task.answer(outcome);
    else task.fail(outcome);
    if (this.#ending !== undefined) {
      if (this.#running.size === 0) this.#idle?.();
    } else this.#next();
  }

  /**
   * Ends the incarnation: waiting calls are refused, calls under way get their signal aborted and half of the time to end, stop() gets
   * the rest. Never throws and never takes longer.
   */
  async stop(graceMs: number, reason: Death['reason']): Promise<void> {
    if (this.#ending !== undefined) return;
    const death: Death = { incarnation: this.incarnation, reason, lastStderr: [] };
    this.#ending = death;
    const waiting = this.#queue.splice(0).slice(this.#head);
    this.#head = 0;
    for (const task of waiting) task.fail(new ActorDiedError(this.name, death, false));
    this.#stopped.abort(new RuntimeFailure('SINKFLEX_SHUT_DOWN', `actor ${this.name} is being stopped`));
    if (this.#running.size > 0) await within(graceMs / 2, new Promise<void>((resolve) => (this.#idle = resolve)));
    const instance = this.#instance as Instance | undefined;
    if (instance?.stop !== undefined) {
      await within(graceMs / 2, (async () => runInside(this.#scope, () => instance.stop?.()))()).catch((error) => {
        process.stderr.write(`stop() of actor ${this.name} failed: ${(error as Error).stack ?? String(error)}\n`);
      });
    }
    for (const task of this.#running) task.fail(new ActorDiedError(this.name, death, true));
    this.#running.clear();
    this.#instance = undefined;
  }
}

async function within(ms: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)));
  try {
    await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
