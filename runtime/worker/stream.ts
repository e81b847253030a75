// Streaming methods: items flow from a generator in an actor to a reader, no more of them under way than the reader has given credit for.
// The call itself is an ordinary one, so deadlines, aborts, order and the end of the actor hold for a stream as for any call.
import { RuntimeFailure } from '../api/errors.ts';
import type { ObjectStream } from '../api/types.ts';
import { FAILED, type Ref } from '../objects/index.ts';
import { registerWireClass } from '../wire/index.ts';
import { onAbort } from './abort.ts';

export const DEFAULT_WINDOW = 64;

type Step = IteratorResult<unknown, undefined>;
const DONE: Step = Object.freeze({ done: true, value: undefined });

/** What a reader needs of its call. */
export interface StreamCall {
  /** The reader has taken that many items more. */
  credit(ref: Ref, items: number): void;
  /** The reader wants no more. */
  cancel(ref: Ref): void;
}

/** The reader's end. */
export class IncomingStream {
  readonly ref: Ref;
  readonly window: number;
  /** Items that have come, in all: what was delivered is never delivered again, so a call that has some is not repeated. */
  received = 0;
  readonly #call: StreamCall;
  #items: unknown[] = [];
  #head = 0;
  #taken = 0;
  #readers: { resolve: (step: Step) => void; reject: (error: unknown) => void }[] = [];
  /** Kept while somebody waits for an item, so that it is not collected under them. */
  face: StreamFace | undefined = undefined;
  /** The reader wants no more. */
  #over = false;
  #told = false;

  constructor(ref: Ref, window: number, call: StreamCall) {
    this.ref = ref;
    this.window = window;
    this.#call = call;
    ref.whenSettled(() => this.#ended());
  }

  push(item: unknown): void {
    this.received++;
    if (this.#over) return;
    const reader = this.#readers.shift();
    if (reader === undefined) this.#items.push(item);
    else {
      if (this.#readers.length === 0) this.face = undefined;
      this.#take();
      reader.resolve({ done: false, value: item });
    }
  }

  #take(): void {
    this.#taken++;
    // Half of the window at a time: the other half is on its way meanwhile.
    if (this.#taken * 2 < this.window) return;
    this.#call.credit(this.ref, this.#taken);
    this.#taken = 0;
  }

  next(face: StreamFace): Promise<Step> {
    if (this.#head < this.#items.length) {
      const value = this.#items[this.#head];
      this.#items[this.#head++] = undefined;
      if (this.#head === this.#items.length) {
        this.#items.length = 0;
        this.#head = 0;
      }
      this.#take();
      return Promise.resolve({ done: false, value });
    }
    if (this.#over) return Promise.resolve(DONE);
    if (this.ref.state !== 0) return this.#last();
    this.face = face;
    return new Promise((resolve, reject) => this.#readers.push({ resolve, reject }));
  }

  /** The error is thrown once, after the items before it; then the stream is at its end. */
  #last(): Promise<Step> {
    if (this.ref.state !== FAILED || this.#told) return Promise.resolve(DONE);
    this.#told = true;
    return Promise.reject(this.ref.value);
  }

  #ended(): void {
    const readers = this.#readers;
    this.#readers = [];
    this.face = undefined;
    for (const reader of readers) {
      if (this.#over) reader.resolve(DONE);
      else this.#last().then(reader.resolve, reader.reject);
    }
  }

  /** What has come and was not taken is of no use any more: the reader gave up, by deadline or signal. */
  drop(): void {
    this.#items = [];
    this.#head = 0;
  }

  cancel(): void {
    if (this.#over) return;
    this.#over = true;
    this.drop();
    if (this.ref.state === 0) this.#call.cancel(this.ref);
  }
}

const unread = new FinalizationRegistry<IncomingStream>((stream) => stream.cancel());

/** What the caller holds. When it is collected the actor is told to stop. */
export class StreamFace implements ObjectStream<unknown> {
  readonly #stream: IncomingStream;
  constructor(stream: IncomingStream) {
    this.#stream = stream;
    unread.register(this, stream, this);
  }
  next(): Promise<Step> {
    return this.#stream.next(this);
  }
  return(): Promise<Step> {
    unread.unregister(this);
    this.#stream.cancel();
    return Promise.resolve(DONE);
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }
  [Symbol.asyncIterator](): this {
    return this;
  }
}

registerWireClass(
  'stream',
  StreamFace,
  () => {
    throw new RuntimeFailure('SINKFLEX_NOT_SERIALIZABLE', 'a stream cannot be sent: pass the handle, and let the callee make the call');
  },
  () => {
    throw new RuntimeFailure('SINKFLEX_PROTOCOL', 'the peer sent a stream');
  },
);

/** The actor's end: runs the generator no further than there is credit. */
export class OutgoingStream {
  #credit: number;
  #over = false;
  #wake: (() => void) | undefined = undefined;

  constructor(window: number) {
    this.#credit = window;
  }

  grant(items: number): void {
    this.#credit += items;
    this.#wakeUp();
  }

  #wakeUp(): void {
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  }

  /** Resolves when the generator is at its end; rejects with what it throws, or with the signal's reason when that cut it short. */
  async run(generator: unknown, signal: AbortSignal, send: (item: unknown) => void): Promise<undefined> {
    const iterator = generator as AsyncIterator<unknown> | Iterator<unknown>;
    if (typeof iterator?.next !== 'function') {
      throw new RuntimeFailure(
        'SINKFLEX_UNKNOWN_METHOD',
        'the caller takes the method for a generator, and it is none: they run different code',
      );
    }
    const stop = signal.aborted
      ? undefined
      : onAbort(signal, () => {
          this.#over = true;
          this.#wakeUp();
        });
    if (stop === undefined) this.#over = true;
    let finished = false;
    try {
      for (;;) {
        if (this.#credit <= 0 && !this.#over) await new Promise<void>((resolve) => (this.#wake = resolve));
        if (this.#over) throw signal.reason;
        const stepping = iterator.next();
        const step = stepping instanceof Promise ? await stepping : (stepping as IteratorResult<unknown>);
        if (step.done === true) {
          finished = true;
          if (this.#over) throw signal.reason;
          return undefined;
        }
        const value = step.value;
        const item = typeof (value as PromiseLike<unknown> | undefined)?.then === 'function' ? await value : value;
        if (this.#over) throw signal.reason;
        this.#credit--;
        send(item);
      }
    } finally {
      stop?.();
      if (!finished) await iterator.return?.();
    }
  }
}
