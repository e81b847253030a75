// A channel over a pipe: the control connection between the head and those on other hosts.
import type { Transport } from '../wire/index.ts';
import { MAX_MESSAGE, type Pipe, type PipeEnd } from './pipe.ts';

export class PipeTransport implements Transport {
  readonly handsOver = false;
  readonly abroad = true;
  readonly #pipe: Pipe;
  /** How it ended, once it has. */
  end: PipeEnd | undefined;

  constructor(pipe: Pipe) {
    this.#pipe = pipe;
  }

  write(chunks: Buffer[], sent?: () => void): boolean {
    const data = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
    let at = 0;
    for (; data.length - at > MAX_MESSAGE; at += MAX_MESSAGE) this.#pipe.send(data.subarray(at, at + MAX_MESSAGE));
    this.#pipe.send(at === 0 ? data : data.subarray(at), sent);
    return chunks.length > 1 || this.#pipe.buffered === 0;
  }

  /** The other end has answered what was sent at that performance.now(). */
  onAnswered(callback: (sentAt: number) => void): void {
    this.#pipe.onAnswered = callback;
  }

  open(onData: (chunk: Buffer) => void, onClose: () => void): void {
    this.#pipe.open(onData, (how) => {
      this.end = how;
      onClose();
    });
  }

  close(): void {
    this.#pipe.close();
  }
}
