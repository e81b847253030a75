/** `json.dumps` with Python's defaults: ASCII only, `, ` and `: `. And JSON read without losing the order of keys. */
import { floatRepr } from './float.ts';
import { compareStrings, numberText } from './values.ts';

const PLAIN = /^[ !#-[\]-~]*$/;

/** A string as a JSON literal in ASCII. */
export function quote(s: string): string {
  if (PLAIN.test(s)) return `"${s}"`;
  return JSON.stringify(s).replace(/[\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Values without a schema: what a model passed, stored as it came. Whole numbers are ints; a bigint says so of a float's place. */
export function dumps(v: unknown, sortKeys = false): string {
  if (v === null || v === undefined) return 'null';
  if (typeof v === 'string') return quote(v);
  if (typeof v === 'boolean') return v ? 'true' : 'false';
  if (typeof v === 'bigint') return v.toString();
  if (typeof v === 'number') return Number.isFinite(v) ? numberText(v) : floatJson(v);
  if (Array.isArray(v)) return `[${v.map((x) => dumps(x, sortKeys)).join(', ')}]`;
  const entries = v instanceof Map ? [...(v as Map<string, unknown>)] : Object.entries(v as object);
  if (sortKeys) entries.sort((a, b) => compareStrings(a[0], b[0]));
  return `{${entries.map(([k, x]) => `${quote(k)}: ${dumps(x, sortKeys)}`).join(', ')}}`;
}

/** A float in JSON: as its repr, but for the names that Python's json gives to what JSON lacks. */
export function floatJson(x: number): string {
  if (Number.isFinite(x)) return floatRepr(x);
  return Number.isNaN(x) ? 'NaN' : x > 0 ? 'Infinity' : '-Infinity';
}

const MARK = '\u0001';
const INTEGER_KEY = /(?<!\\)"(\d+)"(\s*:)/g;

/**
 * JSON whose integer-like keys stay where they stand: JavaScript would move "1151293680" in front of its neighbours. They come marked;
 * `keyOf` takes the mark off.
 */
export function parseOrdered(text: string): unknown {
  return JSON.parse(text.replace(INTEGER_KEY, '"\\u0001$1"$2'));
}

export function keyOf(key: string): string {
  return key.startsWith(MARK) ? key.slice(1) : key;
}
