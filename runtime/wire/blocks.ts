// Which shared memory the large parts of messages of this thread go through, if any, and the arrays that were made in it. Descriptors of
// blocks are 40 opaque bytes that any process of the host opens.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { BlockPool, isSinkflexError, type SharedBlock, type SharedMemoryAddress, ViewRoom } from '../../kernels/host.ts';

/** Sections of a message that are smaller together go in the frame. */
export const SHARED_BYTES = 64 * 1024;
export const DESCRIPTOR_BYTES = 40;

/** Bytes of the content. */
export function contentBytes(descriptor: Uint8Array): number {
  return Number(new DataView(descriptor.buffer, descriptor.byteOffset, DESCRIPTOR_BYTES).getBigUint64(32, true));
}

const TRIM_MS = 1000;

let pool: BlockPool | undefined;
let timer: NodeJS.Timeout | undefined;
let onTick = (): void => {};

/** Large parts go through shared memory of the account from now on; answers the pool. `tick` is called now and then while there are blocks. */
export function shareBlocks(account: SharedMemoryAddress, tick: () => void): BlockPool {
  pool = new BlockPool(account);
  onTick = tick;
  return pool;
}

/** From now on they go in the frames. Blocks that readers have stay with them. */
export function unshareBlocks(): void {
  clearInterval(timer);
  timer = undefined;
  pool?.leave();
  pool = undefined;
  closeRoom();
}

export function blockPool(): BlockPool | undefined {
  if (pool !== undefined && timer === undefined) {
    const own = pool;
    timer = setInterval(() => {
      own.trim();
      onTick();
      if (own.stats().blocks > 0) return;
      clearInterval(timer);
      timer = undefined;
    }, TRIM_MS);
    timer.unref();
  }
  return pool;
}

/** There is another way than shared memory: the store is full, or the process has no descriptors or mappings left. */
export function isShortage(error: unknown): boolean {
  return (
    isSinkflexError(error) &&
    (error.code === 'SINKFLEX_OBJECT_STORE_FULL' || error.code === 'SINKFLEX_MEMORY_SHORT' || error.code === 'SINKFLEX_OS_FAILED')
  );
}

/**
 * Views of so many bytes are worth a look at the young part of the heap, where most of them die: their blocks are used again then. On a
 * heap of 20 MB, V8 marks all of it when external memory is 9 MB above its least, again and again while values of 10 MB come and go; a
 * look takes a third of a millisecond.
 */
const LOOK_AFTER_BYTES = 8 * 2 ** 20;
/** While the reader's own call is under way, before the next view: one that lives through two looks is old, and is left to the marking. */
const LOOK_SOON_MS = 1;
/** One such view is past that anyway; the look waits until its reader has had it. */
const LARGE = 32 * 2 ** 20;
const LOOK_AFTER_MS = 20;
let viewed = 0;
let look: NodeJS.Timeout | undefined;
let collectYoung: (() => void) | undefined;

/** A view of so many bytes was made. V8 by itself collects views only after many, since each is a small object. */
export function noteView(bytes: number): void {
  viewed += bytes;
  if (bytes >= LARGE && bytes <= LARGEST_ROOM) nextRoom = bytes;
  if (viewed < (bytes < LARGE ? LOOK_AFTER_BYTES : LARGE) || look !== undefined) return;
  look = setTimeout(
    () => {
      look = undefined;
      viewed = 0;
      collectYoung ??= youngCollector();
      collectYoung();
      makeRoom();
    },
    bytes < LARGE ? LOOK_SOON_MS : LOOK_AFTER_MS,
  );
  look.unref();
}

// Views of one size often follow each other: room for the next one is made while nobody waits.
const LARGEST_ROOM = 2 ** 32;
const ROOM_FOR_MS = 5000;
let nextRoom = 0;
let room: ViewRoom | undefined;
let roomEnds: NodeJS.Timeout | undefined;

function makeRoom(): void {
  const bytes = nextRoom;
  nextRoom = 0;
  if (bytes === 0 || pool === undefined) return;
  if (roomEnds === undefined) roomEnds = setTimeout(closeRoom, ROOM_FOR_MS).unref();
  else roomEnds.refresh();
  if (room?.bytes === bytes) return;
  room?.close();
  room = undefined;
  try {
    room = new ViewRoom(bytes);
  } catch {
    // No addresses: views are made when they are needed.
  }
}

function closeRoom(): void {
  clearTimeout(roomEnds);
  roomEnds = undefined;
  nextRoom = 0;
  room?.close();
  room = undefined;
}

/** Room for a view of so many bytes, if there is one. */
export function takeRoom(bytes: number): ViewRoom | undefined {
  if (room?.bytes !== bytes) return undefined;
  const taken = room;
  room = undefined;
  return taken;
}

function youngCollector(): () => void {
  try {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as (options: { type: 'minor' }) => void;
    return () => collect({ type: 'minor' });
  } catch {
    return () => {}; // V8 does it by itself, later
  }
}

/** Blocks of arrays that were made in shared memory. */
const made = new WeakMap<ArrayBufferLike, SharedBlock>();

/** An array's memory in the block: its content is written in place. */
export function viewToFill(block: SharedBlock): ArrayBuffer {
  const buffer = block.view();
  made.set(buffer, block);
  return buffer;
}

/** The block that the array was made in, if it was: its content is fixed from now on, whatever is written here. */
export function sealedBlockOf(buffer: ArrayBufferLike): SharedBlock | undefined {
  const block = made.get(buffer);
  block?.seal();
  return block;
}
