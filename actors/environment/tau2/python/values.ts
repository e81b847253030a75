/**
 * Python's view of JSON values, as exact-json.ts reads them: what a tool of the benchmark sees when a model passes a list for a string. An int is
 * a bigint, a float a number, a dict a Map.
 */
import { floatRepr } from './float.ts';

export type PythonErrorKind =
  | 'ValueError'
  | 'TypeError'
  | 'KeyError'
  | 'AttributeError'
  | 'ZeroDivisionError'
  | 'OverflowError'
  | 'SyntaxError'
  | 'ValidationError'
  | 'AssertionError'
  | 'UnboundLocalError';

/** An exception as the benchmark's Python raises it; its message is `str(e)`. */
export class PythonError extends Error {
  override readonly name = 'PythonError';
  readonly kind: PythonErrorKind;

  constructor(kind: PythonErrorKind, message: string) {
    super(message);
    this.kind = kind;
  }
}

export const valueError = (message: string): PythonError => new PythonError('ValueError', message);
export const typeError = (message: string): PythonError => new PythonError('TypeError', message);

/** Name of the type. */
export function typeName(v: unknown): string {
  if (v === null || v === undefined) return 'NoneType';
  if (typeof v === 'string') return 'str';
  if (typeof v === 'boolean') return 'bool';
  if (typeof v === 'bigint') return 'int';
  if (typeof v === 'number') return 'float';
  return Array.isArray(v) ? 'list' : 'dict';
}

/** `str(v)` */
export function str(v: unknown): string {
  return typeof v === 'string' ? v : repr(v);
}

/** `repr(v)` */
export function repr(v: unknown): string {
  if (v === null || v === undefined) return 'None';
  if (typeof v === 'string') return stringRepr(v);
  if (typeof v === 'boolean') return v ? 'True' : 'False';
  if (typeof v === 'bigint') return v.toString();
  if (typeof v === 'number') return floatRepr(v);
  if (Array.isArray(v)) return `[${v.map(repr).join(', ')}]`;
  const entries = v instanceof Map ? [...v] : Object.entries(v as object);
  return `{${entries.map(([k, x]) => `${repr(k)}: ${repr(x)}`).join(', ')}}`;
}

const ESCAPES: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t', '\\': '\\\\' };

function stringRepr(s: string): string {
  const quote = s.includes("'") && !s.includes('"') ? '"' : "'";
  let out = quote;
  for (const c of s) {
    const code = c.codePointAt(0)!;
    if (c === quote) out += `\\${c}`;
    else if (ESCAPES[c] !== undefined) out += ESCAPES[c];
    else if (code < 0x20 || (code >= 0x7f && code < 0xa1) || code === 0xad) out += `\\x${code.toString(16).padStart(2, '0')}`;
    else out += c;
  }
  return out + quote;
}

/** `a == b`: True == 1, lists and dicts by value. */
export function equals(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  const [x, y] = [numberOf(a), numberOf(b)];
  if (x !== undefined && y !== undefined) return x <= y && x >= y;
  if (Array.isArray(a)) return Array.isArray(b) && a.length === b.length && a.every((item, i) => equals(item, b[i]));
  if (!isDict(a) || !isDict(b)) return false;
  return a.size === b.size && [...a].every(([key, item]) => b.has(key) && equals(item, b.get(key)));
}

/** A number as Python counts with it; bools are ints. JavaScript compares ints with floats exactly, as Python does. */
export function numberOf(v: unknown): number | bigint | undefined {
  if (typeof v === 'boolean') return v ? 1n : 0n;
  return typeof v === 'number' || typeof v === 'bigint' ? v : undefined;
}

/** What `a <operator> b` raises where the two have no order. */
export const unordered = (operator: string, a: unknown, b: unknown): PythonError =>
  typeError(`'${operator}' not supported between instances of '${typeName(a)}' and '${typeName(b)}'`);

export function isDict(v: unknown): v is Map<string, unknown> {
  return v instanceof Map;
}

/** What a dict or set does with a key first. */
export function hashable(key: unknown): void {
  if (typeof key === 'object' && key !== null) throw typeError(`unhashable type: '${typeName(key)}'`);
}

/** `map[key]` where it is there; keys of the benchmark's dicts are strings. */
export function lookUp<T>(map: ReadonlyMap<string, T>, key: unknown): T | undefined {
  hashable(key);
  return typeof key === 'string' ? map.get(key) : undefined;
}

/** `for x in v` */
export function iterate(v: unknown): unknown[] {
  if (typeof v === 'string') return [...v];
  if (Array.isArray(v)) return v;
  if (isDict(v)) return [...v.keys()];
  throw typeError(`'${typeName(v)}' object is not iterable`);
}

/** `len(v)` */
export function length(v: unknown): number {
  if (typeof v === 'string' || Array.isArray(v) || isDict(v)) return iterate(v).length;
  throw typeError(`object of type '${typeName(v)}' has no len()`);
}

/** `v.count(x)` of lists and strings. */
export function count(v: unknown, x: unknown): number {
  if (Array.isArray(v)) return v.reduce<number>((n, item) => n + (equals(item, x) ? 1 : 0), 0);
  if (typeof v !== 'string') throw noAttribute(v, 'count');
  if (typeof x !== 'string') throw typeError(`must be str, not ${typeName(x)}`);
  return x === '' ? [...v].length + 1 : v.split(x).length - 1;
}

/** `v.lower()` */
export function lower(v: unknown): string {
  if (typeof v !== 'string') throw noAttribute(v, 'lower');
  return v.toLowerCase();
}

export function noAttribute(v: unknown, name: string): PythonError {
  return new PythonError('AttributeError', `'${typeName(v)}' object has no attribute '${name}'`);
}

/** Order of code points, as Python sorts; UTF-16 order differs above U+FFFF. */
export function compareStrings(a: string, b: string): number {
  const n = Math.min(a.length, b.length);
  for (let i = 0; i < n; i++) {
    const [x, y] = [a.charCodeAt(i), b.charCodeAt(i)];
    if (x === y) continue;
    const [sx, sy] = [x >= 0xd800 && x <= 0xdfff, y >= 0xd800 && y <= 0xdfff];
    return sx === sy ? x - y : sx ? 1 : -1;
  }
  return a.length - b.length;
}

/** `sorted(v)` */
export function sorted(v: unknown): unknown[] {
  return [...iterate(v)].sort((a, b) => {
    if (typeof a === 'string' && typeof b === 'string') return compareStrings(a, b);
    const [x, y] = [numberOf(a), numberOf(b)];
    if (x !== undefined && y !== undefined) return x < y ? -1 : x > y ? 1 : 0;
    throw unordered('<', b, a);
  });
}
