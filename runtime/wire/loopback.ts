// A channel from a worker to itself, for calls between actors that share it: no socket, but the same frames, so that arguments are
// copied and failures look exactly as they do between processes.
import type { Transport } from './channel.ts';

class LoopbackEnd implements Transport {
  readonly handsOver = true;
  other: LoopbackEnd | undefined;
  #onData: ((chunk: Buffer) => void) | undefined;
  #onClose: (() => void) | undefined;
  #waiting: Buffer[] = [];

  write(chunks: Buffer[]): boolean {
    // Owned by the receiver from here on: its arrays are views of these bytes.
    for (const chunk of chunks) this.other?.receive(chunk);
    return false;
  }

  receive(chunk: Buffer): void {
    this.#waiting.push(chunk);
    // Not the next tick: two actors that call each other must not keep the loop from its sockets and timers.
    if (this.#waiting.length === 1) setImmediate(() => this.#deliver());
  }

  #deliver(): void {
    const chunks = this.#waiting;
    this.#waiting = [];
    for (const chunk of chunks) this.#onData?.(chunk);
  }

  open(onData: (chunk: Buffer) => void, onClose: () => void): void {
    this.#onData = onData;
    this.#onClose = onClose;
  }

  close(): void {
    const other = this.other;
    this.other = undefined;
    if (other !== undefined) {
      setImmediate(() => {
        other.other = undefined;
        other.#onClose?.();
      });
    }
  }
}

/** Two ends; what is written to one arrives at the other. */
export function loopback(): [Transport, Transport] {
  const a = new LoopbackEnd();
  const b = new LoopbackEnd();
  a.other = b;
  b.other = a;
  return [a, b];
}
