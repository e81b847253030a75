// An actor as one of its callers sees it: where it is, calls that wait for an address or for room in its mailbox, calls whose answer was
// lost with its worker, calls that are made again.
import { performance } from 'node:perf_hooks';
import type { SinkflexError } from '../../kernels/host.ts';
import { ActorBusyError, CallAbortedError, RuntimeFailure } from '../api/errors.ts';
import type { CallOptions } from '../api/types.ts';
import type { Place } from '../control/index.ts';
import { PENDING, Ref } from '../objects/index.ts';
import { Encoded, refuseIterators } from '../wire/index.ts';
import { busy, deathOf, finalError, isDeathOf } from './client-errors.ts';
import type { Connection } from './connection.ts';
import { Keys } from './keys.ts';
import { retryDelayMs } from './retry.ts';
import { callScope } from './scope.ts';
import type { Session } from './session.ts';
import { DEFAULT_WINDOW, IncomingStream, StreamFace } from './stream.ts';
import { Terms } from './terms.ts';
import { untilAlive } from './until-alive.ts';
import { keepArguments, WaitingCalls } from './waiting.ts';

export class ActorClient {
  readonly id: number;
  /** The actor that answers: another one if it lived already (getIfExists). */
  target: number;
  name: string;
  readonly #session: Session;
  #connection: Connection | undefined;
  #incarnation = 0;
  /** Incarnation that a connection is being opened to; 0: none. */
  #opening = 0;
  #resolved = false;
  /** The connection was closed since nobody used it. */
  #idle = false;
  readonly #waiting = new WaitingCalls();
  /** Sent, and the connection ended before the answer: they wait for the agent to say why. */
  #lost: Ref[] = [];
  /** Calls sent and not answered. */
  #inFlight = 0;
  #era = 0;
  /** Those of them that were sent on an earlier connection and may come back to be made again: later calls wait for them, for the order. */
  #before = 0;
  /** How many may be; more wait here, or are refused. */
  #window = Number.POSITIVE_INFINITY;
  #place: Place | undefined;
  readonly #watchers: (() => void)[] = [];
  readonly #listeners = new Set<(place: Place) => void>();
  readonly #keys = new Keys();

  constructor(session: Session, id: number, name: string) {
    this.#session = session;
    this.id = id;
    this.target = id;
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
    if (scope !== undefined) ref.caller = scope.actor;
    if (options === undefined && (scope === undefined || (scope.expiresAt === 0 && !scope.abortable))) this.#begin(ref, args, undefined);
    else this.#beginOn(new Terms(), ref, args, options, scope);
    return ref;
  }

  /** A call of a streaming method. */
  stream(method: string, args: unknown[], options: CallOptions | undefined): StreamFace {
    const ref = new Ref();
    ref.client = this;
    ref.method = method;
    const terms = new Terms();
    terms.stream = new IncomingStream(ref, options?.streamWindow ?? DEFAULT_WINDOW, this);
    this.#beginOn(terms, ref, args, options, callScope());
    return new StreamFace(terms.stream);
  }

