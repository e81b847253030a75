// Collects the raw bytes of typed arrays. Those of one message lie together, each at a multiple of 8 bytes (large ones of 64) from the
// message's start; they are copied before the message's encoding returns: what a caller changes later is not what is sent. Small messages
// go in line, in the frame after its messages; large ones through a block of shared memory.
import type { SharedBlock } from '../../kernels/host.ts';
import { RuntimeFailure } from '../api/errors.ts';
import { blockPool, isShortage, SHARED_BYTES } from './blocks.ts';

const RUN = 64 * 1024;
/** Smaller arrays are gathered in runs as they come; larger ones are copied once, to where they go. */
const GATHERED = 4096;
export const EMPTY: Buffer = Buffer.alloc(0);
/** The wire's offsets are 32 bits, in units of 8 bytes. */
const MOST = 2 ** 35 - 8;
const MOST_IN_LINE = 2 ** 32 - 8;
/** An array of the receiver cannot be larger. */
const MOST_ONE = 2 ** 32;

/**
 * Large blocks that were sent come back for the next: touching fresh pages costs more than the copy itself. Sizes are powers of two.
 * One pool for each thread.
 */
class ScratchPool {
  #free = new Map<number, Buffer[]>();
  #held = 0;

  take(bytes: number): Buffer {
    const size = 2 ** Math.ceil(Math.log2(bytes));
    const block = this.#free.get(size)?.pop();
    if (block === undefined) return Buffer.allocUnsafeSlow(size);
    this.#held -= size;
    return block;
  }

  give(block: Buffer): void {
    if (this.#held + block.length > POOLED_BYTES) return;
    this.#held += block.length;
    const list = this.#free.get(block.length);
    if (list === undefined) this.#free.set(block.length, [block]);
    else list.push(block);
  }
}
const POOLED_BYTES = 128 * 2 ** 20;
/** Above this a power of two would waste too much. */
const LARGEST_POOLED = 64 * 2 ** 20;
const scratch = new ScratchPool();

const roundUp = (bytes: number, unit: number): number => Math.ceil(bytes / unit) * unit;

export class SectionWriter {
  readonly #pooling: boolean;
  /** Number of the way that messages travel on, for blocks; 0: nothing is shared. */
  readonly channel: number;
  #pooled: Buffer[] = [];
  /** In-line bytes of finished messages, a multiple of 8. */
  bytes = 0;
  #parts: Buffer[] = [];
  // Of the message under way: pieces in order, and where each starts.
  #pieces: Uint8Array[] = [];
  #starts: number[] = [];
  #size = 0;
  #run: Buffer = EMPTY;
  #runStart = 0;
  #runUsed = 0;
  /** The last piece is the run that can still grow. */
  #open = false;
  /** Blocks that the message names: of arrays made in shared memory, of encoded values. */
  blocks: SharedBlock[] = [];
  /** Descriptors of all blocks that finished messages name, where the peer must be brought what is in them. */
  named: Uint8Array[] | undefined = undefined;

  /** `pooling`: take() is followed by a call of what takePooled() answers, once the bytes are sent. */
  constructor(pooling = false, channel = 0) {
    this.#pooling = pooling;
    this.channel = channel;
  }

  get shares(): boolean {
    return this.channel !== 0;
  }

