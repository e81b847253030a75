/**
 * The conversation with the supervisor of a sandbox over one stream: a frame is two lengths (u32, little-endian), a JSON head and bytes.
 * What comes back is not trusted: sizes are bounded, and anything odd ends the channel.
 */
import type { Duplex, Readable, Writable } from 'node:stream';

export interface Reply {
  head: Record<string, unknown>;
  body: Buffer;
}

const MAX_HEAD = 64 * 1024;
const MAX_BODY = 64 * 2 ** 20;

interface Waiting {
  resolve(reply: Reply): void;
  reject(error: Error): void;
}

export class Channel {
  readonly #out: Writable;
  readonly #onEnd: (why: string) => void;
  #chunks: Buffer[] = [];
  #held = 0;
  #waiting: Waiting | undefined;
  #over: string | undefined;

  /** `onEnd` is called once, when nothing more can come. */
  constructor(input: Readable | Duplex, output: Writable | Duplex, onEnd: (why: string) => void) {
    this.#out = output;
    this.#onEnd = onEnd;
    input.on('data', (chunk: Buffer) => this.#take(chunk));
    input.on('end', () => this.end('the supervisor closed its end'));
    input.on('close', () => this.end('the supervisor closed its end'));
    input.on('error', (e: Error) => this.end(e.message));
    if ((output as unknown) !== input) output.on('error', (e: Error) => this.end(e.message));
  }

  /** One question at a time. */
  ask(head: Record<string, unknown>, ...body: readonly Uint8Array[]): Promise<Reply> {
    const frame = encode(head, body);
    const answer = this.next();
    if (this.#over === undefined) for (const part of frame) this.#out.write(part);
    return answer;
  }

  /** The next frame, which nobody asked for (the supervisor's first). */
  next(): Promise<Reply> {
    return new Promise((resolve, reject) => {
      if (this.#over !== undefined) reject(new Error(this.#over));
      else if (this.#waiting) reject(new Error('a question is open already'));
      else {
        this.#waiting = { resolve, reject };
        this.#read();
      }
    });
  }

  end(why: string): void {
    if (this.#over !== undefined) return;
    this.#over = why;
    const waiting = this.#waiting;
    this.#waiting = undefined;
    this.#chunks = [];
    waiting?.reject(new Error(why));
    this.#onEnd(why);
  }

  #take(chunk: Buffer): void {
    if (this.#over !== undefined) return;
    this.#chunks.push(chunk);
    this.#held += chunk.length;
    if (this.#held > MAX_HEAD + MAX_BODY + 8) this.end('the supervisor sent too much');
    else this.#read();
  }

  #read(): void {
    if (!this.#waiting || this.#held < 8) return;
    let all = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks);
    this.#chunks = [all];
    const [headBytes, bodyBytes] = [all.readUInt32LE(0), all.readUInt32LE(4)];
    if (headBytes > MAX_HEAD || bodyBytes > MAX_BODY) {
      this.end('the supervisor sent a frame beyond the limits');
      return;
    }
    const end = 8 + headBytes + bodyBytes;
    if (all.length < end) return;
    let head: unknown;
    try {
      head = JSON.parse(all.toString('utf8', 8, 8 + headBytes));
    } catch {
      this.end('the supervisor sent something that is not JSON');
      return;
    }
    if (typeof head !== 'object' || head === null) {
      this.end('the supervisor sent something that is not an object');
      return;
    }
    const body = Buffer.from(all.subarray(8 + headBytes, end));
    all = all.subarray(end);
    this.#chunks = all.length > 0 ? [all] : [];
    this.#held = all.length;
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting.resolve({ head: head as Record<string, unknown>, body });
  }
}

function encode(head: Record<string, unknown>, body: readonly Uint8Array[]): Buffer[] {
  const text = Buffer.from(JSON.stringify(head));
  const lengths = Buffer.alloc(8);
  lengths.writeUInt32LE(text.length, 0);
  lengths.writeUInt32LE(
    body.reduce((n, part) => n + part.length, 0),
    4,
  );
  return [Buffer.concat([lengths, text]), ...body.map((part) => Buffer.from(part.buffer, part.byteOffset, part.byteLength))];
}
