// What travels on a link, in binary messages (little endian):
//   u32 number (0: only an acknowledgement)   u32 highest number received so far   u32 bytes of the raw message that follows (0: none)
//   u32 CRC-32 of everything else, the raw message included: what was damaged on the way is never taken for something else
//   records: u8 kind, 3 bytes 0, u32 stream, u32 bytes, content
// The raw message, if there is one, is the content of the last record: a piece of a block goes out as it lies in memory.
import { crc32 } from 'node:zlib';
import { RuntimeFailure } from '../api/errors.ts';

export const PACKET_HEADER = 16;
/** Where the sum is. */
const SUM_AT = 12;
const RECORD_HEADER = 12;

export const record = {
  /** u32 caller, u32 callee, u8 purpose: a channel between two workers. */
  open: 1,
  /** u8 admission, or 255: it cannot be reached. */
  opened: 2,
  /** Bytes of the channel. */
  bytes: 3,
  /** Descriptor (40 bytes): the content of that block follows in pieces. */
  block: 4,
  piece: 5,
  /** u32 bytes more that the other side may send. */
  credit: 6,
  close: 7,
} as const;
export type RecordKind = (typeof record)[keyof typeof record];

/** Writes the header; `raw` follows. */
export function seal(packet: Buffer, number: number, acknowledged: number, raw: Buffer | undefined): void {
  packet.writeUInt32LE(number, 0);
  packet.writeUInt32LE(acknowledged, 4);
  packet.writeUInt32LE(raw?.length ?? 0, 8);
  packet.writeUInt32LE(sumOf(packet, raw), SUM_AT);
}

/** Whether it is what was sealed. */
export function isWhole(packet: Buffer, raw: Buffer | undefined): boolean {
  return (raw?.length ?? 0) === packet.readUInt32LE(8) && packet.readUInt32LE(SUM_AT) === sumOf(packet, raw);
}

function sumOf(packet: Buffer, raw: Buffer | undefined): number {
  const sum = crc32(packet.subarray(PACKET_HEADER), crc32(packet.subarray(0, SUM_AT)));
  return raw === undefined ? sum : crc32(raw, sum);
}

/** Builds one packet. */
export class PacketWriter {
  #buffer = Buffer.allocUnsafe(2048);
  #end = PACKET_HEADER;

  get empty(): boolean {
    return this.#end === PACKET_HEADER;
  }
  get bytes(): number {
    return this.#end;
  }

  add(kind: RecordKind, stream: number, content: Uint8Array | undefined, contentBytes = content?.length ?? 0): void {
    const inside = content?.length ?? 0;
    const needed = this.#end + RECORD_HEADER + inside;
    if (needed > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.max(needed, this.#buffer.length * 2));
      this.#buffer.copy(larger, 0, 0, this.#end);
      this.#buffer = larger;
    }
    this.#buffer.writeUInt32LE(kind, this.#end);
    this.#buffer.writeUInt32LE(stream, this.#end + 4);
    this.#buffer.writeUInt32LE(contentBytes, this.#end + 8);
    if (content !== undefined) this.#buffer.set(content, this.#end + RECORD_HEADER);
    this.#end = needed;
  }

  /** The packet, its header still to be written; starts the next. */
  take(): Buffer {
    const packet = this.#buffer.subarray(0, this.#end);
    this.#buffer = Buffer.allocUnsafe(2048);
    this.#end = PACKET_HEADER;
    return packet;
  }
}

export function wrong(what: string): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_PROTOCOL', `the other host sent ${what}`);
}

/** Calls back with each record. `raw`: the message that followed. Throws SINKFLEX_PROTOCOL. */
export function readRecords(packet: Buffer, raw: Buffer | undefined, each: (kind: number, stream: number, content: Buffer) => void): void {
  let at = PACKET_HEADER;
  let rawUsed = raw === undefined;
  while (at < packet.length) {
    if (packet.length - at < RECORD_HEADER) throw wrong('a record that is cut short');
    const kind = packet.readUInt32LE(at);
    const stream = packet.readUInt32LE(at + 4);
    const bytes = packet.readUInt32LE(at + 8);
    at += RECORD_HEADER;
    if (kind === record.piece) {
      if (raw === undefined || at !== packet.length || bytes !== raw.length) throw wrong('a piece of a block without its bytes');
      rawUsed = true;
      each(kind, stream, raw);
      return;
    }
    if (bytes > packet.length - at) throw wrong('a record that is cut short');
    each(kind, stream, packet.subarray(at, at + bytes));
    at += bytes;
  }
  if (!rawUsed) throw wrong('bytes that no record asked for');
}
