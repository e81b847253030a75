// A value as bytes that stand alone: made once, sent any number of times (put, constructor arguments, calls that wait for an address).
// Large ones are in a block of shared memory, where readers find them.

import { addExtension, Packr, Unpackr } from 'msgpackr';
import { type BlockView, closeView, type SharedBlock } from '../../kernels/host.ts';
import { type Allocate, currentSource, currentWriter, extension, malformed, open, readFrom, Source, writeTo } from './arrays.ts';
import { contentBytes, DESCRIPTOR_BYTES, SHARED_BYTES } from './blocks.ts';
import { Bounds, isLeaf, MAX_NESTING, nestsTooDeep } from './bounds.ts';
import { codecOptions, unserializable } from './codec.ts';
import { EMPTY, laidOut, SectionWriter } from './sections.ts';
import { refuseIterators } from './unsendable.ts';

const packr = new Packr({ ...codecOptions, useRecords: true });
const unpackr = new Unpackr({ ...codecOptions, useRecords: true });
/** In a block: the header, then from the next multiple of this on the sections. */
const ALIGNED = 64;
/** Bytes of a typed array that lies in sections. */
const ARRAY_HEADER = 18;

const sectionsAt = (headerBytes: number): number => Math.ceil(headerBytes / ALIGNED) * ALIGNED;

/** A sealed value. */
export class Encoded {
  /** Empty when they are in a block. */
  header: Uint8Array;
  sections: Uint8Array;
  /** Header and sections. */
  block: SharedBlock | undefined = undefined;
  headerBytes: number;
  sectionBytes: number;
  /** Blocks of arrays made in shared memory that the value names. */
  blocks: readonly SharedBlock[] = [];
  /** Values of others that this one names. */
  refs: readonly unknown[] = [];
  /** The bytes are elsewhere: how to bring them back to memory. */
  away: { restore(): void; restoreLater(): Promise<void> } | undefined = undefined;
  readonly onRelease: (() => void)[] = [];
  /** The content mapped ahead of the first local read: making a large ArrayBuffer costs V8 a look at its heap. */
  ahead: ArrayBuffer | BlockView | undefined = undefined;
  /** What that read will give, if it is known. */
  #valueAhead: unknown = undefined;
  /** Called when it is read or sent. */
  onUse: (() => void) | undefined = undefined;

  constructor(header: Uint8Array, sections: Uint8Array) {
    this.header = header;
    this.sections = sections;
    this.headerBytes = header.length;
    this.sectionBytes = sections.length;
  }

  get bytes(): number {
    return this.headerBytes + this.sectionBytes;
  }

  /** Of the block that holds it all. */
  get blockBytes(): number {
    return sectionsAt(this.headerBytes) + this.sectionBytes;
  }

  /** Puts header and pieces into the block, where they are from now on. */
  moveTo(block: SharedBlock, pieces: Uint8Array[], starts: number[]): void {
    const at = sectionsAt(this.headerBytes);
    block.write([0, ...starts.map((start) => at + start)], [this.header, ...pieces]);
    this.block = block;
    this.header = this.sections = EMPTY;
  }

  mapAhead(): void {
    if (this.block === undefined) return;
    const { descriptor } = this.block;
    this.ahead = open(descriptor, true);
    // One array and nothing else: to read it is cheap, but not the first time in a while.
    if (this.headerBytes === ARRAY_HEADER && this.sectionBytes > 0)
      this.#valueAhead = decodeContent(this.ahead, descriptor, this.headerBytes, true);
  }

