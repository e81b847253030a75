// An actor as one of its callers sees it: where it is, calls that wait for an address, calls whose answer was lost with its worker.
import { performance } from 'node:perf_hooks';
import {
  ActorBusyError,
  ActorDiedError,
  ActorFailedError,
  CallAbortedError,
  CallTimeoutError,
  type Death,
  RuntimeFailure,
} from '../api/errors.ts';
import type { CallOptions } from '../api/types.ts';
import type { Place } from '../control/index.ts';
import { Ref } from '../objects/index.ts';
import { decodeError, type Encoded, encodeAlone } from '../wire/index.ts';
import { onAbort } from './abort.ts';
import type { Connection } from './connection.ts';
import { callScope } from './scope.ts';
import { collectRefs, type Session } from './session.ts';

interface WaitingCall {
  ref: Ref;
  args: Encoded;
  /** performance.now() of the deadline; 0: none. */
  expiresAt: number;
  abortable: boolean;
  /** performance.now() of the call. */
  since: number;
}

/** Deadline and abort of one call. */
class Guard {
  #timer: NodeJS.Timeout | undefined;
  readonly #stopWaiting: (() => void)[];

  constructor(ref: Ref, client: ActorClient, remainingMs: number, signals: AbortSignal[]) {
    if (remainingMs > 0) {
      this.#timer = setTimeout(
        () => client.abandon(ref, new CallTimeoutError(client.describe(ref.method), remainingMs, ref.callId !== 0)),
        remainingMs,
      );
    }
    this.#stopWaiting = signals.map((signal) =>
      onAbort(signal, () => client.abandon(ref, new CallAbortedError(client.describe(ref.method), ref.callId !== 0, signal.reason))),
    );
  }

  settled(): void {
    clearTimeout(this.#timer);
    for (const stop of this.#stopWaiting) stop();
  }
}

export class ActorClient {
  readonly id: number;
  name: string;
  readonly #session: Session;
  #connection: Connection | undefined;
  #incarnation = 0;
  /** Incarnation that a connection is being opened to; 0: none. */
  #opening = 0;
  #resolved = false;
  #waiting: WaitingCall[] = [];
  /** Sent, and the connection ended before the answer: they wait for the agent to say why. */
  #lost: Ref[] = [];
  #place: Place | undefined;
  #watchers: (() => void)[] = [];

  constructor(session: Session, id: number, name: string) {
    this.#session = session;
    this.id = id;
    this.name = name;
  }

  describe(method: string): string {
    return `${this.name}.${method}()`;
  }

  call(method: string, args: unknown[], options: CallOptions | undefined): Ref {
    const ref = new Ref();
    ref.client = this;
    ref.method = method;
    const scope = callScope();
    if (options === undefined && (scope === undefined || (scope.expiresAt === 0 && !scope.abortable))) {
      this.#begin(ref, method, args, 0, false);
      return ref;
    }
    const now = performance.now();
    let expiresAt = scope?.expiresAt ?? 0;
    if (options?.timeoutMs !== undefined)
      expiresAt = expiresAt === 0 ? now + options.timeoutMs : Math.min(expiresAt, now + options.timeoutMs);
    const signals: AbortSignal[] = [];
    if (options?.signal !== undefined) signals.push(options.signal);
    if (scope?.abortable) signals.push(scope.signal);
    const aborted = signals.find((signal) => signal.aborted);
    if (aborted !== undefined) ref.reject(new CallAbortedError(this.describe(method), false, aborted.reason));
    else if (expiresAt > 0 && expiresAt <= now) ref.reject(new CallTimeoutError(this.describe(method), options?.timeoutMs ?? 0, false));
    else {
      ref.guard = new Guard(ref, this, expiresAt > 0 ? Math.max(1, Math.ceil(expiresAt - now)) : 0, signals);
      this.#begin(ref, method, args, expiresAt, true);
    }
    return ref;
  }

  #begin(ref: Ref, method: string, args: unknown[], expiresAt: number, abortable: boolean): void {
    const connection = this.#connection;
    try {
      if (connection !== undefined && this.#waiting.length === 0) {
        if (connection.bytesInFlight > this.#session.maxInFlightBytes) {
          throw new ActorBusyError(
            `${connection.bytesInFlight} bytes of calls to worker ${connection.peer} are unanswered (maxInFlightBytes); ${this.describe(method)} was not sent`,
            { actor: this.name },
          );
        }
        this.#send(connection, ref, method, args, expiresAt, abortable);
        return;
      }
      if (this.#place?.status === 'dead') throw this.#finalError(this.#place);
      const refs: Ref[] = [];
      const outer = collectRefs(refs);
      try {
        this.#waiting.push({ ref, args: encodeAlone(args), expiresAt, abortable, since: performance.now() });
      } finally {
        collectRefs(outer);
      }
      if (refs.length > 0) ref.holds = refs;
    } catch (error) {
      ref.reject(error);
      return;
    }
    this.resolvePlace();
  }

  #send(connection: Connection, ref: Ref, method: string, args: unknown, expiresAt: number, abortable: boolean): void {
    ref.incarnation = this.#incarnation;
    ref.connection = connection;
    const remaining = expiresAt > 0 ? Math.max(1, Math.ceil(expiresAt - performance.now())) : 0;
    connection.call(ref, this.id, this.#incarnation, method, args, remaining, abortable);
    if (Array.isArray(args)) {
      for (let i = 0; i < args.length; i++) {
        if (args[i] instanceof Ref) {
          ref.holds = args.filter((arg) => arg instanceof Ref);
          break;
        }
      }
    }
  }

  /** Calls that were not sent yet, since the actor is not there, oldest first. */
  get unsent(): readonly Readonly<WaitingCall>[] {
    return this.#waiting;
  }

  /** The caller no longer waits: the callee is told, or never hears of it. */
  abandon(ref: Ref, error: Error): void {
    const waiting = this.#waiting.findIndex((call) => call.ref === ref);
    if (waiting >= 0) this.#waiting.splice(waiting, 1);
    else (ref.connection as Connection | undefined)?.abort(ref);
    ref.reject(error);
  }

  /** Asks the agent for the actor's place, once; it tells every change from then on. */
  resolvePlace(): void {
    if (this.#resolved) return;
    this.#resolved = true;
    this.#session.link.send({ t: 'resolve', actor: this.id });
  }

  /** The connection ended before the answer. */
  lose(ref: Ref): void {
    if (this.#place?.death !== undefined && this.#place.death.incarnation >= ref.incarnation) ref.reject(this.#deathOf(ref, this.#place));
    else this.#lost.push(ref);
  }

  connectionClosed(connection: Connection): void {
    if (this.#connection !== connection) return;
    this.#connection = undefined;
    // Usually the worker is gone and the agent will say so; if not, this asks for the way to go on.
    setTimeout(() => {
      if (this.#connection !== undefined || this.#opening !== 0 || this.#session.closed) return;
      this.#resolved = false;
      this.resolvePlace();
    }, 100);
  }

  #deathOf(ref: Ref, place: Place): ActorDiedError {
    const data = place.death!;
    const same = data.incarnation === ref.incarnation;
    const death: Death = same
      ? { ...data, cause: data.cause === undefined ? undefined : decodeError(data.cause) }
      : { incarnation: ref.incarnation, reason: 'exit', lastStderr: [] };
    return new ActorDiedError(this.name, death, true, place.status === 'dead');
  }

  #finalError(place: Place): Error {
    const data = place.death;
    if (data === undefined) return new RuntimeFailure('SINKFLEX_UNKNOWN_ACTOR', `no actor of this run is ${this.name} (number ${this.id})`);
    const death: Death = { ...data, cause: data.cause === undefined ? undefined : decodeError(data.cause) };
    const own = death.reason === 'constructor' || (place.failed && place.restarts > 0);
    return own ? new ActorFailedError(this.name, death, place.restarts) : new ActorDiedError(this.name, death, false, true);
  }

  placed(place: Place): void {
    if (this.#place !== undefined && place.incarnation < this.#place.incarnation) return;
    this.#place = place;
    if (place.name !== '') this.name = place.name;
    if (place.death !== undefined && this.#lost.length > 0) {
      const lost = this.#lost;
      const ended = place.death.incarnation;
      this.#lost = lost.filter((ref) => ref.incarnation > ended);
      for (const ref of lost) if (ref.incarnation <= ended) ref.reject(this.#deathOf(ref, place));
    }
    if (place.status === 'dead') {
      const waiting = this.#waiting;
      this.#waiting = [];
      this.#connection = undefined;
      for (const call of waiting) call.ref.reject(this.#finalError(place));
    } else if (place.status === 'alive' && (this.#connection === undefined || this.#incarnation !== place.incarnation)) {
      this.#open(place);
    } else if (place.status === 'down') {
      this.#connection = undefined;
    }
    const watchers = this.#watchers;
    this.#watchers = [];
    for (const watcher of watchers) watcher();
  }

  #open(place: Place): void {
    const current = (): boolean => this.#place?.status === 'alive' && this.#place.incarnation === place.incarnation;
    const settle = (connection: Connection): void => {
      this.#opening = 0;
      if (!current()) return;
      if (connection.closed) {
        this.#retry(place);
        return;
      }
      this.#incarnation = place.incarnation;
      this.#connection = connection;
      this.#flush(connection);
      // Calls lost on an earlier connection to the very same incarnation cannot be answered any more.
      for (const ref of this.#lost.splice(0)) {
        ref.reject(
          new RuntimeFailure('SINKFLEX_PROTOCOL', `the connection to ${this.name} was lost; the call may have run`, {
            details: { mayHaveRun: true },
          }),
        );
      }
    };
    const open = this.#session.existing(place.worker);
    if (open !== undefined) {
      settle(open);
      return;
    }
    this.#connection = undefined;
    if (this.#opening === place.incarnation) return;
    this.#opening = place.incarnation;
    this.#session.connectionTo(place.worker).then(settle, () => {
      this.#opening = 0;
      // Nobody listens: its worker is going, and the agent will say so.
      if (current()) this.#retry(place);
    });
  }

  #retry(place: Place): void {
    setTimeout(() => {
      const now = this.#place;
      if (now?.status === 'alive' && now.incarnation === place.incarnation && this.#connection === undefined && !this.#session.closed)
        this.#open(now);
    }, 50);
  }

  #flush(connection: Connection): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    const now = performance.now();
    for (const { ref, args, expiresAt, abortable } of waiting) {
      if (expiresAt > 0 && expiresAt <= now) continue; // its timer is about to say so
      const holds = ref.holds;
      try {
        this.#send(connection, ref, ref.method, args, expiresAt, abortable);
      } catch (error) {
        ref.reject(error);
        continue;
      }
      ref.holds = holds;
      if (holds !== undefined) for (const held of holds) this.#session.lend(held, connection.peer);
    }
  }

  /** Resolves when the actor is alive; rejects when it is dead. */
  async ready(timeoutMs: number | undefined): Promise<void> {
    const deadline = new Ref();
    const timer =
      timeoutMs === undefined
        ? undefined
        : setTimeout(() => deadline.reject(new CallTimeoutError(`the constructor of ${this.name}`, timeoutMs, true)), timeoutMs);
    this.resolvePlace();
    const check = (): void => {
      const place = this.#place;
      if (place?.status === 'alive') deadline.resolve(undefined);
      else if (place?.status === 'dead') deadline.reject(this.#finalError(place));
      else this.#watchers.push(check);
    };
    check();
    try {
      await deadline;
    } finally {
      clearTimeout(timer);
    }
  }

  /** The run is over: nothing that waits will be answered. */
  shutDown(error: Error): void {
    for (const { ref } of this.#waiting.splice(0)) ref.reject(error);
    for (const ref of this.#lost.splice(0)) ref.reject(error);
  }
}
