/** `json.dumps` with Python's defaults: ASCII only, `, ` and `: `. */
import { floatRepr } from './float.ts';
import { compareStrings } from './values.ts';

const PLAIN = /^[ !#-[\]-~]*$/;

/** A string as a JSON literal in ASCII. */
export function quote(s: string): string {
  if (PLAIN.test(s)) return `"${s}"`;
  return JSON.stringify(s).replace(/[\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Values without a schema: what a model passed, stored as it came. */
export function dumps(v: unknown, sortKeys = false): string {
  if (v === null || v === undefined) return 'null';
  if (typeof v === 'string') return quote(v);
  if (typeof v === 'boolean') return v ? 'true' : 'false';
  if (typeof v === 'bigint') return v.toString();
  if (typeof v === 'number') return floatJson(v);
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
