// Values to bytes and back: positional msgpack for structure, raw sections for typed arrays, so that a decoded array is a view of what
// was received. Records are sequential (each shape is defined once on a connection), so an encoder and its decoder must see the same
// messages in the same order, and are replaced together.
import { addExtension, Packr, Unpackr } from 'msgpackr';
import { RuntimeFailure } from '../api/errors.ts';
import { SectionWriter } from './sections.ts';

const REUSE_BUFFER = 512; // msgpackr: give back the shared target with its range instead of a subarray,
const RESET_POSITION = 1024; // and start the next message at the same place

const extension = { array: 1, handle: 2, ref: 3, set: 4, error: 5, encoded: 6, stream: 7 } as const;

/** Element types in wire order; the index is the wire's number. */
const arrayTypes = [
  Uint8Array,
  Int8Array,
  Uint8ClampedArray,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Float32Array,
  Float64Array,
  BigInt64Array,
  BigUint64Array,
] as const;
const ARRAY_BUFFER = 32;
const DATA_VIEW = 33;

/** Where raw sections go while a value is encoded, and which bytes they are read from while one is decoded. */
let writer: SectionWriter | undefined;
let source: Uint8Array | undefined;

const typedArray = Object.getPrototypeOf(Uint8Array) as new () => ArrayBufferView;
interface Room {
  target: Uint8Array;
  targetView: DataView;
  position: number;
}
type Allocate = (bytes: number) => Room;

function kindOf(value: ArrayBufferView | ArrayBuffer): number {
  if (value instanceof ArrayBuffer) return ARRAY_BUFFER;
  if (value instanceof DataView) return DATA_VIEW;
  const kind = arrayTypes.findIndex((type) => value instanceof type);
  if (kind < 0) throw new RuntimeFailure('SINKFLEX_NOT_SERIALIZABLE', `${value.constructor.name} cannot be sent`);
  return kind;
}

/** fixext 16: kind, 3 bytes unused, offset in units of 8 bytes (u32), bytes (f64). */
function writeArray(value: ArrayBufferView | ArrayBuffer, allocate: Allocate): undefined {
  const bytes = value instanceof ArrayBuffer ? new Uint8Array(value) : new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  if (writer === undefined) {
    // Somebody else's msgpackr in this process: plain bytes, as if we had registered nothing.
    const { target, targetView, position } = allocate(5 + bytes.length);
    target[position] = 0xc6;
    targetView.setUint32(position + 1, bytes.length);
    target.set(bytes, position + 5);
    return undefined;
  }
  const kind = kindOf(value);
  const offset = writer.append(bytes);
  const { target, targetView, position } = allocate(18);
  target[position] = 0xd8;
  target[position + 1] = extension.array;
  target[position + 2] = kind;
  target[position + 3] = target[position + 4] = target[position + 5] = 0;
  targetView.setUint32(position + 6, offset / 8);
  targetView.setFloat64(position + 10, bytes.length);
  return undefined;
}

function readArray(data: Uint8Array): unknown {
  if (source === undefined || data.length !== 16) throw malformed('a typed array outside a frame');
  const view = new DataView(data.buffer, data.byteOffset, 16);
  const offset = view.getUint32(4) * 8;
  const bytes = view.getFloat64(8);
  if (!(bytes >= 0) || offset + bytes > source.length) throw malformed('a typed array beyond its frame');
  const kind = data[0]!;
  const start = source.byteOffset + offset;
  if (kind === ARRAY_BUFFER) return source.buffer.slice(start, start + bytes);
  if (kind === DATA_VIEW) return new DataView(source.buffer, start, bytes);
  const type = arrayTypes[kind];
  if (type === undefined || bytes % type.BYTES_PER_ELEMENT !== 0) throw malformed('a typed array of no known kind');
  return new type(source.buffer as ArrayBuffer, start, bytes / type.BYTES_PER_ELEMENT);
}

function malformed(what: string): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_PROTOCOL', `the peer sent ${what}`);
}

for (const type of [typedArray, ArrayBuffer, DataView]) {
  addExtension({ Class: type, type: extension.array, pack: writeArray as never, unpack: readArray });
}
addExtension({
  Class: Set,
  type: extension.set,
  write: (set: Set<unknown>) => [...set],
  read: (items: unknown) => new Set(items as unknown[]),
});

