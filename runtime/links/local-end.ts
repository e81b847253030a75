// The end of a stream on this host: a local socket to one of its workers, with the records of wire/carried.ts on it.
import type { Socket } from 'node:net';
import { newBlockChannel } from '../../kernels/host.ts';
import { BLOCK, BYTES, blockPool, DESCRIPTOR_BYTES, type Entered, RecordReader, recordHeader } from '../wire/index.ts';
import { readBlock, receiveBlock } from './blocks.ts';
import type { Link } from './link.ts';
import type { IncomingBlock, Stream, StreamEnd } from './stream.ts';

export class LocalEnd implements StreamEnd {
  readonly #socket: Socket;
  readonly #link: Link;
  readonly #stream: Stream;
  /** Readers of blocks are counted for this way; 0: there is no shared memory. */
  readonly #channel: number;
  #closed = false;

  constructor({ socket, rest }: Entered, link: Link, stream: Stream) {
    this.#socket = socket;
    this.#link = link;
    this.#stream = stream;
    this.#channel = blockPool() === undefined ? 0 : newBlockChannel();
    stream.end = this;
    const reader = new RecordReader(
      DESCRIPTOR_BYTES,
      (chunk) => this.#more(stream.write(chunk)),
      (descriptor) => {
        const block = readBlock(new Uint8Array(descriptor));
        // Its owner has gone, and with it whoever sent this.
        if (block === undefined) this.#socket.destroy();
        else this.#more(stream.sendBlock(block));
      },
    );
    socket.on('data', (chunk: Buffer) => {
      try {
        reader.push(chunk);
      } catch (error) {
        process.stderr.write(`[sinkflex] a worker was cut off: ${(error as Error).message}\n`);
        socket.destroy();
      }
    });
    socket.on('close', () => {
      this.#over();
      stream.close();
    });
    if (rest.length > 0) socket.unshift(rest);
    if (socket.destroyed) setImmediate(() => stream.close());
    else socket.resume();
  }

  /** The link takes no more for now: so does this host's worker wait. */
  #more(room: boolean): void {
    if (!room) this.#socket.pause();
  }

  onDrain(): void {
    this.#socket.resume();
  }

  onBytes(chunk: Buffer): void {
    const { length } = chunk;
    this.#socket.cork();
    this.#socket.write(recordHeader(BYTES, length));
    this.#socket.write(chunk, () => this.#link.consumed(this.#stream, length));
    process.nextTick(() => this.#socket.uncork());
  }

  onBlock(descriptor: Uint8Array, bytes: number): IncomingBlock {
    return receiveBlock(bytes, this.#channel, (here) => {
      this.#socket.write(Buffer.concat([recordHeader(BLOCK, 2 * DESCRIPTOR_BYTES), descriptor, here]));
    });
  }

  onClose(): void {
    this.#socket.destroySoon();
    this.#over();
  }

  #over(): void {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#channel !== 0) blockPool()?.channelGone(this.#channel);
  }
}
