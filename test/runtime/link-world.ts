// Two ends of a link in one process, on pipes that a test breaks when it likes.
import { Link } from '../../runtime/links/link.ts';
import type { Pipe, PipeEnd } from '../../runtime/links/pipe.ts';
import type { IncomingBlock, OutgoingBlock, Stream, StreamEnd } from '../../runtime/links/stream.ts';

export class MemoryPipe implements Pipe {
  other!: MemoryPipe;
  closed = false;
  host = undefined;
  onAnswered = undefined;
  buffered = 0;
  /** What the other end gets instead of each message. */
  change: (data: Buffer) => Buffer[] = (data) => [data];
  #onMessage: ((data: Buffer) => void) | undefined;
  #onClose: ((how: PipeEnd) => void) | undefined;
  #early: Buffer[] = [];
  /** Why it was destroyed, if somebody did. */
  end: PipeEnd | undefined;
  errors: Error[] = [];

  send(data: Buffer, sent?: () => void): void {
    if (this.closed) return;
    this.buffered += data.length;
    // Bytes as they are now: what is sent again has another header.
    const copy = Buffer.from(data);
    setImmediate(() => {
      this.buffered -= data.length;
      if (this.closed) return;
      for (const each of this.change(copy)) this.other.arrive(each);
      sent?.();
    });
  }
  arrive(data: Buffer): void {
    if (this.closed) return;
    if (this.#onMessage === undefined) this.#early.push(data);
    else {
      try {
        this.#onMessage(data);
      } catch (error) {
        this.errors.push(error as Error);
        this.destroy('protocol');
      }
    }
  }
  first(): void {
    throw new Error('not used here');
  }
  open(onMessage: (data: Buffer) => void, onClose: (how: PipeEnd) => void): void {
    this.#onMessage = onMessage;
    this.#onClose = onClose;
    for (const data of this.#early.splice(0)) this.arrive(data);
  }
  close(): void {
    this.destroy('here');
  }
  destroy(how: PipeEnd = 'here'): void {
    if (this.closed) return;
    this.closed = true;
    this.end = how;
    this.#onClose?.(how);
    setImmediate(() => this.other.destroy(how === 'here' ? 'bye' : how));
  }
}

export function pipePair(): [MemoryPipe, MemoryPipe] {
  const a = new MemoryPipe();
  const b = new MemoryPipe();
  a.other = b;
  b.other = a;
  return [a, b];
}

/** What one end of a stream has received. */
export class Sink implements StreamEnd {
  readonly got: Buffer[] = [];
  closed = false;
  drained = 0;
  readonly #link: Link;
  readonly #stream: Stream;
  constructor(link: Link, stream: Stream) {
    this.#link = link;
    this.#stream = stream;
    stream.end = this;
  }
  onBytes(chunk: Buffer): void {
    this.got.push(Buffer.from(chunk));
    setImmediate(() => this.#link.consumed(this.#stream, chunk.length));
  }
  onBlock(_: Uint8Array, bytes: number): IncomingBlock {
    const content = Buffer.alloc(bytes);
    return { write: (at, piece) => void piece.copy(content, at), done: () => void this.got.push(content), lost: () => {} };
  }
  onDrain(): void {
    this.drained++;
  }
  onClose(): void {
    this.closed = true;
  }
}

export function blockOf(content: Buffer, done: () => void = () => {}): OutgoingBlock {
  const descriptor = new Uint8Array(40);
  new DataView(descriptor.buffer).setBigUint64(32, BigInt(content.length), true);
  return { descriptor, bytes: content.length, piece: (at, bytes) => content.subarray(at, at + bytes), done };
}

export interface Ends {
  dialer: Link;
  acceptor: Link;
  /** The pipe that carries it now. */
  pipe(): MemoryPipe;
  /** Streams that the other side opened. */
  arrived: Sink[];
  ended: string[];
}

interface EndsOptions {
  leaseMs?: number;
  /** Whether a new pipe comes about. */
  mayMeet?: () => boolean;
  random?: () => number;
  /** Of every pipe, in both directions. */
  change?: (data: Buffer) => Buffer[];
}

export function linkEnds(options: EndsOptions = {}): Ends {
  const { leaseMs = 5000, mayMeet = () => true, random = () => 0 } = options;
  const arrived: Sink[] = [];
  const ended: string[] = [];
  let pipe!: MemoryPipe;
  const acceptor: Link = new Link({
    session: 's',
    host: 'dialer',
    leaseMs,
    onOpen(stream) {
      acceptor.answer(stream, 0);
      arrived.push(new Sink(acceptor, stream));
    },
    onEnd: (why) => ended.push(`acceptor: ${why}`),
  });
  const meet = (dialer: Link | undefined): { pipe: MemoryPipe; received: number } => {
    const [a, b] = pipePair();
    pipe = a;
    if (options.change !== undefined) a.change = b.change = options.change;
    const received = acceptor.received;
    acceptor.adopt(b, dialer?.received ?? 0);
    return { pipe: a, received };
  };
  const dialer: Link = new Link({
    session: 's',
    host: 'acceptor',
    leaseMs,
    random,
    redial: async () => {
      if (!mayMeet()) throw new Error('no way there');
      if (acceptor.ended) return 'forgotten';
      return meet(dialer);
    },
    onOpen: () => {},
    onEnd: (why) => ended.push(`dialer: ${why}`),
  });
  const first = meet(undefined);
  dialer.adopt(first.pipe, first.received);
  return { dialer, acceptor, pipe: () => pipe, arrived, ended };
}
