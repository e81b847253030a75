// What cannot be sent, and where it is in a value: refused with its place, since it would arrive as something else.
import { addExtension } from 'msgpackr';
import { RuntimeFailure } from '../api/errors.ts';

/** Something to ask `instanceof` of, for a prototype that no global names. */
function classOf(name: string, prototype: object): abstract new (...args: never[]) => object {
  const made = Object.defineProperty(function made() {}, 'name', { value: name });
  made.prototype = prototype;
  return made as unknown as abstract new (
    ...args: never[]
  ) => object;
}

const above = (value: object, levels: number): object => (levels === 0 ? value : above(Object.getPrototypeOf(value) as object, levels - 1));
const Generator = classOf('Generator', above((function* () {})(), 2));
const AsyncGenerator = classOf('AsyncGenerator', above((async function* () {})(), 2));
// Of arrays, maps, sets, strings and of what is made of them: what they have yet to give is nowhere to be seen.
const Iterator = classOf('Iterator', above((function* () {})(), 3));
const AsyncIterator = classOf('AsyncIterator', above((async function* () {})(), 3));

/** Classes whose content is out of reach, or means nothing elsewhere: as plain objects they would be empty. */
const bound: readonly (abstract new (...args: never[]) => object)[] = [
  RegExp,
  URL,
  URLSearchParams,
  WeakMap,
  WeakSet,
  WeakRef,
  Promise,
  SharedArrayBuffer,
  AbortSignal,
  AbortController,
  ReadableStream,
  WritableStream,
  Blob,
  Generator,
  AsyncGenerator,
  Iterator,
  AsyncIterator,
  FinalizationRegistry,
  EventTarget,
  TransformStream,
  TextEncoder,
  TextDecoder,
  Intl.Collator,
  Intl.DateTimeFormat,
  Intl.DisplayNames,
  Intl.ListFormat,
  Intl.Locale,
  Intl.NumberFormat,
  Intl.PluralRules,
  Intl.RelativeTimeFormat,
  Intl.Segmenter,
  Number,
  String,
  Boolean,
];

const instead = new Map<unknown, string>([
  [RegExp, 'send its source and flags'],
  [URL, 'send its href'],
  [URLSearchParams, 'send its text'],
  [Generator, 'send an array of what it yields'],
  [AsyncGenerator, 'send an array of what it yields'],
  [Iterator, 'send an array of what it yields'],
  [AsyncIterator, 'send an array of what it yields'],
  [Promise, 'await it, or pass the ref of a call'],
  [SharedArrayBuffer, 'send a copy, or put() an array'],
]);

function refused(value: object): (typeof bound)[number] | undefined {
  return bound.find((type) => value instanceof type);
}

/** What it is, if that cannot be sent. */
function obstacle(value: unknown): string | undefined {
  if (typeof value === 'function') return 'a function cannot be sent: pass data, or a handle of an actor';
  if (typeof value === 'symbol') return 'a symbol cannot be sent';
  if (typeof value === 'bigint' && BigInt.asIntN(64, value) !== value && BigInt.asUintN(64, value) !== value)
    return 'a bigint of more than 64 bits cannot be sent: send its text';
  if (typeof value !== 'object' || value === null) return undefined;
  const type = refused(value);
  if (type === undefined) return undefined;
  return `${/^[AEIO]/.test(type.name) ? 'an' : 'a'} ${type.name} cannot be sent${instead.has(type) ? `: ${instead.get(type)}` : ''}`;
}

const MOST_LOOKED_AT = 100_000;

/** Where the first such thing is, and what it is. Only for values that did not encode. */
export function findUnsendable(value: unknown): { path: string; why: string } | undefined {
  const seen = new Set<unknown>();
  const stack: { value: unknown; path: string }[] = [{ value, path: '' }];
  for (let next = stack.pop(); next !== undefined && seen.size < MOST_LOOKED_AT; next = stack.pop()) {
    const { path } = next;
    const why = obstacle(next.value);
    if (why !== undefined) return { path, why };
    if (typeof next.value !== 'object' || next.value === null || ArrayBuffer.isView(next.value) || seen.has(next.value)) continue;
    seen.add(next.value);
    const inside: { value: unknown; path: string }[] = [];
    if (Array.isArray(next.value)) for (const [i, item] of next.value.entries()) inside.push({ value: item, path: `${path}[${i}]` });
    else if (next.value instanceof Map) {
      for (const [key, item] of next.value) {
        inside.push({ value: key, path: `${path}.keys()` });
        inside.push({ value: item, path: `${path}.get(${typeof key === 'string' ? JSON.stringify(key) : String(key)})` });
      }
    } else if (next.value instanceof Set) for (const item of next.value) inside.push({ value: item, path: `${path}.values()` });
    else for (const [key, item] of Object.entries(next.value)) inside.push({ value: item, path: `${path}.${key}` });
    stack.push(...inside.reverse());
  }
  return undefined;
}

/**
 * Throws if one of them is an iterator. Those have a class of their own from Node 22 on; before, the encoder takes them for plain objects,
 * and they are told only where they are passed as such.
 */
export function refuseIterators(values: readonly unknown[]): void {
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (typeof value !== 'object' || value === null || typeof (value as { next?: unknown }).next !== 'function') continue;
    const why = obstacle(value) ?? obstacle((value as { next: unknown }).next);
    throw new RuntimeFailure('SINKFLEX_NOT_SERIALIZABLE', `the value cannot be sent: ${why} (at value[${i}])`, {
      details: { path: `[${i}]` },
    });
  }
}

// Ahead of the classes that can be sent: those are looked up first.
for (const type of bound)
  addExtension({
    Class: type,
    type: 32,
    pack(value: object) {
      throw new RuntimeFailure('SINKFLEX_NOT_SERIALIZABLE', `the value cannot be sent: ${obstacle(value)}`);
    },
    unpack() {
      throw new RuntimeFailure('SINKFLEX_PROTOCOL', 'the peer sent an object that cannot be sent');
    },
  } as never);
