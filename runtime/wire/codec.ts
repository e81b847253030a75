// Values to bytes and back: positional msgpack for structure, raw sections for typed arrays, so that a decoded array is a view of what
// was received. Records are sequential (each shape is defined once on a connection), so an encoder and its decoder must see the same
// messages in the same order, and are replaced together.
import { addExtension, Packr, Unpackr } from 'msgpackr';
import { RuntimeFailure } from '../api/errors.ts';
import { extension, malformed, open, readFrom, Source, translateBlocks, writeTo } from './arrays.ts';
import { contentBytes, DESCRIPTOR_BYTES } from './blocks.ts';
import { Bounds, isLeaf, MAX_NESTING, nestsTooDeep } from './bounds.ts';
import { SectionWriter } from './sections.ts';
import { findUnsendable } from './unsendable.ts';

const REUSE_BUFFER = 512; // msgpackr: give back the shared target with its range instead of a subarray,
const RESET_POSITION = 1024; // and start the next message at the same place

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
  isLeaf(type);
  addExtension({ Class: type, type: extension[kind], write, read });
}

export const codecOptions = {
  mapsAsObjects: false, // objects travel as records, so a msgpack map is a Map
  useToJSON: false,
  writeFunction: () => {
    throw new RuntimeFailure('SINKFLEX_NOT_SERIALIZABLE', 'a function cannot be sent: pass data, or a handle of an actor');
  },
};

/** `value`: what did not encode. */
export function unserializable(error: unknown, value: unknown): RuntimeFailure {
  if (error instanceof RuntimeFailure && error.code !== 'SINKFLEX_NOT_SERIALIZABLE') return error;
  const found = findUnsendable(value);
  if (found !== undefined) {
    const where = found.path === '' ? '' : ` (at value${found.path})`;
    return new RuntimeFailure('SINKFLEX_NOT_SERIALIZABLE', `the value cannot be sent: ${found.why}${where}`, {
      details: { path: found.path },
    });
  }
  if (error instanceof RuntimeFailure) return error;
  const reason =
    error instanceof RangeError && /stack/i.test(error.message) ? 'it is nested too deeply, or contains itself' : (error as Error).message;
  return new RuntimeFailure('SINKFLEX_NOT_SERIALIZABLE', `the value cannot be sent: ${reason}`, { cause: error });
}

/** What a message carries: its arguments, its answer. */
function content(message: unknown): unknown {
  return Array.isArray(message) ? (message.find((part) => typeof part === 'object' && part !== null) ?? message) : message;
}

interface ReusedTarget extends Buffer {
  start: number;
  end: number;
}

/** Between messages: where the sections of the following ones are. ext 8: first offset / 8 (u32), descriptor of a block; or ext 1: in line. */
const PLACE_BYTES = 4 + DESCRIPTOR_BYTES;
const PLACED = Symbol('place');
const inLine = Buffer.from([0xd4, extension.place, 0]);
const inBlock = Buffer.alloc(3 + PLACE_BYTES);
inBlock[0] = 0xc7;
inBlock[1] = PLACE_BYTES;
inBlock[2] = extension.place;

/** One direction of one connection. */
export class Encoder {
  readonly sections: SectionWriter;
  /** The next frame must tell the peer to start with a new decoder. */
  fresh = true;
  #packr = new Packr({ ...codecOptions, sequential: true });
  /** What the peer has been told last in this frame. */
  #elsewhere = false;

  /** `channel`: number of the way for blocks of shared memory; 0: the peer cannot open them. */
  constructor(pooling: boolean, channel = 0) {
    this.sections = new SectionWriter(pooling, channel);
  }

  /**
   * Encodes after what `into` holds; answers the bytes of its sections, wherever they are. A failure leaves nothing behind but a new
   * generation of the encoder.
   */
  encode(value: unknown, into: HeaderSink): number {
    const { sections } = this;
    const outer = writeTo(sections);
    try {
      const target = this.#packr.pack(value, REUSE_BUFFER | RESET_POSITION) as ReusedTarget;
      if (target.end - target.start > MAX_NESTING && nestsTooDeep(value)) throw new RangeError('more than the stack of a peer takes');
      const { size } = sections;
      if (size === 0 && sections.blocks.length === 0) {
        into.append(target, target.start, target.end);
        return 0;
      }
      const base = sections.bytes;
      const descriptor = sections.finish();
      if (descriptor !== undefined) {
        inBlock.writeUInt32LE(base / 8, 3);
        inBlock.set(descriptor, 7);
        into.append(inBlock, 0, inBlock.length);
        this.#elsewhere = true;
      } else if (this.#elsewhere && size > 0) {
        into.append(inLine, 0, inLine.length);
        this.#elsewhere = false;
      }
      into.append(target, target.start, target.end);
      return size;
    } catch (error) {
      // Shapes that were defined in the discarded bytes would never reach the decoder.
      this.#packr = new Packr({ ...codecOptions, sequential: true });
      sections.abandon();
      into.encoderReplaced();
      throw unserializable(error, content(value));
    } finally {
      writeTo(outer);
    }
  }

  /** The frame is closed: the next one begins with its sections in line. */
  frameEnded(): void {
    this.fresh = false;
    this.#elsewhere = false;
  }
}

export interface HeaderSink {
  append(source: Buffer, start: number, end: number): void;
  /** Everything appended so far was of the old generation: close that frame, the next one is `fresh`. */
  encoderReplaced(): void;
}

/** Of the frame that is being decoded. */
let frame: Source | undefined;
let placed = false;

addExtension({
  type: extension.place,
  unpack(data: Uint8Array): unknown {
    placed = true;
    if (data.length === 1) readFrom(frame);
    else if (data.length === PLACE_BYTES) {
      const base = new DataView(data.buffer, data.byteOffset).getUint32(0, true) * 8;
      const descriptor = data.slice(4);
      readFrom(new Source(open(descriptor, false), contentBytes(descriptor), base));
    } else throw malformed('sections in no known place');
    return PLACED;
  },
} as never);

export class Decoder {
  /** Blocks that the peer names -> those that are here in their stead. */
  readonly #translate: ((descriptor: Uint8Array) => Uint8Array | undefined) | undefined;
  #unpackr = new Unpackr({ ...codecOptions, sequential: true });
  readonly #bounds = new Bounds();

  constructor(translate?: (descriptor: Uint8Array) => Uint8Array | undefined) {
    this.#translate = translate;
  }

  /** All messages of a frame. `sections` starts at a multiple of 8 in its buffer. */
  decode(header: Buffer, sections: Uint8Array, fresh: boolean): unknown[] {
    if (fresh) {
      this.#unpackr = new Unpackr({ ...codecOptions, sequential: true });
      this.#bounds.reset();
    }
    this.#bounds.scan(header);
    frame = new Source(sections, sections.length);
    placed = false;
    const outer = readFrom(frame);
    const others = translateBlocks(this.#translate);
    try {
      const messages = this.#unpackr.unpackMultiple(header) as unknown[];
      return placed ? messages.filter((message) => message !== PLACED) : messages;
    } finally {
      translateBlocks(others);
      readFrom(outer);
    }
  }
}