  /** Answers where its copy will be, from the start of the frame's sections as if the message were in line. */
  append(data: Uint8Array): number {
    const { length } = data;
    if (length > MOST_ONE) throw tooLarge(`an array of ${length} bytes cannot be sent: the limit is 4 GiB; send it in parts`);
    const start = length >= GATHERED ? roundUp(this.#size, 64) : this.#size;
    const size = start + roundUp(length, 8);
    if (this.bytes + size > MOST) throw tooLarge(`arrays of ${size} bytes in one message: the limit is 32 GiB; send them in parts`);
    if (length < GATHERED) this.#gather(data);
    else {
      this.#pieces.push(data);
      this.#starts.push(start);
      this.#open = false;
    }
    this.#size = size;
    return this.bytes + start;
  }

  #gather(data: Uint8Array): void {
    const room = (data.length + 7) & ~7;
    if (this.#runUsed + room > this.#run.length) {
      this.#run = Buffer.allocUnsafeSlow(RUN);
      this.#runStart = this.#runUsed = 0;
      this.#open = false;
    }
    if (!this.#open) {
      this.#runStart = this.#runUsed;
      this.#pieces.push(EMPTY);
      this.#starts.push(this.#size);
      this.#open = true;
    }
    this.#run.set(data, this.#runUsed);
    for (let i = this.#runUsed + data.length; i < this.#runUsed + room; i++) this.#run[i] = 0;
    this.#runUsed += room;
    this.#pieces[this.#pieces.length - 1] = this.#run.subarray(this.#runStart, this.#runUsed);
  }

  /** Bytes of the message under way. */
  get size(): number {
    return this.#size;
  }

  /** Ends the message: its bytes are copied to where they go. Answers the descriptor of its block, or undefined when it is in line. */
  finish(): Uint8Array | undefined {
    let descriptor: Uint8Array | undefined;
    if (this.#size >= SHARED_BYTES && this.shares) descriptor = this.#share();
    if (descriptor === undefined && this.#size > 0) this.#inLine();
    for (const block of this.blocks) {
      block.sent(this.channel);
      this.named?.push(block.descriptor);
    }
    if (descriptor !== undefined) this.named?.push(descriptor);
    this.abandon();
    return descriptor;
  }

  #share(): Uint8Array | undefined {
    try {
      return blockPool()?.send(this.#size, this.#starts, this.#pieces, this.channel);
    } catch (error) {
      if (isShortage(error)) return undefined;
      throw error;
    }
  }

  #inLine(): void {
    if (this.bytes + this.#size > MOST_IN_LINE)
      throw tooLarge(`${this.#size} bytes in one message need shared memory, of which there is not enough: send them in parts`);
    let at = 0;
    for (let i = 0; i < this.#pieces.length; i++) {
      const piece = this.#pieces[i]!;
      const start = this.#starts[i]!;
      if (start > at) this.#parts.push(Buffer.alloc(start - at));
      const room = roundUp(piece.length, 8);
      at = start + room;
      if (piece.buffer === this.#run.buffer || piece.length < GATHERED) this.#parts.push(piece as Buffer);
      else this.#parts.push(this.#copy(piece, room));
    }
    this.bytes += this.#size;
  }

  #copy(piece: Uint8Array, room: number): Buffer {
    let own: Buffer;
    if (this.#pooling && room >= RUN && room <= LARGEST_POOLED) {
      const block = scratch.take(room);
      this.#pooled.push(block);
      own = block.subarray(0, room);
    } else own = Buffer.allocUnsafeSlow(room);
    own.set(piece, 0);
    own.fill(0, piece.length);
    return own;
  }

  /** Forgets the message under way. */
  abandon(): void {
    this.#size = 0;
    this.#open = false;
    if (this.#pieces.length > 0) {
      this.#pieces = [];
      this.#starts = [];
    }
    if (this.blocks.length > 0) this.blocks = [];
  }

  /** Hands over what is in line, and starts anew. */
  take(): Buffer[] {
    const parts = this.#parts;
    this.#parts = [];
    this.bytes = 0;
    return parts;
  }

  /** Gives back the blocks of what was taken; undefined if there are none. */
  takePooled(): (() => void) | undefined {
    const blocks = this.#pooled;
    if (blocks.length === 0) return undefined;
    this.#pooled = [];
    return () => {
      for (const block of blocks) scratch.give(block);
    };
  }

  /** The message under way, to be placed by whoever keeps it. */
  takeMessage(): { size: number; pieces: Uint8Array[]; starts: number[]; blocks: SharedBlock[] } {
    const message = { size: this.#size, pieces: this.#pieces, starts: this.#starts, blocks: this.blocks };
    this.#pieces = [];
    this.#starts = [];
    this.blocks = [];
    this.abandon();
    return message;
  }
}

function tooLarge(message: string): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_NOT_SERIALIZABLE', message);
}

/** Pieces laid out in one array. */
export function laidOut(size: number, pieces: Uint8Array[], starts: number[]): Uint8Array {
  if (size > MOST_ONE) throw tooLarge(`a value of ${size} bytes needs shared memory, of which there is not enough`);
  const all = Buffer.allocUnsafeSlow(size);
  let at = 0;
  pieces.forEach((piece, i) => {
    all.fill(0, at, starts[i]!);
    all.set(piece, starts[i]!);
    at = starts[i]! + piece.length;
  });
  all.fill(0, at);
  return all;
}