/** Teaches the wire a class of ours: `write` to plain data, `read` back. */
export function registerWireClass<T>(
  kind: 'handle' | 'ref' | 'error' | 'stream',
  type: abstract new (...args: never[]) => T,
  write: (value: T) => unknown,
  read: (data: unknown) => unknown,
): void {
  addExtension({ Class: type, type: extension[kind], write, read });
}

const options = {
  mapsAsObjects: false, // objects travel as records, so a msgpack map is a Map
  useToJSON: false,
  writeFunction: () => {
    throw new RuntimeFailure('SINKFLEX_NOT_SERIALIZABLE', 'a function cannot be sent: pass data, or a handle of an actor');
  },
};

function unserializable(error: unknown): RuntimeFailure {
  if (error instanceof RuntimeFailure) return error;
  const reason =
    error instanceof RangeError && /stack/i.test(error.message) ? 'it is nested too deeply, or contains itself' : (error as Error).message;
  return new RuntimeFailure('SINKFLEX_NOT_SERIALIZABLE', `the value cannot be sent: ${reason}`, { cause: error });
}

interface ReusedTarget extends Buffer {
  start: number;
  end: number;
}

/** One direction of one connection. */
export class Encoder {
  readonly sections: SectionWriter;
  /** The next frame must tell the peer to start with a new decoder. */
  fresh = true;
  #packr = new Packr({ ...options, sequential: true });

  constructor(pooling: boolean) {
    this.sections = new SectionWriter(pooling);
  }

  /** Encodes after what `into` holds, and answers the new end. A failure leaves nothing behind but a new generation of the encoder. */
  encode(value: unknown, into: HeaderSink): void {
    const mark = this.sections.bytes;
    const outer = writer;
    writer = this.sections;
    try {
      const target = this.#packr.pack(value, REUSE_BUFFER | RESET_POSITION) as ReusedTarget;
      into.append(target, target.start, target.end);
    } catch (error) {
      // Shapes that were defined in the discarded bytes would never reach the decoder.
      this.#packr = new Packr({ ...options, sequential: true });
      this.sections.truncate(mark);
      into.encoderReplaced();
      throw unserializable(error);
    } finally {
      writer = outer;
    }
  }
}

export interface HeaderSink {
  append(source: Buffer, start: number, end: number): void;
  /** Everything appended so far was of the old generation: close that frame, the next one is `fresh`. */
  encoderReplaced(): void;
}

export class Decoder {
  #unpackr = new Unpackr({ ...options, sequential: true });

  /** All messages of a frame. `sections` starts at a multiple of 8 in its buffer. */
  decode(header: Buffer, sections: Uint8Array, fresh: boolean): unknown[] {
    if (fresh) this.#unpackr = new Unpackr({ ...options, sequential: true });
    const outer = source;
    source = sections;
    try {
      return this.#unpackr.unpackMultiple(header) as unknown[];
    } finally {
      source = outer;
    }
  }
}

/** A value as bytes that stand alone: made once, sent any number of times (put, constructor arguments, calls that wait for an address). */
export class Encoded {
  readonly header: Uint8Array;
  readonly sections: Uint8Array;
  constructor(header: Uint8Array, sections: Uint8Array) {
    this.header = header;
    this.sections = sections;
  }
  get bytes(): number {
    return this.header.length + this.sections.length;
  }
}

const alonePackr = new Packr({ ...options, useRecords: true });
const aloneUnpackr = new Unpackr({ ...options, useRecords: true });

export function encodeAlone(value: unknown): Encoded {
  const sections = new SectionWriter();
  const outer = writer;
  writer = sections;
  try {
    const header = alonePackr.pack(value);
    return new Encoded(new Uint8Array(header), sections.concatenated());
  } catch (error) {
    throw unserializable(error);
  } finally {
    writer = outer;
  }
}

export function decodeAlone(encoded: Encoded): unknown {
  const outer = source;
  // What came with an IPC message lies anywhere in its buffer; arrays want multiples of 8.
  source = encoded.sections.byteOffset % 8 === 0 ? encoded.sections : new Uint8Array(encoded.sections);
  try {
    return aloneUnpackr.unpack(Buffer.from(encoded.header.buffer, encoded.header.byteOffset, encoded.header.length));
  } finally {
    source = outer;
  }
}

addExtension({
  Class: Encoded,
  type: extension.encoded,
  write: (value: Encoded) => [value.header, value.sections],
  read(data: unknown): unknown {
    const [header, sections] = data as [unknown, unknown];
    if (!(header instanceof Uint8Array && sections instanceof Uint8Array)) throw malformed('an encoded value without bytes');
    return decodeAlone(new Encoded(header, sections));
  },
});
