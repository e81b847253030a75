// Channels to workers of other hosts, as a worker has them: a local socket to the gateway of its host, which brings the bytes there and
// the blocks of shared memory that they name. On that socket:
//   u32 kind   u32 bytes   then: 1 bytes of the channel; 2 descriptor of a block that the next of them name (to the gateway: 40 bytes; from
//   it: 40 bytes, then the 40 of the block that is here in its stead)
import type { Socket } from 'node:net';
import { RuntimeFailure } from '../api/errors.ts';
import { DESCRIPTOR_BYTES } from './blocks.ts';
import type { BlockCarrier, Transport } from './channel.ts';

export const RECORD_HEADER = 8;
export const BYTES = 1;
export const BLOCK = 2;

export function recordHeader(kind: number, bytes: number): Buffer {
  const header = Buffer.allocUnsafe(RECORD_HEADER);
  header.writeUInt32LE(kind, 0);
  header.writeUInt32LE(bytes, 4);
  return header;
}

/** Cuts what comes over such a socket into records; bytes are passed on as they come. Throws SINKFLEX_PROTOCOL. */
export class RecordReader {
  readonly #onBytes: (chunk: Buffer) => void;
  readonly #onBlock: (descriptors: Buffer) => void;
  readonly #blockBytes: number;
  readonly #header = Buffer.alloc(RECORD_HEADER);
  #headerBytes = 0;
  /** Of the record under way. */
  #left = 0;
  #block: Buffer | undefined;

  /** `blockBytes`: of a record about a block. */
  constructor(blockBytes: number, onBytes: (chunk: Buffer) => void, onBlock: (descriptors: Buffer) => void) {
    this.#blockBytes = blockBytes;
    this.#onBytes = onBytes;
    this.#onBlock = onBlock;
  }

  push(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.#left === 0) {
        const take = Math.min(RECORD_HEADER - this.#headerBytes, chunk.length - at);
        chunk.copy(this.#header, this.#headerBytes, at, at + take);
        this.#headerBytes += take;
        at += take;
        if (this.#headerBytes < RECORD_HEADER) return;
        this.#headerBytes = 0;
        this.#begin(this.#header.readUInt32LE(0), this.#header.readUInt32LE(4));
        continue;
      }
      const take = Math.min(this.#left, chunk.length - at);
      const piece = chunk.subarray(at, at + take);
      at += take;
      this.#left -= take;
      if (this.#block === undefined) this.#onBytes(piece);
      else {
        piece.copy(this.#block, this.#blockBytes - this.#left - take);
        if (this.#left > 0) continue;
        const block = this.#block;
        this.#block = undefined;
        this.#onBlock(block);
      }
    }
  }

  #begin(kind: number, bytes: number): void {
    if (bytes === 0 || (kind !== BYTES && (kind !== BLOCK || bytes !== this.#blockBytes)))
      throw new RuntimeFailure('SINKFLEX_PROTOCOL', `the gateway's socket carries a record of unknown kind ${kind} (${bytes} bytes)`);
    this.#left = bytes;
    if (kind === BLOCK) this.#block = Buffer.alloc(bytes);
  }
}

/** Blocks of a peer's host that are here now: what each of them is called there, and those that are here in its stead, first come first. */
export class BroughtBlocks {
  readonly #here = new Map<string, Uint8Array[]>();

  add(there: Uint8Array, here: Uint8Array): void {
    const key = keyOf(there);
    const known = this.#here.get(key);
    if (known === undefined) this.#here.set(key, [here]);
    else known.push(here);
  }

  take(there: Uint8Array): Uint8Array | undefined {
    const key = keyOf(there);
    const here = this.#here.get(key);
    const first = here?.shift();
    if (here?.length === 0) this.#here.delete(key);
    return first;
  }
}

export class CarriedTransport implements Transport, BlockCarrier {
  readonly handsOver = false;
  readonly abroad = true;
  readonly blocks: BlockCarrier = this;
  readonly #socket: Socket;
  readonly #early: Buffer;
  readonly #brought = new BroughtBlocks();

  /** `early`: what came together with the last message of the handshake. */
  constructor(socket: Socket, early: Buffer) {
    this.#socket = socket;
    this.#early = early;
    socket.on('error', () => {}); // 'close' follows
    socket.pause();
  }

  announce(descriptor: Uint8Array): void {
    this.#socket.write(Buffer.concat([recordHeader(BLOCK, DESCRIPTOR_BYTES), descriptor]));
  }

  find(descriptor: Uint8Array): Uint8Array | undefined {
    return this.#brought.take(descriptor);
  }

  write(chunks: Buffer[], sent?: () => void): boolean {
    const socket = this.#socket;
    let bytes = 0;
    for (const chunk of chunks) bytes += chunk.length;
    socket.cork();
    socket.write(recordHeader(BYTES, bytes));
    writeChunks(socket, chunks, sent);
    socket.uncork();
    return socket.writableLength === 0;
  }

  open(onData: (chunk: Buffer) => void, onClose: () => void): void {
    const socket = this.#socket;
    const reader = new RecordReader(2 * DESCRIPTOR_BYTES, onData, (both) =>
      this.#brought.add(both.subarray(0, DESCRIPTOR_BYTES), new Uint8Array(both.subarray(DESCRIPTOR_BYTES))),
    );
    socket.on('data', (chunk: Buffer) => {
      try {
        reader.push(chunk);
      } catch (error) {
        process.stderr.write(`[sinkflex] ${(error as Error).message}\n`);
        socket.destroy();
      }
    });
    socket.on('close', onClose);
    if (socket.destroyed) process.nextTick(onClose);
    else if (this.#early.length > 0) socket.unshift(this.#early);
    socket.resume();
  }

  close(): void {
    this.#socket.destroySoon();
  }
}

/** `sent`: when all of it has been taken. */
export function writeChunks(socket: Socket, chunks: Buffer[], sent?: () => void): void {
  const last = chunks.length - 1;
  for (let i = 0; i < last; i++) socket.write(chunks[i]!);
  if (sent === undefined) socket.write(chunks[last]!);
  else socket.write(chunks[last]!, sent);
}

function keyOf(descriptor: Uint8Array): string {
  return Buffer.from(descriptor.buffer, descriptor.byteOffset, descriptor.byteLength).toString('latin1');
}
