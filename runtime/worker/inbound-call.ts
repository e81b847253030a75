// A call that an actor of this worker owes an answer, and the scope in which it runs.
import { CallAbortedError } from '../api/errors.ts';
import type { Connection } from './connection.ts';
import type { ActorHost } from './host.ts';
import type { Lane } from './lane.ts';
import type { Scope } from './scope.ts';
import type { OutgoingStream } from './stream.ts';

export class InboundCall {
  readonly host: ActorHost;
  /** Where the answer goes; another one when the caller asks again. */
  connection: Connection;
  call: number;
  readonly method: string;
  readonly args: unknown[];
  /** performance.now() of the deadline; 0: none. */
  readonly expiresAt: number;
  readonly abortable: boolean;
  /** performance.now() of its arrival. */
  readonly receivedAt: number;
  /** performance.now() of its start, if it is asynchronous or a recorder listens; 0: not started. */
  startedAt = 0;
  /** Concurrency group that the caller asked for; '': what the definition says. */
  readonly group: string;
  lane: Lane | undefined = undefined;
  /** Refs among the arguments that have not arrived. */
  waiting = 0;
  failure: unknown = undefined;
  #controller: AbortController | undefined;
  aborted = false;
  scope: Scope | undefined = undefined;
  /** The method is a generator, and this takes its items to the caller. */
  stream: OutgoingStream | undefined = undefined;
  /** Idempotency key; 0: none. */
  key = 0;

  constructor(
    host: ActorHost,
    connection: Connection,
    call: number,
    method: string,
    args: unknown[],
    expiresAt: number,
    abortable: boolean,
    group = '',
  ) {
    this.host = host;
    this.connection = connection;
    this.call = call;
    this.method = method;
    this.args = args;
    this.expiresAt = expiresAt;
    this.abortable = abortable;
    this.group = group;
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

  /** The caller asked again, on another connection. */
  redirect(connection: Connection, call: number): void {
    if (this.abortable) {
      this.connection.inbound.delete(this.call);
      connection.inbound.set(call, this);
    }
    this.connection = connection;
    this.call = call;
  }

  answer(value: unknown): void {
    if (this.scope !== undefined) this.scope.over = true;
    if (this.abortable) this.connection.inbound.delete(this.call);
    this.connection.answer(this.call, this.key === 0 ? value : this.host.answered.keep(this, value));
  }

  fail(error: unknown): void {
    if (this.scope !== undefined) this.scope.over = true;
    if (this.abortable) this.connection.inbound.delete(this.call);
    if (this.key !== 0) this.host.answered.keepError(this, error);
    this.connection.fail(this.call, error);
  }
}

/** Signals are made only for who looks at them: most calls never do, and each costs a kilobyte. */
export class CallScope implements Scope {
  readonly actor: ActorHost;
  readonly expiresAt: number;
  readonly abortable: boolean;
  over = false;
  readonly #call: InboundCall;
  #signal: AbortSignal | undefined;

  constructor(call: InboundCall) {
    this.actor = call.host;
    this.expiresAt = call.expiresAt;
    this.abortable = call.abortable;
    this.#call = call;
  }

  get signal(): AbortSignal {
    this.#signal ??= this.abortable ? AbortSignal.any([this.#call.signal, this.actor.stopSignal]) : this.actor.stopSignal;
    return this.#signal;
  }
}

/** What holds in an actor outside of any call: its constructor, its hooks, its timers. */
export class ActorScope implements Scope {
  readonly actor: ActorHost;
  readonly expiresAt = 0;
  readonly abortable = false;
  over = false;

  constructor(actor: ActorHost) {
    this.actor = actor;
  }

  get signal(): AbortSignal {
    return this.actor.stopSignal;
  }
}
