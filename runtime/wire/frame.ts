// A frame: 16 bytes of prefix, msgpack messages, raw sections. Little endian.
//   0 u32 magic 'SFX1'   4 u32 bytes of messages   8 u32 bytes of sections / 8   12 u32 flags (1: start with a new decoder)
// The reader checks sizes before it allocates, copies sections once into a buffer of their own (aligned), and messages only when they
// do not lie in one received chunk.
import { RuntimeFailure } from '../api/errors.ts';
import { EMPTY } from './sections.ts';

export const PREFIX_BYTES = 16;
const MAGIC = 0x31584653;
const FRESH = 1;

export interface FrameLimits {
  messageBytes: number;
  sectionBytes: number;
}
/** Larger values belong in shared memory or in several calls. */
export const frameLimits: FrameLimits = { messageBytes: 256 * 2 ** 20, sectionBytes: 2 ** 32 - 8 };

export function writePrefix(into: Buffer, messageBytes: number, sectionBytes: number, fresh: boolean): void {
  into.writeUInt32LE(MAGIC, 0);
  into.writeUInt32LE(messageBytes, 4);
  into.writeUInt32LE(sectionBytes / 8, 8);
  into.writeUInt32LE(fresh ? FRESH : 0, 12);
}

export type OnFrame = (messages: Buffer, sections: Buffer, fresh: boolean) => void;

/** Cuts a byte stream into frames. Throws RuntimeFailure SINKFLEX_PROTOCOL; then the stream is of no more use. */
export class FrameReader {
  #onFrame: OnFrame;
  #limits: FrameLimits;
  #prefix = Buffer.alloc(PREFIX_BYTES);
  #prefixBytes = 0;
  #messages = EMPTY;
  #sections = EMPTY;
  #fresh = false;
  /** Bytes of messages and sections that have arrived; -1: the prefix is not complete. */
  #arrived = -1;

  constructor(onFrame: OnFrame, limits: FrameLimits = frameLimits) {
    this.#onFrame = onFrame;
    this.#limits = limits;
  }

  push(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.#arrived < 0) {
        if (this.#prefixBytes === 0 && chunk.length - at >= PREFIX_BYTES) {
          const end = this.#whole(chunk, at);
          if (end > 0) {
            at = end;
            continue;
          }
        }
        const take = Math.min(PREFIX_BYTES - this.#prefixBytes, chunk.length - at);
        chunk.copy(this.#prefix, this.#prefixBytes, at, at + take);
        this.#prefixBytes += take;
        at += take;
        if (this.#prefixBytes < PREFIX_BYTES) return;
        this.#begin();
      }
      at = this.#fill(chunk, at);
      if (this.#arrived === this.#messages.length + this.#sections.length) this.#finish();
    }
  }

  /** A whole frame, handed over by a transport that keeps nothing of it. */
  pushFrame(head: Buffer, sections: Buffer): void {
    const sizes = head.length >= PREFIX_BYTES ? this.#sizes(head, 0) : undefined;
    if (
      this.#prefixBytes > 0 ||
      sizes?.messages !== head.length - PREFIX_BYTES ||
      sizes.sections !== sections.length ||
      sections.byteOffset % 8 > 0
    )
      throw new RuntimeFailure('SINKFLEX_PROTOCOL', 'the peer handed over a frame whose sizes are wrong');
    this.#onFrame(head.subarray(PREFIX_BYTES), sections, sizes.fresh);
  }

  #sizes(prefix: Buffer, at: number): { messages: number; sections: number; fresh: boolean } {
    if (prefix.readUInt32LE(at) !== MAGIC) throw new RuntimeFailure('SINKFLEX_PROTOCOL', 'the peer sent bytes that are no frame');
    const messages = prefix.readUInt32LE(at + 4);
    const sections = prefix.readUInt32LE(at + 8) * 8;
    const flags = prefix.readUInt32LE(at + 12);
    if (messages === 0 || messages > this.#limits.messageBytes || sections > this.#limits.sectionBytes || flags > FRESH) {
      throw new RuntimeFailure(
        'SINKFLEX_PROTOCOL',
        `the peer announced a frame of ${messages} + ${sections} bytes (flags ${flags}), beyond the limits`,
      );
    }
    return { messages, sections, fresh: flags === FRESH };
  }

  /** A frame that lies whole in the chunk needs no assembly. Answers its end, or 0. */
  #whole(chunk: Buffer, at: number): number {
    const { messages, sections, fresh } = this.#sizes(chunk, at);
    const start = at + PREFIX_BYTES;
    const end = start + messages + sections;
    if (end > chunk.length) return 0;
    let own: Buffer = EMPTY;
    if (sections > 0) {
      own = Buffer.allocUnsafeSlow(sections);
      chunk.copy(own, 0, start + messages, end);
    }
    this.#onFrame(chunk.subarray(start, start + messages), own, fresh);
    return end;
  }

  #begin(): void {
    const { messages, sections, fresh } = this.#sizes(this.#prefix, 0);
    this.#messages = Buffer.allocUnsafeSlow(messages);
    this.#sections = sections > 0 ? Buffer.allocUnsafeSlow(sections) : EMPTY;
    this.#fresh = fresh;
    this.#arrived = 0;
  }

  #fill(chunk: Buffer, from: number): number {
    let at = from;
    const headerLeft = this.#messages.length - this.#arrived;
    if (headerLeft > 0) {
      const take = Math.min(headerLeft, chunk.length - at);
      chunk.copy(this.#messages, this.#arrived, at, at + take);
      this.#arrived += take;
      at += take;
    }
    const done = this.#arrived - this.#messages.length;
    if (done >= 0) {
      const take = Math.min(this.#sections.length - done, chunk.length - at);
      chunk.copy(this.#sections, done, at, at + take);
      this.#arrived += take;
      at += take;
    }
    return at;
  }

  #finish(): void {
    const messages = this.#messages;
    const sections = this.#sections;
    this.#messages = this.#sections = EMPTY;
    this.#arrived = -1;
    this.#prefixBytes = 0;
    this.#onFrame(messages, sections, this.#fresh);
  }
}
