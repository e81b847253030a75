// The safetensors format: 8 bytes little-endian header length, a JSON header, the data. Files are taken for hostile: every size is checked
// against the file before anything is read or allocated by it.
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { SinkflexError, shown } from './errors.ts';

export interface StoredTensor {
  name: string;
  dtype: string;
  shape: number[];
  /** Bytes from the start of the data section. */
  begin: number;
  end: number;
}

export interface SafetensorsHeader {
  tensors: Map<string, StoredTensor>;
  metadata: Record<string, string>;
  /** Bytes from the start of the file to the data section. */
  dataStart: number;
}

/** The format's own bound on the header. */
const maxHeaderBytes = 100_000_000;

// biome-ignore format: a table
const dtypeBytes: Record<string, number> = {
  BOOL: 1, U8: 1, I8: 1, F8_E5M2: 1, F8_E4M3: 1, I16: 2, U16: 2, F16: 2, BF16: 2, I32: 4, U32: 4, F32: 4, F64: 8, I64: 8, U64: 8,
};

/** The length, the JSON and the spaces that make the whole a multiple of 64 bytes. */
export function encodeHeader(tensors: StoredTensor[], metadata: Record<string, string>): Uint8Array {
  const entries: Record<string, unknown> = { __metadata__: metadata };
  for (const t of tensors) entries[t.name] = { dtype: t.dtype, shape: t.shape, data_offsets: [t.begin, t.end] };
  const json = new TextEncoder().encode(JSON.stringify(entries));
  const length = Math.ceil((8 + json.length) / 64) * 64 - 8;
  const header = new Uint8Array(8 + length).fill(0x20);
  new DataView(header.buffer).setBigUint64(0, BigInt(length), true);
  header.set(json, 8);
  return header;
}

function corrupt(file: string, what: string): SinkflexError {
  return new SinkflexError('SINKFLEX_CHECKPOINT_CORRUPT', `${file}: ${what}`, { details: { file } });
}

function isSize(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

function parseEntry(file: string, name: string, value: unknown, dataBytes: number): StoredTensor {
  const bad = (what: string): SinkflexError => corrupt(file, `tensor ${shown(name)} ${what}`);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw bad('is not described by an object');
  const { dtype, shape, data_offsets: offsets } = value as Record<string, unknown>;
  if (typeof dtype !== 'string' || !Object.hasOwn(dtypeBytes, dtype)) throw bad(`has an unknown dtype ${shown(dtype)}`);
  if (!Array.isArray(shape) || shape.length > 8 || !shape.every(isSize)) throw bad('has a malformed shape');
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize)) throw bad('has malformed data_offsets');
  const [begin, end] = offsets as [number, number];
  if (begin > end || end > dataBytes) throw bad(`lies at [${begin}, ${end}), outside the ${dataBytes} bytes of data`);
  const bytes = shape.reduce((product, size) => product * size, dtypeBytes[dtype]!);
  if (!Number.isSafeInteger(bytes) || bytes !== end - begin) throw bad(`has ${end - begin} bytes, its shape and dtype need ${bytes}`);
  return { name, dtype, shape, begin, end };
}

/** Checks the bytes of a header against the size of its file. */
export function decodeHeader(json: Uint8Array, fileBytes: number, file: string): SafetensorsHeader {
  const dataStart = 8 + json.length;
  let parsed: unknown;
  try {
    parsed = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(json));
  } catch (e) {
    throw corrupt(file, `the header is not JSON (${(e as Error).message})`);
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) throw corrupt(file, 'the header is not an object');
  const tensors = new Map<string, StoredTensor>();
  const metadata: Record<string, string> = {};
  for (const [name, value] of Object.entries(parsed)) {
    if (name !== '__metadata__') {
      tensors.set(name, parseEntry(file, name, value, fileBytes - dataStart));
      continue;
    }
    if (typeof value !== 'object' || value === null) throw corrupt(file, '__metadata__ is not an object');
    for (const [key, text] of Object.entries(value)) if (typeof text === 'string') metadata[key] = text;
  }
  let end = 0;
  for (const t of [...tensors.values()].sort((a, b) => a.begin - b.begin || a.end - b.end)) {
    if (t.begin < end) throw corrupt(file, `tensor ${shown(t.name)} overlaps the one before it`);
    if (t.begin > end) throw corrupt(file, `there is a hole before tensor ${shown(t.name)}`);
    end = t.end;
  }
  if (end !== fileBytes - dataStart) throw corrupt(file, `the data section has ${fileBytes - dataStart} bytes, the tensors take ${end}`);
  return { tensors, metadata, dataStart };
}

