// Blocks of shared memory between hosts: read where their owner has them, written where the reader will find them.
import { BlockPool, type BlockView, closeView, openBlock, type SharedBlock, type SharedMemoryAddress } from '../../kernels/host.ts';
import { RuntimeFailure } from '../api/errors.ts';
import { blockPool, contentBytes, isShortage, shareBlocks } from '../wire/index.ts';
import type { IncomingBlock, OutgoingBlock } from './stream.ts';

/** Blocks count in this account from now on, unless those of this thread already do. */
export function shareWith(account: SharedMemoryAddress | undefined): void {
  if (account !== undefined && blockPool() === undefined) shareBlocks(account, () => {});
}

/** One that a worker of this host was counted for as a reader. Undefined if its owner has gone. */
export function readBlock(descriptor: Uint8Array): OutgoingBlock | undefined {
  const bytes = contentBytes(descriptor);
  let content: ArrayBuffer | BlockView | undefined;
  try {
    content = openBlock(descriptor, false);
  } catch {
    return undefined;
  }
  if (content === undefined || bytes === 0) return undefined;
  return {
    descriptor,
    bytes,
    piece: (at, count) => (content instanceof ArrayBuffer ? Buffer.from(content, at, count) : Buffer.from(content.view(at, count))),
    done: () => closeView(content),
  };
}

/** One that arrives. `there`: it is complete, and one reader on the channel is counted. */
export function receiveBlock(bytes: number, channel: number, there: (descriptor: Uint8Array) => void): IncomingBlock {
  const pool = blockPool();
  if (pool === undefined)
    throw new RuntimeFailure('SINKFLEX_PROTOCOL', 'the other host sent a block, and this host has no shared memory for it');
  let block: SharedBlock;
  try {
    block = pool.create(bytes);
  } catch (error) {
    if (!isShortage(error)) throw error;
    // It is on its way, so the limit is passed for a moment; a worker of this host cannot be asked to make room.
    block = pool.create(bytes, BlockPool.noLimit);
  }
  return {
    write: (at, piece) => block.write([at], [piece]),
    done() {
      block.sent(channel);
      there(block.descriptor);
      block.release();
    },
    lost: () => block.release(),
  };
}