  #beginOn(terms: Terms, ref: Ref, args: unknown[], options: CallOptions | undefined, scope: ReturnType<typeof callScope>): void {
    const refused = terms.begin(this, ref, options, scope);
    if (refused !== undefined) {
      ref.reject(refused);
      return;
    }
    if (terms.retries > 0) {
      terms.key = this.#keys.next();
    }
    ref.guard = terms;
    this.#begin(ref, args, terms);
  }

  #begin(ref: Ref, args: unknown[], terms: Terms | undefined): void {
    const connection = this.#connection;
    try {
      if (connection !== undefined && this.#inFlight < this.#window && this.#waiting.size === 0 && this.#before === 0) {
        if (connection.bytesInFlight > this.#session.maxInFlightBytes) {
          throw new ActorBusyError(
            `${connection.bytesInFlight} bytes of calls to worker ${connection.peer} are unanswered (maxInFlightBytes); ${this.describe(ref.method)} was not sent`,
            { actor: this.name },
          );
        }
        if (terms !== undefined && terms.key !== 0) keepArguments(ref, args);
        this.#send(connection, ref, terms?.key ? ref.args : args, terms);
        return;
      }
      const place = this.#place;
      if (place?.status === 'dead') throw finalError(this, place, terms);
      if (place?.onFull === 'reject' && (connection === undefined ? this.#waiting.size : this.#inFlight) >= this.#window)
        throw busy(this, ref, place);
      keepArguments(ref, args);
      ref.since = Math.round(performance.now());
      this.#waiting.push(ref);
    } catch (error) {
      ref.reject(error);
      return;
    }
    this.#wake();
  }

  /** Calls wait: asks where the actor is, or opens a connection again. */
  #wake(): void {
    const place = this.#place;
    if (this.#idle && place?.status === 'alive') {
      this.#idle = false;
      this.#open(place);
    } else this.resolvePlace();
  }

  #send(connection: Connection, ref: Ref, args: unknown, terms: Terms | undefined): void {
    ref.incarnation = this.#incarnation;
    ref.era = this.#era;
    ref.connection = connection;
    if (!(args instanceof Encoded)) refuseIterators(args as unknown[]);
    connection.call(ref, this.target, this.#incarnation, args, terms, terms?.key ? this.#keys.lowest : 0);
    this.#inFlight++;
    if (args instanceof Encoded) {
      if (ref.holds !== undefined) for (const held of ref.holds) this.#session.lend(held, connection.peer);
      if (ref.state !== PENDING) ref.holds = undefined;
      return;
    }
    const list = args as unknown[];
    for (let i = 0; i < list.length; i++) {
      if (list[i] instanceof Ref) {
        ref.holds = list.filter((arg) => arg instanceof Ref);
        break;
      }
    }
  }

  /** The callee has answered, or will not: there is room for another call. */
  answered(ref: Ref): void {
    this.#inFlight--;
    if (this.#before > 0 && ref.era < this.#era) this.#before--;
    if (this.#waiting.size > 0 && this.#connection !== undefined) this.#flush(this.#connection);
  }

  #flush(connection: Connection): void {
    while (this.#inFlight < this.#window && this.#before === 0 && !connection.closed) {
      const ref = this.#waiting.take(this.#incarnation);
      if (ref === undefined) return;
      const { args } = ref;
      const terms = ref.guard as Terms | undefined;
      if (terms === undefined || terms.key === 0) ref.args = undefined;
      try {
        this.#send(connection, ref, args, terms);
      } catch (error) {
        ref.reject(error);
      }
    }
  }

  /** The caller no longer waits: the callee is told, or never hears of it. Answers false if the call was over already. */
  abandon(ref: Ref, error: Error): boolean {
    if (ref.state !== PENDING) return false;
    (ref.guard as Terms | undefined)?.stream?.drop();
    if (ref.callId > 0) (ref.connection as Connection | undefined)?.abort(ref);
    else if (!(ref.guard as Terms | undefined)?.resting) this.#waiting.abandon(ref);
    ref.reject(error);
    return true;
  }

  /** Somebody cancels the call by hand. */
  cancel(ref: Ref): boolean {
    const doubt = ref.callId > 0 || ((ref.guard as Terms | undefined)?.mayHaveRun ?? false);
    return this.abandon(ref, new CallAbortedError(this.describe(ref.method), doubt));
  }

  credit(ref: Ref, items: number): void {
    (ref.connection as Connection | undefined)?.credit(ref, items);
  }

  /** Calls that were not sent yet: the actor is not there, or its mailbox has no room. */
  unsent(): Iterable<Ref> {
    return this.#waiting.all();
  }

  /** Asks the agent for the actor's place, once; it tells every change from then on. */
  resolvePlace(): void {
    if (this.#resolved) return;
    this.#resolved = true;
    this.#session.resolve(this);
  }

  // --- calls that failed

  /** The connection ended before the answer. */
  lose(ref: Ref): void {
    const place = this.#place;
    if (place?.death !== undefined && place.death.incarnation >= ref.incarnation) this.#died(ref, place);
    else this.#lost.push(ref);
    this.answered(ref);
  }

  #died(ref: Ref, place: Place): void {
    const error = deathOf(this, ref, place);
    if (error.final || !this.#again(ref, ref.incarnation + 1)) ref.reject(error);
  }

  /** Makes a call again that may have run, if it has executions left. */
  #again(ref: Ref, notBefore: number): boolean {
    const terms = ref.guard as Terms | undefined;
    if (terms === undefined || terms.retries === 0 || (terms.stream?.received ?? 0) > 0 || ref.state !== PENDING) return false;
    terms.spend();
    this.#requeue(ref, terms, notBefore);
    return true;
  }

  #requeue(ref: Ref, terms: Terms, notBefore: number): void {
    terms.notBefore = notBefore;
    ref.callId = 0;
    ref.connection = undefined;
    this.#waiting.pushAgain(ref, terms.key);
    this.#wake();
    if (this.#connection !== undefined) this.#flush(this.#connection);
  }

  /** The callee answered with an error. */
  failed(ref: Ref, error: SinkflexError): void {
    const terms = ref.guard as Terms | undefined;
    if (terms === undefined || terms.key === 0 || ref.state !== PENDING) {
      ref.reject(error);
      return;
    }
    if (terms.mayHaveRun && error.details?.mayHaveRun === false) error.details.mayHaveRun = true;
    if (isDeathOf(this, ref, error)) {
      // The incarnation was ending. A call that did not run costs nothing.
      if (!error.mayHaveRun) this.#requeue(ref, terms, ref.incarnation + 1);
      else if (!this.#again(ref, ref.incarnation + 1)) ref.reject(error);
      return;
    }
    if (terms.retries > 0 && (terms.stream?.received ?? 0) === 0 && error.name !== 'ActorBusyError' && terms.retryOn?.(error) === true) {
      terms.spend();
      ref.callId = 0;
      ref.connection = undefined;
      // What was answered is not answered again: a new execution has a new key.
      this.keyDone(terms.key);
      terms.key = this.#keys.next();
      terms.resting = true;
      setTimeout(
        () => {
          terms.resting = false;
          if (ref.state === PENDING) this.#requeue(ref, terms, 0);
        },
        retryDelayMs(terms.failures, this.#session.random),
      );
      return;
    }
    ref.reject(error);
  }

  keyDone(key: number): void {
    this.#keys.done(key);
    if (this.#keys.due) this.#acknowledge(this.#connection);
  }

  #acknowledge(connection: Connection | undefined): void {
    if (connection !== undefined && this.#keys.owed) connection.acknowledge(this.target, this.#keys.acknowledged());
  }

  // --- where the actor is

  connectionClosed(connection: Connection): void {
    if (this.#connection !== connection) return;
    this.#connection = undefined;
    this.#keys.unsure(); // what was said last may not have arrived
    // Usually the worker is gone and the agent will say so; if not, this asks for the way to go on.
    setTimeout(() => {
      if (this.#connection !== undefined || this.#opening !== 0 || this.#session.closed) return;
      this.#resolved = false;
      this.resolvePlace();
    }, 100);
  }

  /** The connection was closed since nobody used it: the next call opens another. */
  connectionIdle(connection: Connection): void {
    if (this.#connection !== connection) return;
    this.#acknowledge(connection);
    this.#connection = undefined;
    this.#idle = true;
  }

  placed(place: Place): void {
    if (this.#place !== undefined && place.incarnation < this.#place.incarnation) return;
    this.#place = place;
    this.target = place.target ?? this.id;
    this.#window = place.window;
    if (place.name !== '') this.name = place.name;
    if (place.death !== undefined && this.#lost.length > 0) {
      const lost = this.#lost;
      const ended = place.death.incarnation;
      this.#lost = lost.filter((ref) => ref.incarnation > ended);
      for (const ref of lost) if (ref.incarnation <= ended) this.#died(ref, place);
    }
    if (place.status === 'dead') {
      this.#connection = undefined;
      for (const ref of this.#waiting.takeAll()) ref.reject(finalError(this, place, ref.guard as Terms | undefined));
    } else if (place.status === 'alive' && (this.#connection === undefined || this.#incarnation !== place.incarnation)) {
      this.#open(place);
    } else if (place.status === 'down') {
      this.#connection = undefined;
      if (place.onFull === 'reject') for (const ref of this.#waiting.beyond(place.window)) ref.reject(busy(this, ref, place));
    }
    for (const watcher of this.#watchers.splice(0)) watcher();
    if (this.#listeners.size > 0) for (const listener of [...this.#listeners]) listener(place);
  }

  #open(place: Place): void {
    const current = (): boolean => this.#place?.status === 'alive' && this.#place.incarnation === place.incarnation;
    const settle = (connection: Connection): void => {
      this.#opening = 0;
      if (!current()) return;
      if (connection.closed) {
        this.#reopen(place);
        return;
      }
      this.#incarnation = place.incarnation;
      // Calls lost on an earlier connection to the very same incarnation cannot be answered there any more.
      for (const ref of this.#lost.splice(0)) {
        // Items of a stream may have been lost on it.
        if ((ref.guard as Terms | undefined)?.stream === undefined && this.#again(ref, 0)) continue;
        ref.reject(
          new RuntimeFailure('SINKFLEX_PROTOCOL', `the connection to ${this.name} was lost; the call may have run`, {
            details: { mayHaveRun: true },
          }),
        );
      }
      this.#acknowledge(connection);
      this.#era++;
      this.#before = this.#keys.open ? this.#inFlight : 0;
      this.#connection = connection; // only now: what is made again goes first, all of it
      this.#flush(connection);
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
      if (current()) this.#reopen(place);
    });
  }

  #reopen(place: Place): void {
    setTimeout(() => {
      const now = this.#place;
      if (now?.status === 'alive' && now.incarnation === place.incarnation && this.#connection === undefined && !this.#session.closed)
        this.#open(now);
    }, 50);
  }

  /** Calls back at every change of its place; the answer ends that. */
  watch(listener: (place: Place) => void): () => void {
    this.#listeners.add(listener);
    this.resolvePlace();
    return () => this.#listeners.delete(listener);
  }

  /** Resolves when the actor is alive; rejects when it is dead. */
  ready(timeoutMs: number | undefined): Promise<void> {
    this.resolvePlace();
    return untilAlive(this, timeoutMs, () => this.#place, this.#watchers);
  }

  /** The run is over: nothing that waits will be answered. */
  shutDown(error: Error): void {
    for (const ref of this.#waiting.takeAll()) ref.reject(error);
    for (const ref of this.#lost.splice(0)) ref.reject(error);
  }
}
