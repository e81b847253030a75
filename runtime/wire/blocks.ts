// Which shared memory the large parts of messages of this thread go through, if any, and the arrays that were made in it. Descriptors of
// blocks are 40 opaque bytes that any process of the host opens.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { BlockPool, isSinkflexError, type SharedBlock, type SharedMemoryAddress, tellViews } from '../../kernels/host.ts';

/** Sections of a message that are smaller together go in the frame. */
export const SHARED_BYTES = 64 * 1024;
export const DESCRIPTOR_BYTES = 40;

/** Bytes of the content. */
export function contentBytes(descriptor: Uint8Array): number {
  return Number(new DataView(descriptor.buffer, descriptor.byteOffset, DESCRIPTOR_BYTES).getBigUint64(32, true));
}

const TICK_MS = 1000;

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
}

export function blockPool(): BlockPool | undefined {
  if (pool !== undefined) keepTicking();
  return pool;
}

/** While there are blocks or views. */
function keepTicking(): void {
  timer ??= setInterval(() => {
    pool?.trim();
    onTick();
    const { views } = tellViews(viewed > 0 ? UNTOLD_BYTES : 0);
    viewed = 0;
    if (views > 0 || (pool?.stats().blocks ?? 0) > 0) return;
    clearInterval(timer);
    timer = undefined;
  }, TICK_MS).unref();
}

/** There is another way than shared memory: the store is full, or the process has no descriptors or mappings left. */
export function isShortage(error: unknown): boolean {
  return (
    isSinkflexError(error) &&
    (error.code === 'SINKFLEX_OBJECT_STORE_FULL' || error.code === 'SINKFLEX_MEMORY_SHORT' || error.code === 'SINKFLEX_OS_FAILED')
  );
}

/** Views of so many bytes are worth a look at the young part of the heap, where most of them die: their blocks are used again then. */
const LOOK_AFTER_BYTES = 24 * 2 ** 20;
/** While the reader's own call is under way, before the next view: one that lives through two looks is old, and is left to the marking. */
const LOOK_SOON_MS = 1;
/** The reader of a large one is given longer. */
const LARGE = 32 * 2 ** 20;
const LOOK_AFTER_MS = 20;
/** What V8 need not know of views that come and go: it would mark its whole heap for 9 MB on a heap of 20. */
const UNTOLD_BYTES = 32 * 2 ** 20;
let viewed = 0;
let look: NodeJS.Timeout | undefined;
let collectYoung: (() => void) | undefined;

/** A view of so many bytes was made. V8 by itself collects views only after many, since each is a small object. */
export function noteView(bytes: number): void {
  viewed += bytes;
  keepTicking();
  if (viewed < LOOK_AFTER_BYTES || look !== undefined) return;
  look = setTimeout(
    () => {
      look = undefined;
      tellViews(viewed + UNTOLD_BYTES); // what was there at the look before is there to stay
      viewed = 0;
      collectYoung ??= youngCollector();
      collectYoung();
    },
    bytes < LARGE ? LOOK_SOON_MS : LOOK_AFTER_MS,
  );
  look.unref();
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
