// One channel between two workers, as it travels on a link: bytes and blocks in order, as fast as the other side takes them. What one worker
// does not read holds up nobody else.
import { type PacketWriter, record, wrong } from './packet.ts';

/** What one side may send before the other has passed it on. */
export const WINDOW = 16 * 2 ** 20;
/** Content of a block in one message: what is urgent waits for so much at most, and what lies in the socket. */
const PIECE = 256 * 1024;
const RECORD_BYTES = 64 * 1024;
/** More than this waiting: whoever writes should stop for a while. */
const HIGH = 1024 * 1024;

/** The content of a block, to be read in pieces until `done`. */
export interface OutgoingBlock {
  descriptor: Uint8Array;
  bytes: number;
  piece(at: number, bytes: number): Buffer;
  done(): void;
}

/** Where the content of a block goes that arrives. */
export interface IncomingBlock {
  write(at: number, piece: Buffer): void;
  /** All of it is there and as it was. */
  done(): void;
  /** The rest will not come. */
  lost(): void;
}

/** Who has the other end of the stream on this host. */
export interface StreamEnd {
  /** Passes them on, and says so with consumed(). */
  onBytes(chunk: Buffer): void;
  onBlock(descriptor: Uint8Array, bytes: number): IncomingBlock;
  /** There is room for more. */
  onDrain(): void;
  onClose(): void;
}

type Item = { bytes: Buffer } | { block: OutgoingBlock; at: number } | { close: true };

export class Stream {
  readonly id: number;
  end: StreamEnd | undefined;
  /** The other worker's answer to the opening. */
  onOpened: ((admission: number) => void) | undefined;
  readonly #wake: (stream: Stream) => void;
  #queue: Item[] = [];
  #waiting = 0;
  #full = false;
  /** Bytes that may be sent. */
  #credit = WINDOW;
  /** Bytes that the other side may send. */
  #granted = WINDOW;
  #consumed = 0;
  #incoming: { at: number; bytes: number; into: IncomingBlock } | undefined;
  /** Nothing more is sent. */
  closing = false;

  /** `wake`: there is something to be sent. */
  constructor(id: number, wake: (stream: Stream) => void) {
    this.id = id;
    this.#wake = wake;
  }

  // --- what goes out

  /** Answers false when enough is waiting: onDrain() follows. */
  write(bytes: Buffer): boolean {
    if (this.closing) return true;
    this.#queue.push({ bytes });
    this.#waiting += bytes.length;
    this.#wake(this);
    return this.#room();
  }

  sendBlock(block: OutgoingBlock): boolean {
    if (this.closing) {
      block.done();
      return true;
    }
    this.#queue.push({ block, at: 0 });
    this.#waiting += block.bytes;
    this.#wake(this);
    return this.#room();
  }

  #room(): boolean {
    this.#full = this.#waiting > HIGH;
    return !this.#full;
  }

  /** After what was written. */
  close(): void {
    if (this.closing) return;
    this.closing = true;
    this.#queue.push({ close: true });
    this.#wake(this);
  }

  get hasBytes(): boolean {
    const head = this.#queue[0];
    return head !== undefined && (('bytes' in head && this.#credit > 0) || 'close' in head);
  }

  get hasPiece(): boolean {
    const head = this.#queue[0];
    return head !== undefined && 'block' in head && this.#credit > 0;
  }

  /** Adds bytes to the packet while it has at most so many. Answers true when the stream is over with that. */
  takeBytes(packet: PacketWriter, most: number): boolean {
    while (packet.bytes < most) {
      const head = this.#queue[0];
      if (head === undefined || 'block' in head) break;
      if ('close' in head) {
        this.#queue = [];
        packet.add(record.close, this.id, undefined);
        return true;
      }
      const { bytes } = head;
      const take = Math.min(bytes.length, RECORD_BYTES, this.#credit);
      if (take === 0) break;
      packet.add(record.bytes, this.id, take === bytes.length ? bytes : bytes.subarray(0, take));
      if (take === bytes.length) this.#queue.shift();
      else head.bytes = bytes.subarray(take);
      this.#sent(take);
    }
    return false;
  }

  /** The next piece of a block: the packet ends with it. `done` is to be called when the other side has it. */
  takePiece(packet: PacketWriter): { raw: Buffer; done: (() => void) | undefined } {
    const head = this.#queue[0] as Extract<Item, { block: OutgoingBlock }>;
    const { block, at } = head;
    if (at === 0) packet.add(record.block, this.id, block.descriptor);
    const take = Math.min(PIECE, block.bytes - at, this.#credit);
    const raw = block.piece(at, take);
    packet.add(record.piece, this.id, undefined, take);
    head.at += take;
    this.#sent(take);
    const last = head.at === block.bytes;
    if (last) this.#queue.shift();
    return { raw, done: last ? () => block.done() : undefined };
  }

  #sent(bytes: number): void {
    this.#credit -= bytes;
    this.#waiting -= bytes;
    if (!this.#full || this.#waiting > HIGH / 2) return;
    this.#full = false;
    this.end?.onDrain();
  }

  // --- what comes in. Throws SINKFLEX_PROTOCOL

  credit(bytes: number): void {
    this.#credit += bytes;
    if (this.#credit > WINDOW) throw wrong('more credit than there is');
    this.#wake(this);
  }

  #takes(bytes: number): void {
    this.#granted -= bytes;
    if (this.#granted < 0) throw wrong('more than it may');
  }

  bytes(chunk: Buffer): void {
    if (this.#incoming !== undefined) throw wrong('bytes in the middle of a block');
    this.#takes(chunk.length);
    this.end?.onBytes(chunk);
  }

  block(descriptor: Buffer, bytes: number): void {
    if (this.#incoming !== undefined) throw wrong('a block in the middle of another');
    if (this.end === undefined || bytes === 0) throw wrong('a block where there is no place for it');
    this.#incoming = { at: 0, bytes, into: this.end.onBlock(new Uint8Array(descriptor), bytes) };
  }

  /** Answers how much of what came may be sent again. */
  piece(raw: Buffer): void {
    const incoming = this.#incoming;
    if (incoming === undefined || incoming.at + raw.length > incoming.bytes) throw wrong('a piece of no block');
    this.#takes(raw.length);
    incoming.into.write(incoming.at, raw);
    incoming.at += raw.length;
    if (incoming.at < incoming.bytes) return;
    this.#incoming = undefined;
    incoming.into.done();
  }

  /** So much was passed on. Answers the credit to give for it, in lumps. */
  consumed(bytes: number): number {
    this.#consumed += bytes;
    if (this.#consumed < WINDOW / 4) return 0;
    const lump = this.#consumed;
    this.#consumed = 0;
    this.#granted += lump;
    return lump;
  }

  /** It is over, whoever ended it. */
  ended(): void {
    this.closing = true;
    for (const item of this.#queue.splice(0)) if ('block' in item) item.block.done();
    const incoming = this.#incoming;
    this.#incoming = undefined;
    incoming?.into.lost();
    const { end } = this;
    this.end = undefined;
    end?.onClose();
  }
}