  /** For one read: the content, and the value if it is there. */
  takeAhead(): { content: ArrayBuffer | BlockView | undefined; value: unknown } {
    const taken = { content: this.ahead, value: this.#valueAhead };
    this.ahead = this.#valueAhead = undefined;
    return taken;
  }

  closeAhead(): void {
    if (this.ahead !== undefined) closeView(this.ahead);
    this.ahead = this.#valueAhead = undefined;
  }

  /** Lets go of the memory now instead of when this is collected. */
  release(): void {
    this.closeAhead();
    this.block?.release();
    this.block = undefined;
    this.blocks = [];
    this.header = this.sections = EMPTY;
    this.away = undefined;
    for (const callback of this.onRelease.splice(0)) callback();
  }
}

/** `allocate`: a block for so many bytes, if the value may go through shared memory. */
export function encodeAlone(value: unknown, allocate?: (bytes: number) => SharedBlock | undefined): Encoded {
  const writer = new SectionWriter(false, allocate === undefined ? 0 : 1);
  const outer = writeTo(writer);
  let header: Uint8Array;
  try {
    refuseIterators(Array.isArray(value) ? value : [value]);
    header = new Uint8Array(packr.pack(value));
    if (header.length > MAX_NESTING && nestsTooDeep(value)) throw new RangeError('more than the stack of a peer takes');
  } catch (error) {
    throw unserializable(error, value);
  } finally {
    writeTo(outer);
  }
  const { size, pieces, starts, blocks } = writer.takeMessage();
  const encoded = new Encoded(header, EMPTY);
  encoded.sectionBytes = size;
  encoded.blocks = blocks;
  const block = header.length + size >= SHARED_BYTES ? allocate?.(encoded.blockBytes) : undefined;
  if (block !== undefined) encoded.moveTo(block, pieces, starts);
  else if (size > 0) encoded.sections = laidOut(size, pieces, starts);
  return encoded;
}

/** A value of this process, each time anew. */
export function decodeAlone(encoded: Encoded): unknown {
  encoded.onUse?.();
  encoded.away?.restore();
  if (encoded.block !== undefined) {
    const { content, value } = encoded.takeAhead();
    if (value !== undefined) return value;
    return decodeContent(content ?? open(encoded.block.descriptor, true), encoded.block.descriptor, encoded.headerBytes, true);
  }
  return decodeFrom(encoded.header, encoded.sections, true);
}

/** A value from its block. `claim`: the owner did not count this reader; SINKFLEX_OBJECT_LOST when it comes too late. */
export function decodeShared(descriptor: Uint8Array, headerBytes: number, claim: boolean): unknown {
  return decodeContent(open(descriptor, claim), descriptor, headerBytes, claim);
}

function decodeContent(content: ArrayBuffer | BlockView, descriptor: Uint8Array, headerBytes: number, claim: boolean): unknown {
  const length = contentBytes(descriptor);
  const at = sectionsAt(headerBytes);
  if (at > length && headerBytes !== length) throw malformed('an encoded value beyond its block');
  const header = new Uint8Array(content instanceof ArrayBuffer ? content : content.view(0, headerBytes), 0, headerBytes);
  return unpack(header, new Source(content, length, -at, claim));
}

function decodeFrom(header: Uint8Array, sections: Uint8Array, claims: boolean): unknown {
  // What came with an IPC message lies anywhere in its buffer; arrays want multiples of 8.
  const aligned = sections.byteOffset % 8 === 0 ? sections : new Uint8Array(sections);
  return unpack(header, new Source(aligned, aligned.length, 0, claims));
}

const bounds = new Bounds();

function unpack(header: Uint8Array, source: Source): unknown {
  bounds.reset();
  bounds.scan(header, true);
  const outer = readFrom(source);
  try {
    return unpackr.unpack(Buffer.from(header.buffer, header.byteOffset, header.length));
  } finally {
    readFrom(outer);
  }
}

const IN_LINE = 21;
const IN_BLOCK = 5 + DESCRIPTOR_BYTES;

/**
 * ext 8, in line: 0, header's offset / 8 (u32), its bytes (u32), sections' offset / 8 (u32), their bytes (f64).
 * In a block: 1, bytes of the header (u32), descriptor.
 */
function write(value: Encoded, allocate: Allocate): undefined {
  const writer = currentWriter();
  if (writer === undefined) throw malformed('an encoded value outside a frame');
  value.onUse?.();
  value.away?.restore();
  const { block } = value;
  if (writer.shares) writer.blocks.push(...value.blocks);
  if (block !== undefined && writer.shares) {
    writer.blocks.push(block);
    const { target, targetView, position } = begin(allocate, IN_BLOCK);
    target[position] = 1;
    targetView.setUint32(position + 1, value.headerBytes);
    target.set(block.descriptor, position + 5);
    return undefined;
  }
  // Another host cannot open blocks.
  const { header, sections } = block !== undefined || value.blocks.length > 0 ? inMemory(value, writer.shares) : value;
  const headerAt = writer.append(header);
  const at = writer.append(sections);
  const { target, targetView, position } = begin(allocate, IN_LINE);
  target[position] = 0;
  targetView.setUint32(position + 1, headerAt / 8);
  targetView.setUint32(position + 5, header.length);
  targetView.setUint32(position + 9, at / 8);
  targetView.setFloat64(position + 13, sections.length);
  return undefined;
}

function inMemory(value: Encoded, shares: boolean): Encoded {
  return shares ? value : encodeAlone(decodeAlone(value));
}

function begin(allocate: Allocate, bytes: number): ReturnType<Allocate> {
  const { target, targetView, position } = allocate(3 + bytes);
  target[position] = 0xc7;
  target[position + 1] = bytes;
  target[position + 2] = extension.encoded;
  return { target, targetView, position: position + 3 };
}

function read(data: Uint8Array): unknown {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const source = currentSource();
  if (data.length === IN_BLOCK && data[0] === 1) return decodeShared(data.slice(5), view.getUint32(1), source.claims);
  if (data.length !== IN_LINE || data[0] !== 0) throw malformed('an encoded value that is none');
  const piece = (offset: number, bytes: number): Uint8Array => {
    const buffer = source.find(offset, bytes);
    return new Uint8Array(buffer, source.start, bytes);
  };
  const header = piece(view.getUint32(1) * 8, view.getUint32(5));
  return decodeFrom(header, piece(view.getUint32(9) * 8, view.getFloat64(13)), source.claims);
}

isLeaf(Encoded);
addExtension({ Class: Encoded, type: extension.encoded, pack: write as never, unpack: read });
