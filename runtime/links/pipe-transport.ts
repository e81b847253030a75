// A channel over a pipe: the control connection between the head and those on other hosts. Each message has a number and a sum (u32 number, u32
// CRC-32 of the rest and of the number): one that is missing or not what it was ends the connection, and both sides say again what they have.
import { crc32 } from 'node:zlib';
import type { Transport } from '../wire/index.ts';
import { MAX_MESSAGE, type Pipe, type PipeEnd } from './pipe.ts';

const HEADER = 8;
const MOST = MAX_MESSAGE - HEADER;

export class PipeTransport implements Transport {
  readonly handsOver = false;
  readonly abroad = true;
  readonly #pipe: Pipe;
  #sent = 0;
  #received = 0;
  /** How it ended, once it has. */
  end: PipeEnd | undefined;

  constructor(pipe: Pipe) {
    this.#pipe = pipe;
  }

  write(chunks: Buffer[], sent?: () => void): boolean {
    const data = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
    for (let at = 0; at < data.length; at += MOST)
      this.#pipe.send(this.#sealed(data.subarray(at, at + MOST)), at + MOST < data.length ? undefined : sent);
    return true;
  }

  #sealed(part: Buffer): Buffer {
    const header = Buffer.allocUnsafe(HEADER);
    this.#sent = (this.#sent + 1) >>> 0;
    header.writeUInt32LE(this.#sent, 0);
    header.writeUInt32LE(sumOf(header, part), 4);
    return Buffer.concat([header, part]);
  }

  /** Undefined: it is not the next one, or not what it was. */
  #opened(message: Buffer): Buffer | undefined {
    if (message.length < HEADER) return undefined;
    const part = message.subarray(HEADER);
    this.#received = (this.#received + 1) >>> 0;
    return message.readUInt32LE(0) === this.#received && message.readUInt32LE(4) === sumOf(message, part) ? part : undefined;
  }

  /** The other end has answered what was sent at that performance.now(). */
  onAnswered(callback: (sentAt: number) => void): void {
    this.#pipe.onAnswered = callback;
  }

  open(onData: (chunk: Buffer) => void, onClose: () => void): void {
    this.#pipe.open(
      (message) => {
        const part = this.#opened(message);
        if (part === undefined) this.#pipe.destroy('damaged');
        else onData(part);
      },
      (how) => {
        this.end = how;
        onClose();
      },
    );
  }

  close(): void {
    this.#pipe.close();
  }
}

function sumOf(header: Buffer, part: Buffer): number {
  return crc32(part, crc32(header.subarray(0, 4)));
}
