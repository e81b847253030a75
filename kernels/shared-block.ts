// Blocks of shared memory that carry a value from its owner to readers of the host, and come back to be used again: what the runtime's
// large messages and objects travel in. The protocol: kernels/memory/shared_block.h.
import { awaitNative, callNative } from './errors.ts';
import { addon } from './native.ts';
import { SharedMemory, type SharedMemoryAddress } from './shared-memory.ts';

const ACCOUNT_BYTES = 16384;

export interface BlockState {
  bytes: number;
  /** Views of readers that are not collected yet. */
  pins: number;
  /** Readers that were told of the block and have not opened it. */
  inFlight: number;
  /** Processes of the pins. */
  holders: number[];
}

export interface BlockPoolStats {
  /** What all processes of the run may have and do have on this host, bytes. */
  limit: number;
  hostUsed: number;
  /** Of this process: all, kept for reuse, waiting for readers, and held. */
  used: number;
  free: number;
  waiting: number;
  held: number;
  blocks: number;
}

/** Content that is larger than a view can be: several views of it. */
export interface BlockView {
  view(offset: number, bytes: number): ArrayBuffer;
}

interface ViewBytes {
  /** Of views that are there. 0 where V8 counts views when they are made. */
  views: number;
  /** What V8 counts of all memory outside its heap. */
  external: number;
}

interface NativePool {
  send(bytes: number, offsets: number[], sources: Uint8Array[], channel: number, reserve: number): Uint8Array;
  channelGone(channel: number): void;
  trim(): void;
  leave(): void;
  stats(): BlockPoolStats;
}
interface NativeBlock {
  descriptor(): Uint8Array;
  count(): void;
  write(offsets: number[], sources: Uint8Array[]): void;
  view(offset: number, bytes: number): ArrayBuffer;
  seal(): void;
  sent(channel: number): void;
  state(): BlockState;
  release(): void;
  transfer(fd: number, out: boolean): string;
  transferLater(fd: number, out: boolean): Promise<string>;
}
const native = addon as unknown as {
  BlockPool: new (account: SharedMemoryAddress) => NativePool;
  SharedBlock: new (pool: NativePool, bytes: number, reserve: number) => NativeBlock;
  openBlock(descriptor: Uint8Array, claim: boolean): ArrayBuffer | BlockView | undefined;
  tellViews(slack: number): ViewBytes;
  newChannel(): number;
  detach(buffer: ArrayBuffer): void;
};

/** What the processes of a run may have together. The maker keeps it for the length of the run. */
export function makeBlockAccount(limitBytes: number): SharedMemory {
  const account = SharedMemory.create(ACCOUNT_BYTES);
  new BigUint64Array(account.view(0, 8).buffer, 0, 1)[0] = BigInt(limitBytes);
  return account;
}

/** A number for what messages travel on, unique in the process. */
export function newBlockChannel(): number {
  return native.newChannel();
}

/**
 * Maps the content for this reader only (copy on write); the ArrayBuffer holds a pin until it is collected. `claim`: the owner does not
 * know of this reader; undefined when the content is no longer there. Otherwise the owner counted this reader, who must open it once, and
 * SINKFLEX_MEMORY_GONE says that the owner is dead.
 */
export function openBlock(descriptor: Uint8Array, claim: boolean): ArrayBuffer | BlockView | undefined {
  return callNative(() => native.openBlock(descriptor, claim));
}

/**
 * V8 counts the views of this thread from now on, all or all but `slack` bytes. It does not count them when they are made: it would look
 * for garbage at once, and most are dead soon.
 */
export function tellViews(slack: number): ViewBytes {
  return callNative(() => native.tellViews(slack));
}

/** Ends a view that nobody needs now instead of when it is collected. */
export function closeView(content: ArrayBuffer | BlockView): void {
  if (content instanceof ArrayBuffer) native.detach(content);
}

/** Blocks from this size on are told to V8 a little later: most are released by then, and counting may make it look for garbage. */
const COUNTED_LATER = 2 ** 20;
const COUNT_AFTER_MS = 20;
/** Unless so many bytes wait for it. */
const MOST_UNCOUNTED = 512 * 2 ** 20;
const uncounted = new Set<SharedBlock>();
let uncountedBytes = 0;
let counting: NodeJS.Timeout | undefined;