const HALVES_AT_ONCE = 1 << 20;

/** An open safetensors file. */
export class SafetensorsFile {
  readonly header: SafetensorsHeader;
  readonly path: string;
  readonly #fd: number;
  /** What is about to be widened; one buffer, since the collector frees large ones late. */
  #halves: Uint16Array<ArrayBuffer> | undefined;

  constructor(path: string) {
    this.path = path;
    try {
      this.#fd = openSync(path, 'r');
    } catch (e) {
      throw new SinkflexError('SINKFLEX_CHECKPOINT_MISSING', `${path} cannot be opened (${(e as NodeJS.ErrnoException).code})`, {
        cause: e,
      });
    }
    try {
      const size = fstatSync(this.#fd).size;
      if (size < 8) throw corrupt(path, `${size} bytes are too short for a header`);
      const length = new DataView(this.#bytes(0, 8).buffer).getBigUint64(0, true);
      if (length > BigInt(maxHeaderBytes) || length > BigInt(size - 8))
        throw corrupt(path, `a header of ${length} bytes in a file of ${size}`);
      this.header = decodeHeader(this.#bytes(8, Number(length)), size, path);
    } catch (e) {
      closeSync(this.#fd);
      throw e;
    }
  }

  #bytes(at: number, length: number): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(length);
    this.readInto(bytes, at);
    return bytes;
  }

  /** Bytes of the file, as many as `into` holds. */
  readInto(into: Uint8Array, at: number): void {
    for (let done = 0; done < into.length; ) {
      const n = readSync(this.#fd, into, done, Math.min(into.length - done, 1 << 28), at + done);
      if (n === 0) throw corrupt(this.path, 'the file became shorter while it was read');
      done += n;
    }
  }

  /** Copies a tensor into `to`, as many values as that holds, from value `from` on, widened to float32. */
  read(tensor: StoredTensor, to: Float32Array, from = 0): void {
    const at = this.header.dataStart + tensor.begin + from * dtypeBytes[tensor.dtype]!;
    if (tensor.dtype === 'F32') {
      this.readInto(new Uint8Array(to.buffer, to.byteOffset, to.byteLength), at);
      return;
    }
    const widen = tensor.dtype === 'BF16' ? widenBfloat16 : tensor.dtype === 'F16' ? widenFloat16 : undefined;
    if (!widen) {
      throw new SinkflexError(
        'SINKFLEX_CHECKPOINT_TENSOR',
        `${this.path}: tensor ${tensor.name} is ${tensor.dtype}; F32, BF16 and F16 are read`,
        {
          details: { tensor: tensor.name },
        },
      );
    }
    this.#halves ??= new Uint16Array(HALVES_AT_ONCE);
    for (let i = 0; i < to.length; i += HALVES_AT_ONCE) {
      const part = to.subarray(i, Math.min(i + HALVES_AT_ONCE, to.length));
      this.readInto(new Uint8Array(this.#halves.buffer, 0, 2 * part.length), at + 2 * i);
      widen(this.#halves.subarray(0, part.length), part);
    }
  }

  /** Bytes of a tensor as they are stored, from byte `from` on, as many as `into` holds. */
  readStored(tensor: StoredTensor, from: number, into: Uint8Array): void {
    this.readInto(into, this.header.dataStart + tensor.begin + from);
  }

  /** Bytes [from, from + length) of a tensor, as they are stored. */
  readBytes(tensor: StoredTensor, from: number, length: number): Uint8Array {
    return this.#bytes(this.header.dataStart + tensor.begin + from, length);
  }

  /** The only element of an I64 tensor. */
  readInt64(tensor: StoredTensor): bigint {
    return new DataView(this.#bytes(this.header.dataStart + tensor.begin, 8).buffer).getBigInt64(0, true);
  }

  close(): void {
    closeSync(this.#fd);
  }
}

function widenBfloat16(from: Uint16Array, to: Float32Array): void {
  const bits = new Uint32Array(to.buffer, to.byteOffset, to.length);
  for (let i = 0; i < from.length; i++) bits[i] = from[i]! << 16;
}

function widenFloat16(from: Uint16Array, to: Float32Array): void {
  for (let i = 0; i < from.length; i++) {
    const half = from[i]!;
    const sign = half & 0x8000 ? -1 : 1;
    const exponent = (half >> 10) & 0x1f;
    const fraction = half & 0x3ff;
    if (exponent === 0) to[i] = sign * fraction * 2 ** -24;
    else if (exponent === 31) to[i] = fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
    else to[i] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  }
}
