// ObjectRef: a value that is, or will be, somewhere. One object is the whole life of a call at its caller: the entry in the table of
// unanswered calls, the promise (made only when somebody waits), and what can be passed on.
import { RuntimeFailure } from '../api/errors.ts';
import type { ObjectRef } from '../api/types.ts';
import { decodeAlone, decodeShared, Encoded } from '../wire/index.ts';

export const PENDING = 0;
export const VALUE = 1;
export const FAILED = 2;
export const RELEASED = 3;

/** What a ref needs of its worker: only when it is somebody else's value, or is lent out. */
export interface Keeper {
  readonly worker: number;
  fetch(ref: Ref): void;
  /** `epoch`: of the time at which it was lent. */
  giveBack(owner: number, id: number, epoch: number): void;
  /** Calls back when the owner has the value, or an error, or is gone. */
  peek(ref: Ref, settled: () => void): void;
  /** Others still hold it. */
  isLent(id: number): boolean;
}

/** Where readers of the host find a value that was put: no need to ask its owner. It may be there no longer. */
export interface PlaceOfValue {
  descriptor: Uint8Array;
  headerBytes: number;
}

export function isPlaceOfValue(place: { descriptor: unknown; headerBytes: unknown }): place is PlaceOfValue {
  return place.descriptor instanceof Uint8Array && place.descriptor.length === 40 && typeof place.headerBytes === 'number';
}

/** The call that a pending ref stands for. */
export interface PendingCall {
  /** Called once when the ref settles: clears timers and listeners. */
  settled(): void;
}

/** Where a ref of another worker came from. */
export interface Borrowed {
  keeper: Keeper;
  owner: number;
  id: number;
  /** Connections to the owner that had broken before: with each, the owner forgets what it lent. */
  epoch: number;
  sharedAt?: PlaceOfValue;
}

const unobserved = new FinalizationRegistry<string>((what) => {
  process.stderr.write(`[sinkflex] a failed call was never awaited: ${what}\n`);
});
const borrowedGone = new FinalizationRegistry<Borrowed>(({ keeper, owner, id, epoch }) => keeper.giveBack(owner, id, epoch));

export class Ref implements ObjectRef<unknown> {
  state = PENDING;
  /** The value, the error, or (put) its bytes. */
  value: unknown = undefined;
  #resolve: ((value: unknown) => void) | undefined = undefined;
  #reject: ((error: unknown) => void) | undefined = undefined;
  #promise: Promise<unknown> | undefined = undefined;
  #observed = false;
  #mapped: WeakRef<object> | undefined = undefined;
  /** Owned by another worker: ask there. */
  readonly borrowed: Borrowed | undefined;
  #asked = false;
  /** This worker let go of it; it may still be lent. */
  #released = false;
  /** Number among the values that this worker lends; 0: never lent. */
  id = 0;
  keeper: Keeper | undefined = undefined;
  // The unanswered call, if it is one. Plain fields: this is the hot path.
  client: unknown = undefined;
  /** Who made it, where that is known: several actors may share a worker. */
  caller: unknown = undefined;
  connection: unknown = undefined;
  incarnation = 0;
  /** Counts the connections of its client: calls of an earlier one may come back. */
  era = 0;
  callId = 0;
  bytes = 0;
  method = '';
  /** Of a call that waits, or may be made again: its arguments. */
  args: unknown = undefined;
  /** performance.now() at which it began to wait, in whole milliseconds; 0: it did not. */
  since = 0;
  guard: PendingCall | undefined = undefined;
  /** Refs among the arguments, kept from collection until the callee has had its chance to fetch them. */
  holds: readonly Ref[] | undefined = undefined;
  onSettled: ((ref: Ref) => void)[] | undefined = undefined;

  constructor(borrowed?: Borrowed) {
    this.borrowed = borrowed;
    if (borrowed !== undefined) borrowedGone.register(this, borrowed, this);
  }

  resolve(value: unknown): void {
    if (this.state !== PENDING) return;
    this.state = VALUE;
    this.value = value;
    this.#settle();
    this.#resolve?.(value);
  }