function countAll(): void {
  clearTimeout(counting);
  counting = undefined;
  for (const block of uncounted) block.count();
  uncounted.clear();
  uncountedBytes = 0;
}

function countLater(block: SharedBlock): void {
  if (uncountedBytes > MOST_UNCOUNTED) countAll();
  uncounted.add(block);
  uncountedBytes += block.bytes;
  counting ??= setTimeout(countAll, COUNT_AFTER_MS).unref();
}

/** One block, owned by this process until release(). */
export class SharedBlock {
  readonly bytes: number;
  readonly descriptor: Uint8Array;
  readonly #native: NativeBlock;

  constructor(block: NativeBlock, bytes: number) {
    this.#native = block;
    this.bytes = bytes;
    this.descriptor = block.descriptor();
    if (bytes >= COUNTED_LATER) countLater(this);
    else block.count();
  }

  /** V8 knows of its memory from now on. */
  count(): void {
    this.#native.count();
  }

  /** Copies each source to its offset: large ones by several threads and past the caches. */
  write(offsets: number[], sources: Uint8Array[]): void {
    callNative(() => this.#native.write(offsets, sources));
  }

  /** The owner's view: what is written is the content, until it is sealed. Keeps the block from being used again. */
  view(offset = 0, bytes = this.bytes - offset): ArrayBuffer {
    return callNative(() => this.#native.view(offset, bytes));
  }

  /** The content is fixed: what is written through the owner's views from now on stays in this process. */
  seal(): void {
    callNative(() => this.#native.seal());
  }

  /** One reader will be told of it over the channel. */
  sent(channel: number): void {
    callNative(() => this.#native.sent(channel));
  }

  /** The content to an open file, or (`out` false) from it; answers its checksum. SINKFLEX_OBJECT_STORE_FULL when the disk is. */
  transfer(fd: number, out: boolean): string {
    return callNative(() => this.#native.transfer(fd, out));
  }

  /** The same in a thread of its own. */
  transferLater(fd: number, out: boolean): Promise<string> {
    return awaitNative(callNative(() => this.#native.transferLater(fd, out)));
  }

  state(): BlockState {
    return callNative(() => this.#native.state());
  }

  /** Readers keep what they have. Collection does the same, later. */
  release(): void {
    if (uncounted.delete(this)) uncountedBytes -= this.bytes;
    this.#native.release();
  }
}

/** The blocks of this process; threads of one process share them. */
export class BlockPool {
  readonly #native: NativePool;

  constructor(account: SharedMemoryAddress) {
    this.#native = callNative(() => new native.BlockPool(account));
  }

  /** For `reserve`: only the machine's memory counts. */
  static readonly noLimit: number = 2 ** 46;

  /** SINKFLEX_OBJECT_STORE_FULL when more than `limit - reserve` would be in use, SINKFLEX_MEMORY_SHORT when the machine has no room. */
  create(bytes: number, reserve = 0): SharedBlock {
    return new SharedBlock(
      callNative(() => new native.SharedBlock(this.#native, bytes, reserve)),
      bytes,
    );
  }

  /** A block for one reader: its descriptor. It comes back by itself when the reader is done. */
  send(bytes: number, offsets: number[], sources: Uint8Array[], channel: number, reserve = 0): Uint8Array {
    return callNative(() => this.#native.send(bytes, offsets, sources, channel, reserve));
  }

  /** What is in flight on the channel may never arrive: after a while it is given up. */
  channelGone(channel: number): void {
    this.#native.channelGone(channel);
  }

  /** Takes back what readers are done with, and gives memory that was not used for some seconds to the system. Call every second or so. */
  trim(): void {
    this.#native.trim();
  }

  /** This thread has done: what is not held or read is let go of, after the last thread of the process what is not held. */
  leave(): void {
    this.#native.leave();
  }

  stats(): BlockPoolStats {
    return this.#native.stats();
  }
}
