// A look at received msgpack before it is decoded: how deep it nests, and whether there are as many bytes as its containers claim to have
// elements. Without it five bytes could ask for gigabytes, and a long run of brackets for the whole stack. Iterative, about 3 ns a token.
// Records have their width from a definition that came before, so the scan of a connection sees all of its messages, as the decoder does.
import { RuntimeFailure } from '../api/errors.ts';
import { extension } from './arrays.ts';

/** Containers in containers. Deeper values are not sent either (codec.ts). */
export const MAX_NESTING = 1000;

/** Extension types that are followed by a value: ours that are written by `write`, and regular expressions ('x'). */
const wraps = new Set<number>([extension.handle, extension.ref, extension.set, extension.error, extension.stream, 0x78]);
/** Those that are bytes: ours, undefined, dates, and integers beyond 64 bits ('B'). */
const plain = new Set<number>([extension.array, extension.encoded, extension.place, extension.shared, 0, 0xff, 0x42]);
const RECORD = 0x72;
/** Bytes that follow the token, for 0xca..0xd3: floats and integers. */
const scalars = [4, 8, 1, 2, 4, 8, 1, 2, 4, 8];

function wrong(what: string): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_PROTOCOL', `the peer sent ${what}`);
}

interface Shape {
  width: number;
  /** References to it have a second byte. */
  second: boolean;
}

export class Bounds {
  readonly #shapes = new Map<number, Shape>();
  /** Elements that are still to come, of each open container. */
  readonly #open = new Float64Array(MAX_NESTING + 1);

  /** Forgets the shapes of records. */
  reset(): void {
    if (this.#shapes.size > 0) this.#shapes.clear();
  }

  /** Throws SINKFLEX_PROTOCOL. `one`: exactly one value, otherwise any number of them. */
  scan(bytes: Uint8Array, one = false): void {
    const open = this.#open;
    const end = bytes.length;
    let at = 0;
    let depth = 0;
    /** Elements that all open containers still need: each is a byte at least. */
    let owed = 0;
    let values = 0;
    while (at < end) {
      if (depth === 0) {
        if (one && values > 0) throw wrong('more than one value');
        values++;
      } else {
        open[depth]!--;
        owed--;
      }
      const token = bytes[at++]!;
      let count = -1;
      if (token < 0x40 || token >= 0xe0) {
        // A small integer.
      } else if (token < 0x80) {
        const shape = this.#shapes.get(token & 0x3f);
        if (shape !== undefined) count = shape.second ? this.#second(token & 0x3f, shape, bytes[at++]) : shape.width;
      } else if (token < 0x90) count = (token & 0x0f) * 2;
      else if (token < 0xa0) count = token & 0x0f;
      else if (token < 0xc0) at += token & 0x1f;
      else if (token < 0xc4) {
        // null, false, true, never used
      } else if (token < 0xc7) at += length(bytes, at, 1 << (token - 0xc4), end);
      else if (token < 0xca) {
        const size = 1 << (token - 0xc7);
        const data = length(bytes, at, size, end) - size;
        this.#known(bytes[at + size], false);
        at += size + 1 + data;
      } else if (token < 0xd4) at += scalars[token - 0xca]!;
      else if (token < 0xd9) {
        const type = bytes[at];
        if (type === RECORD && token < 0xd6) {
          const id = bytes[at + 1];
          const high = token === 0xd5 ? bytes[at + 2] : undefined;
          at += token === 0xd5 ? 3 : 2;
          const header = bytes[at];
          const keys = header === 0xdc ? 2 : header === 0xdd ? 4 : 0;
          if (id === undefined || header === undefined || (keys === 0 && (header & 0xf0) !== 0x90)) throw wrong('a record without keys');
          const width = keys === 0 ? header & 0x0f : length(bytes, at + 1, keys, end) - keys;
          this.#define(id & 0x3f, high, width);
          // The keys come first, then the values.
          at += 1 + keys;
          count = width * 2;
        } else {
          const wrapping = this.#known(type, token === 0xd4);
          at += 1 + (1 << (token - 0xd4));
          if (wrapping) count = 1;
        }
      } else if (token < 0xdc) at += length(bytes, at, 1 << (token - 0xd9), end);
      else {
        const size = token & 1 ? 4 : 2;
        const items = length(bytes, at, size, end) - size;
        count = token < 0xde ? items : items * 2;
        at += size;
      }
      if (at > end) throw wrong('a value that is cut short');
      if (count > 0) {
        owed += count;
        if (owed > end - at) throw wrong('a container with more elements than bytes');
        if (++depth > MAX_NESTING) throw wrong(`a value with more than ${MAX_NESTING} containers in each other`);
        open[depth] = count;
      } else while (depth > 0 && open[depth] === 0) depth--;
    }
    if (depth > 0 || (one && values === 0)) throw wrong('a value that is cut short');
  }

  #known(type: number | undefined, one: boolean): boolean {
    if (type !== undefined && one && wraps.has(type)) return true;
    if (type === undefined || !plain.has(type)) throw wrong(`an extension of unknown type ${String(type)}`);
    return false;
  }

  #define(id: number, high: number | undefined, width: number): void {
    const key = high === undefined ? id : id < 32 ? -((high << 5) + id) : (high << 5) + id;
    this.#shapes.set(key, { width, second: high === 0 });
  }

  #second(id: number, first: Shape, high: number | undefined): number {
    if (high === undefined) throw wrong('a value that is cut short');
    if (high === 0) return first.width;
    const shape = this.#shapes.get(id < 32 ? -(id + (high << 5)) : id + (high << 5));
    if (shape === undefined) throw wrong('a record of no known shape');
    return shape.width;
  }
}

/** Of a big-endian length of so many bytes, with those bytes: how far it reaches. */
function length(bytes: Uint8Array, at: number, size: number, end: number): number {
  if (at + size > end) throw wrong('a value that is cut short');
  let value = 0;
  for (let i = 0; i < size; i++) value = value * 256 + bytes[at + i]!;
  return size + value;
}

const leaves: (abstract new (...args: never[]) => unknown)[] = [];

/** Instances are sent in a form of their own, whatever hangs on them. */
export function isLeaf(type: abstract new (...args: never[]) => unknown): void {
  leaves.push(type);
}

/** Whether containers are in each other deeper than the peer takes them. The value has no cycles: it was encoded. */
export function nestsTooDeep(value: unknown): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_NESTING - 10) return true; // what the wire adds: the message around it, sets, errors
    const next: unknown[] = [];
    for (const item of level) {
      if (typeof item !== 'object' || item === null || ArrayBuffer.isView(item) || leaves.some((type) => item instanceof type)) continue;
      const children = Array.isArray(item) ? item : item instanceof Map ? item.values() : item instanceof Set ? item : Object.values(item);
      for (const child of children) if (typeof child === 'object' && child !== null) next.push(child);
    }
    level = next;
  }
  return false;
}
