// A channel from a worker to itself, for calls between actors that share it: no socket, but the same frames, so that arguments are
// copied and failures look exactly as they do between processes.
import type { Transport } from './channel.ts';

class LoopbackEnd implements Transport {
  readonly handsOver = true;
  other: LoopbackEnd | undefined;
  #onData: ((chunk: Buffer, sections?: Buffer) => void) | undefined;
  #onClose: (() => void) | undefined;
  #waiting: Buffer[][] = [];

  write(chunks: Buffer[]): boolean {
    // Owned by the receiver from here on: its arrays are views of these bytes.
    this.other?.receive(chunks);
    return false;
  }

  receive(chunks: Buffer[]): void {
    this.#waiting.push(chunks);
    // Not the next tick: two actors that call each other must not keep the loop from its sockets and timers.
    if (this.#waiting.length === 1) setImmediate(() => this.#deliver());
  }

  #deliver(): void {
    const frames = this.#waiting;
    this.#waiting = [];
    for (const [head, ...sections] of frames) {
      if (sections.length === 0) this.#onData?.(head!);
      else this.#onData?.(head!, sections.length === 1 && sections[0]!.byteOffset % 8 === 0 ? sections[0]! : joined(sections));
    }
  }

  open(onData: (chunk: Buffer, sections?: Buffer) => void, onClose: () => void): void {
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

/** Sections in one buffer, aligned. */
export function joined(parts: Uint8Array[]): Buffer {
  const all = Buffer.allocUnsafeSlow(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Two ends; what is written to one arrives at the other. */
export function loopback(): [Transport, Transport] {
  const a = new LoopbackEnd();
  const b = new LoopbackEnd();
  a.other = b;
  b.other = a;
  return [a, b];
}
