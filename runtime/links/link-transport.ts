// A channel between two workers of different hosts over a link of their own: no other process is on its way.
import { newBlockChannel } from '../../kernels/host.ts';
import { type BlockCarrier, BroughtBlocks, blockPool, type Transport } from '../wire/index.ts';
import { readBlock, receiveBlock } from './blocks.ts';
import type { Link } from './link.ts';
import type { IncomingBlock, Stream, StreamEnd } from './stream.ts';

export class LinkTransport implements Transport, BlockCarrier, StreamEnd {
  readonly handsOver = false;
  readonly abroad = true;
  readonly blocks: BlockCarrier = this;
  readonly #link: Link;
  readonly #stream: Stream;
  readonly #onOver: () => void;
  readonly #brought = new BroughtBlocks();
  /** Readers of blocks are counted for this way; 0: there is no shared memory. */
  readonly #channel = blockPool() === undefined ? 0 : newBlockChannel();
  /** What came before anybody listened. */
  #early: Buffer[] | undefined = [];
  #onData: (chunk: Buffer) => void = () => {};
  #onClose: (() => void) | undefined;
  #over = false;

  /** `onOver`: nothing comes or goes any more. */
  constructor(link: Link, stream: Stream, onOver: () => void) {
    this.#link = link;
    this.#stream = stream;
    this.#onOver = onOver;
    stream.end = this;
  }

  // --- of the worker

  announce(descriptor: Uint8Array): void {
    const block = readBlock(descriptor);
    // Its owner has gone, and with it what was to be said.
    if (block === undefined) this.#link.abort(this.#stream);
    else this.#stream.sendBlock(block);
  }

  find(descriptor: Uint8Array): Uint8Array | undefined {
    return this.#brought.take(descriptor);
  }

  write(chunks: Buffer[], sent?: () => void): boolean {
    this.#stream.write(Buffer.concat(chunks));
    sent?.();
    return true;
  }

  open(onData: (chunk: Buffer) => void, onClose: () => void): void {
    this.#onData = onData;
    this.#onClose = onClose;
    const early = this.#early ?? [];
    this.#early = undefined;
    for (const chunk of early) this.#pass(chunk);
    if (this.#over) process.nextTick(onClose);
  }

  close(): void {
    this.#stream.close();
  }

  // --- of the link

  onBytes(chunk: Buffer): void {
    if (this.#early === undefined) this.#pass(chunk);
    else this.#early.push(chunk);
  }

  #pass(chunk: Buffer): void {
    this.#onData(chunk);
    this.#link.consumed(this.#stream, chunk.length);
  }

  onBlock(descriptor: Uint8Array, bytes: number): IncomingBlock {
    return receiveBlock(bytes, this.#channel, (here) => this.#brought.add(descriptor, here));
  }

  onDrain(): void {}

  onClose(): void {
    this.#over = true;
    if (this.#channel !== 0) blockPool()?.channelGone(this.#channel);
    this.#onOver();
    this.#onClose?.();
  }
}
