// Typed arrays on the wire: 18 bytes in the msgpack stream that say where the array's bytes are, and the bytes in raw sections. What is
// decoded is a view of what was received: of a frame's sections, or of a block of shared memory, mapped for this reader alone.
import { addExtension } from 'msgpackr';
import { type BlockView, openBlock } from '../../kernels/host.ts';
import { RuntimeFailure } from '../api/errors.ts';
import { contentBytes, DESCRIPTOR_BYTES, noteView, SHARED_BYTES, sealedBlockOf } from './blocks.ts';
import type { SectionWriter } from './sections.ts';

export const extension = {
  array: 1,
  handle: 2,
  ref: 3,
  set: 4,
  error: 5,
  encoded: 6,
  stream: 7,
  /** Between messages: where the sections of the next ones are. */
  place: 8,
  /** An array that was made in shared memory. */
  shared: 9,
} as const;

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

/** What sections are read from while a value is decoded. */
export class Source {
  readonly #content: Uint8Array | ArrayBuffer | BlockView;
  readonly #length: number;
  /** Offset on the wire of the first byte. */
  readonly #base: number;
  /** Nobody counted this reader among those of blocks that the value names. */
  readonly claims: boolean;
  /** Where the bytes of the last find() begin in its answer. */
  start = 0;

  constructor(content: Uint8Array | ArrayBuffer | BlockView, length: number, base = 0, claims = false) {
    this.#content = content;
    this.#length = length;
    this.#base = base;
    this.claims = claims;
  }

  find(offset: number, bytes: number): ArrayBuffer {
    const at = offset - this.#base;
    if (!(at >= 0 && bytes >= 0 && at + bytes <= this.#length)) throw malformed('a typed array beyond its frame');
    const content = this.#content;
    if (content instanceof ArrayBuffer) {
      this.start = at;
      return content;
    }
    if (content instanceof Uint8Array) {
      this.start = content.byteOffset + at;
      return content.buffer as ArrayBuffer;
    }
    this.start = 0;
    return content.view(at, bytes);
  }
}

/** Where raw sections go while a value is encoded, and what they are read from while one is decoded. */
let writer: SectionWriter | undefined;
let source: Source | undefined;

/** Answers the one before. */
export function writeTo(next: SectionWriter | undefined): SectionWriter | undefined {
  const outer = writer;
  writer = next;
  return outer;
}

export function readFrom(next: Source | undefined): Source | undefined {
  const outer = source;
  source = next;
  return outer;
}

export function currentWriter(): SectionWriter | undefined {
  return writer;
}

export function currentSource(): Source {
  if (source === undefined) throw malformed('a typed array outside a frame');
  return source;
}

export interface Room {
  target: Uint8Array;
  targetView: DataView;
  position: number;
}
export type Allocate = (bytes: number) => Room;

const typedArray = Object.getPrototypeOf(Uint8Array) as new () => ArrayBufferView;

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
  if (writer.shares && bytes.length >= SHARED_BYTES) {
    const block = sealedBlockOf(bytes.buffer);
    if (block !== undefined) {
      writer.blocks.push(block);
      writeShared(kind, block.descriptor, bytes, allocate);
      return undefined;
    }
  }
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
  if (data.length !== 16) throw malformed('a typed array outside a frame');
  const view = new DataView(data.buffer, data.byteOffset, 16);
  const bytes = view.getFloat64(8);
  const from = currentSource();
  const buffer = from.find(view.getUint32(4) * 8, bytes);
  return arrayOf(data[0]!, buffer, from.start, bytes);
}

function arrayOf(kind: number, buffer: ArrayBuffer, start: number, bytes: number): unknown {
  if (kind === ARRAY_BUFFER) return buffer.slice(start, start + bytes);
  if (kind === DATA_VIEW) return new DataView(buffer, start, bytes);
  const type = arrayTypes[kind];
  if (type === undefined || bytes % type.BYTES_PER_ELEMENT !== 0) throw malformed('a typed array of no known kind');
  return new type(buffer, start, bytes / type.BYTES_PER_ELEMENT);
}

const SHARED_DATA = 1 + DESCRIPTOR_BYTES + 16;

/** ext 8: kind, descriptor of the block, first byte in it (f64), bytes (f64). */
function writeShared(kind: number, descriptor: Uint8Array, bytes: Uint8Array, allocate: Allocate): void {
  const { target, targetView, position } = allocate(3 + SHARED_DATA);
  target[position] = 0xc7;
  target[position + 1] = SHARED_DATA;
  target[position + 2] = extension.shared;
  target[position + 3] = kind;
  target.set(descriptor, position + 4);
  targetView.setFloat64(position + 4 + DESCRIPTOR_BYTES, bytes.byteOffset);
  targetView.setFloat64(position + 12 + DESCRIPTOR_BYTES, bytes.length);
}

function readShared(data: Uint8Array): unknown {
  if (data.length !== SHARED_DATA) throw malformed('a shared array that is none');
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const start = view.getFloat64(1 + DESCRIPTOR_BYTES);
  const bytes = view.getFloat64(9 + DESCRIPTOR_BYTES);
  const content = open(data.slice(1, 1 + DESCRIPTOR_BYTES), currentSource().claims);
  if (!(content instanceof ArrayBuffer) || !(start >= 0 && bytes >= 0 && start + bytes <= content.byteLength))
    throw malformed('a shared array beyond its block');
  return arrayOf(data[0]!, content, start, bytes);
}

type Translate = (descriptor: Uint8Array) => Uint8Array | undefined;
let translate: Translate | undefined;

/** From now on blocks are of another host: what is here in their stead. Answers the one before. */
export function translateBlocks(next: Translate | undefined): Translate | undefined {
  const outer = translate;
  translate = next;
  return outer;
}

/** The block of a message or value. SINKFLEX_OBJECT_LOST when its owner has gone, or (a claim) does not have that content any more. */
export function open(descriptor: Uint8Array, claim: boolean): ArrayBuffer | BlockView {
  const bytes = contentBytes(descriptor);
  let here = descriptor;
  if (translate !== undefined) {
    const brought = translate(descriptor);
    if (brought === undefined || contentBytes(brought) !== bytes) throw malformed('a block that it did not bring');
    here = brought;
  }
  let content: ArrayBuffer | BlockView | undefined;
  try {
    // What was brought is counted for this reader.
    content = openBlock(here, claim && translate === undefined);
  } catch (error) {
    throw new RuntimeFailure('SINKFLEX_OBJECT_LOST', 'the shared memory of the value is gone, with its owner', { cause: error });
  }
  if (content === undefined) throw new RuntimeFailure('SINKFLEX_OBJECT_LOST', 'the owner does not keep the value in that place any more');
  noteView(bytes);
  return content;
}

export function malformed(what: string): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_PROTOCOL', `the peer sent ${what}`);
}

for (const type of [typedArray, ArrayBuffer, DataView]) {
  addExtension({ Class: type, type: extension.array, pack: writeArray as never, unpack: readArray });
}
addExtension({ type: extension.shared, unpack: readShared } as never);
