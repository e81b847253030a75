// Collects the raw bytes of typed arrays for one frame, each at a multiple of 8 bytes from the start, copied when they are appended:
// what a caller changes later is not what is sent.

const BLOCK = 64 * 1024;
export const EMPTY: Buffer = Buffer.alloc(0);

/**
 * Large blocks that were sent come back for the next: touching fresh pages costs more than the copy itself. Sizes are powers of two.
 * One pool for each thread.
 */
class BlockPool {
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
const pool = new BlockPool();

export class SectionWriter {
  readonly #pooling: boolean;
  #pooled: Buffer[] = [];
  /** Finished blocks, in order; each length is a multiple of 8. */
  #parts: Buffer[] = [];
  #block: Buffer = EMPTY;
  #used = 0;
  /** Total so far, a multiple of 8. */
  bytes = 0;

  /** `pooling`: take() is followed by a call of what takePooled() answers, once the bytes are sent. */
  constructor(pooling = false) {
    this.#pooling = pooling;
  }

  /** Answers the offset of the copy. */
  append(data: Uint8Array): number {
    const offset = this.bytes;
    const padded = (data.length + 7) & ~7;
    const room = data.length >= 2 ** 31 - 8 ? Math.ceil(data.length / 8) * 8 : padded;
    if (room >= BLOCK) {
      this.#closeBlock();
      let own: Buffer;
      if (this.#pooling && room <= LARGEST_POOLED) {
        const block = pool.take(room);
        this.#pooled.push(block);
        own = block.subarray(0, room);
      } else own = Buffer.allocUnsafeSlow(room);
      own.set(data, 0);
      own.fill(0, data.length);
      this.#parts.push(own);
    } else {
      if (this.#used + room > this.#block.length) {
        this.#closeBlock();
        this.#block = Buffer.allocUnsafeSlow(BLOCK);
      }
      this.#block.set(data, this.#used);
      for (let i = this.#used + data.length; i < this.#used + room; i++) this.#block[i] = 0;
      this.#used += room;
    }
    this.bytes += room;
    return offset;
  }

  #closeBlock(): void {
    if (this.#used === 0) return;
    this.#parts.push(this.#block.subarray(0, this.#used));
    this.#block = this.#block.subarray(this.#used); // the rest of the block serves the next frame
    this.#used = 0;
  }

  /** Forgets what was appended since `bytes` was `mark`. */
  truncate(mark: number): void {
    this.#closeBlock();
    while (this.bytes > mark) {
      const last = this.#parts.pop()!;
      this.bytes -= last.length;
      if (this.bytes < mark) {
        this.#parts.push(last.subarray(0, mark - this.bytes));
        this.bytes = mark;
      }
    }
  }

  /** Hands over everything and starts anew. */
  take(): Buffer[] {
    this.#closeBlock();
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
      for (const block of blocks) pool.give(block);
    };
  }

  concatenated(): Uint8Array {
    const parts = this.take();
    if (parts.length === 1) return parts[0]!;
    const all = Buffer.allocUnsafeSlow(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }
}
