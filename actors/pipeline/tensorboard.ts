// TensorBoard event files, written by hand: TFRecord frames around Event messages of the protobuf wire format.
//
//   frame   u64 length | u32 masked crc32c(length) | payload | u32 masked crc32c(payload)          little endian
//   Event   1: double wall_time, 2: int64 step, 3: string file_version (first event only), 5: Summary
//   Summary 1: repeated Value { 1: string tag, 2: float simple_value }
import { hostname } from 'node:os';

const VERSION = 'brain.Event:2';

/** One event: the scalars of a step. `scalars` that are not finite are left to TensorBoard as they are (it draws them as gaps). */
export interface ScalarEvent {
  /** Seconds since 1970. */
  wallTime: number;
  step: number;
  scalars: Readonly<Record<string, number>>;
}

/** A name that TensorBoard recognises and that sorts by time. */
export function eventFileName(seconds: number, pid: number = process.pid): string {
  return `events.out.tfevents.${String(Math.floor(seconds)).padStart(10, '0')}.${hostname()}.${pid}.0`;
}

/** The frame that opens every event file. */
export function versionRecord(wallTime: number): Buffer {
  return frame(Buffer.concat([doubleField(1, wallTime), bytesField(3, Buffer.from(VERSION))]));
}

export function scalarRecord(event: ScalarEvent): Buffer {
  const values = Object.entries(event.scalars).map(([tag, value]) =>
    bytesField(1, Buffer.concat([bytesField(1, Buffer.from(tag)), floatField(2, value)])),
  );
  return frame(Buffer.concat([doubleField(1, event.wallTime), varintField(2, event.step), bytesField(5, Buffer.concat(values))]));
}

/** The frames of a file as views, cut at the first torn or damaged one (what a crash leaves behind). */
export function* frames(file: Buffer): Generator<{ whole: Buffer; payload: Buffer }> {
  let at = 0;
  while (at + 16 <= file.length) {
    const length = Number(file.readBigUInt64LE(at));
    const end = at + 12 + length + 4;
    if (end > file.length || file.readUInt32LE(at + 8) !== maskedCrc32c(file.subarray(at, at + 8))) return;
    const payload = file.subarray(at + 12, end - 4);
    if (file.readUInt32LE(end - 4) !== maskedCrc32c(payload)) return;
    yield { whole: file.subarray(at, end), payload };
    at = end;
  }
}

/** Step of an event that we wrote, undefined for the version record. */
export function stepOf(payload: Buffer): number | undefined {
  // wall_time comes first (tag and 8 bytes), then the step.
  if (payload[9] !== 0x10) return undefined;
  let value = 0;
  for (let i = 10, scale = 1; i < payload.length; i++, scale *= 128) {
    value += (payload[i]! & 0x7f) * scale;
    if ((payload[i]! & 0x80) === 0) break;
  }
  return value;
}

function frame(payload: Buffer): Buffer {
  const out = Buffer.alloc(payload.length + 16);
  out.writeBigUInt64LE(BigInt(payload.length), 0);
  out.writeUInt32LE(maskedCrc32c(out.subarray(0, 8)), 8);
  payload.copy(out, 12);
  out.writeUInt32LE(maskedCrc32c(payload), 12 + payload.length);
  return out;
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  while (rest >= 128) {
    bytes.push((rest % 128) | 0x80);
    rest = Math.floor(rest / 128);
  }
  bytes.push(rest);
  return Buffer.from(bytes);
}

const varintField = (field: number, value: number) => Buffer.concat([varint(field << 3), varint(value)]);
const bytesField = (field: number, bytes: Buffer) => Buffer.concat([varint((field << 3) | 2), varint(bytes.length), bytes]);
function doubleField(field: number, value: number): Buffer {
  const out = Buffer.alloc(9);
  out[0] = (field << 3) | 1;
  out.writeDoubleLE(value, 1);
  return out;
}
function floatField(field: number, value: number): Buffer {
  const out = Buffer.alloc(5);
  out[0] = (field << 3) | 5;
  out.writeFloatLE(value, 1);
  return out;
}

/** Castagnoli's polynomial, reflected. */
const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  let c = n;
  for (let k = 0; k < 8; k++) c = c & 1 ? (c >>> 1) ^ 0x82f63b78 : c >>> 1;
  return c >>> 0;
});

export function crc32c(data: Uint8Array): number {
  let c = 0xffffffff;
  for (const byte of data) c = CRC_TABLE[(c ^ byte) & 0xff]! ^ (c >>> 8);
  return (c ^ 0xffffffff) >>> 0;
}

/** TFRecord stores checksums rotated and offset, so that a checksum over data with embedded checksums stays meaningful. */
function maskedCrc32c(data: Uint8Array): number {
  const c = crc32c(data);
  return (((c >>> 15) | (c << 17)) + 0xa282ead8) >>> 0;
}