  reject(error: unknown): void {
    if (this.state !== PENDING) return;
    this.state = FAILED;
    this.value = error;
    this.#settle();
    if (this.#reject !== undefined) this.#reject(error);
    else if (!this.#observed && !wanted(error)) unobserved.register(this, (error as Error).message ?? String(error), this);
  }

  #settle(): void {
    this.guard?.settled();
    this.guard = undefined;
    if (this.callId !== 0) this.holds = undefined; // a call that is still to be sent lends them first
    this.connection = undefined;
    this.caller = undefined;
    const listeners = this.onSettled;
    if (listeners !== undefined) {
      this.onSettled = undefined;
      for (const listener of listeners) listener(this);
    }
  }

  /** Calls back when there is a value or an error, also for borrowed refs. */
  whenSettled(listener: (ref: Ref) => void): void {
    this.#markObserved();
    if (this.state !== PENDING) listener(this);
    else {
      this.onSettled = this.onSettled === undefined ? [listener] : [...this.onSettled, listener];
      this.#ask();
    }
  }

  #ask(): void {
    if (this.borrowed === undefined || this.#asked || this.state !== PENDING) return;
    this.#asked = true;
    if (this.borrowed.sharedAt === undefined) this.borrowed.keeper.fetch(this);
    else queueMicrotask(() => this.#claim()); // never settles within the question
  }

  #claim(): void {
    if (this.state !== PENDING) return;
    const { keeper, sharedAt } = this.borrowed!;
    let value: unknown;
    try {
      value = decodeShared(sharedAt!.descriptor, sharedAt!.headerBytes, true);
    } catch {
      // On disk, or gone: its owner knows.
      keeper.fetch(this);
      return;
    }
    this.resolve(value);
  }

  /** Calls back when its owner has a value or an error, without moving it here. */
  whenThere(listener: () => void): void {
    if (this.state !== PENDING || this.borrowed === undefined || this.#asked) this.whenSettled(listener);
    else if (this.borrowed.sharedAt !== undefined) listener();
    else this.borrowed.keeper.peek(this, listener);
  }

  /** Where others find the value. */
  get sharedAt(): PlaceOfValue | undefined {
    if (this.borrowed !== undefined) return this.borrowed.sharedAt;
    const { value } = this;
    // Refs in a value are lent with each copy that its owner sends.
    if (!(value instanceof Encoded) || value.block === undefined || value.refs.length > 0) return undefined;
    return { descriptor: value.block.descriptor, headerBytes: value.headerBytes };
  }

  #markObserved(): void {
    if (this.#observed) return;
    this.#observed = true;
    if (this.state === FAILED) unobserved.unregister(this);
  }

  /** The value itself. Only when state is VALUE. SINKFLEX_OBJECT_LOST when it had gone to disk and the file is damaged. */
  read(): unknown {
    return this.value instanceof Encoded ? decodeAlone(this.value) : this.value;
  }

  async #readLater(): Promise<unknown> {
    const { value } = this;
    if (!(value instanceof Encoded)) return value;
    // Large values are mapped once, as long as somebody has them.
    const known = this.#mapped?.deref();
    if (known !== undefined) return known;
    if (value.away !== undefined) {
      await value.away.restoreLater();
      if (this.state !== VALUE) throw released();
    }
    const read = decodeAlone(value);
    if (value.block !== undefined && typeof read === 'object' && read !== null) this.#mapped = new WeakRef(read);
    return read;
  }

  promise(): Promise<unknown> {
    this.#markObserved();
    if (this.#released) return Promise.reject(released());
    if (this.#promise !== undefined) return this.#promise;
    if (this.state === VALUE) return this.#readLater();
    if (this.state === FAILED) return Promise.reject(this.value);
    this.#promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#ask();
    return this.#promise;
  }

  // biome-ignore lint/suspicious/noThenProperty: a ref is a PromiseLike by design
  then<A = unknown, B = never>(
    onFulfilled?: ((value: unknown) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.promise().then(onFulfilled, onRejected);
  }

  catch<R = never>(onRejected?: ((reason: unknown) => R | PromiseLike<R>) | null): Promise<unknown> {
    return this.promise().catch(onRejected);
  }

  finally(onFinally?: (() => void) | null): Promise<unknown> {
    return this.promise().finally(onFinally);
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#markObserved();
    if (this.borrowed !== undefined) {
      borrowedGone.unregister(this);
      const { keeper, owner, id, epoch } = this.borrowed;
      keeper.giveBack(owner, id, epoch);
    } else if (this.id !== 0 && this.keeper?.isLent(this.id)) return;
    this.#drop();
  }

  /** The last borrower gave it back. */
  noLongerLent(): void {
    if (this.#released) this.#drop();
  }

  #drop(): void {
    if (this.state === PENDING) this.reject(released());
    this.state = RELEASED;
    if (this.value instanceof Encoded) this.value.release();
    this.value = undefined;
    this.#mapped = undefined;
    this.#promise = undefined;
  }

  [Symbol.dispose](): void {
    this.release();
  }

  // What prints or logs a ref must not walk into the worker that it belongs to: the token of the run is there.
  toJSON(): string {
    return `ObjectRef(${['pending', 'value', 'failed', 'released'][this.state]}${this.method === '' ? '' : ` ${this.method}()`})`;
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toJSON();
  }
}

/** Ends that somebody asked for need no report. */
function wanted(error: unknown): boolean {
  const { code, details } = error as { code?: unknown; details?: { reason?: unknown } };
  return code === 'SINKFLEX_SHUT_DOWN' || details?.reason === 'killed' || details?.reason === 'shutdown';
}

function released(): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_OBJECT_RELEASED', 'the ref was released');
}
