/**
 * Shapes of the benchmark's data: how a value is read and checked (as pydantic does in its lax mode), copied, and printed with the types that
 * its schema gives it - 250 as `250.0` where the field is a float. Fields print in the order in which they are declared.
 */
import { readExact } from '../../../exact-json.ts';
import { dumps, floatJson, quote } from './json.ts';
import { compareStrings, equals, isDict, PythonError, repr, typeName } from './values.ts';

export interface Shape<T = unknown> {
  /** Reads exact JSON; what does not fit is reported, and the result then means nothing. */
  load(raw: unknown, report: Report, path: string): T;
  /** As `json.dumps` prints it; `sorted`: with sort_keys, as it is hashed. */
  write(value: T, sorted: boolean): string;
  /** Deep. */
  copy(value: T): T;
  /** For absent fields. */
  fallback?: () => T;
}

export type Report = (path: string, type: string, message: string, value: unknown) => void;

const same = <T>(value: T): T => value;

function scalar<T>(
  load: (raw: unknown, fail: (type: string, message: string) => void) => T,
  write: (v: unknown, sorted: boolean) => string,
): Shape<T> {
  return {
    load: (raw, report, path) => load(raw, (type, message) => report(path, type, message, raw)),
    write,
    copy: same,
  };
}

export const text: Shape<string> = scalar(
  (raw, fail) => {
    if (typeof raw !== 'string') fail('string_type', 'Input should be a valid string');
    return raw as string;
  },
  (v, sorted) => (typeof v === 'string' ? quote(v) : dumps(v, sorted)),
);

const NUMERIC = /^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$/;

/** Prints whole numbers with `.0`; a bigint stands for an int that was assigned unchecked. */
export const float: Shape<number | bigint> = scalar(
  (raw, fail) => {
    if (typeof raw === 'number') return raw;
    if (typeof raw === 'boolean' || typeof raw === 'bigint') return Number(raw);
    if (typeof raw === 'string' && NUMERIC.test(raw)) return Number(raw);
    fail('float_type', 'Input should be a valid number');
    return 0;
  },
  (v, sorted) => (typeof v === 'number' ? floatJson(v) : dumps(v, sorted)),
);

export const int: Shape<bigint> = scalar((raw, fail) => {
  if (typeof raw === 'bigint') return raw;
  if (typeof raw === 'boolean') return BigInt(raw);
  if (typeof raw === 'string' && /^\s*[-+]?\d+(\.0*)?\s*$/.test(raw)) return BigInt(raw.replace(/\..*/, '').replace('+', ''));
  if (typeof raw === 'number' && Number.isInteger(raw)) return BigInt(raw);
  if (typeof raw === 'number') fail('int_from_float', 'Input should be a valid integer, got a number with a fractional part');
  else fail('int_type', 'Input should be a valid integer');
  return 0n;
}, dumps);

const WORDS = new Map<unknown, boolean>(
  ['true', 't', 'yes', 'y', 'on', '1']
    .map((w): [string, boolean] => [w, true])
    .concat(['false', 'f', 'no', 'n', 'off', '0'].map((w) => [w, false])),
);

export const bool: Shape<boolean> = scalar((raw, fail) => {
  if (typeof raw === 'boolean') return raw;
  const known = typeof raw === 'string' ? WORDS.get(raw.toLowerCase()) : equals(raw, 1n) ? true : equals(raw, 0n) ? false : undefined;
  if (known === undefined) fail('bool_parsing', 'Input should be a valid boolean');
  return known ?? false;
}, dumps);

/** One of some strings; assigned unchecked it may hold anything, and prints as it is. */
export function literal<T extends string>(...values: T[]): Shape<T> {
  const wanted = values.length === 1 ? repr(values[0]) : `${values.slice(0, -1).map(repr).join(', ')} or ${repr(values.at(-1))}`;
  return scalar((raw, fail) => {
    if (!values.includes(raw as T)) fail('literal_error', `Input should be ${wanted}`);
    return raw as T;
  }, dumps);
}

/** A date or time as its text; it prints as `str()` gives it: a blank where ISO has a T. */
export const moment: Shape<string> = scalar((raw, fail) => {
  if (typeof raw !== 'string' || !/^\d{4}-\d\d-\d\d/.test(raw)) fail('date_from_datetime_parsing', 'Input should be a valid date');
  return String(raw).replace('T', ' ');
}, dumps);

export function optional<T>(of: Shape<T>): Shape<T | null> {
  return {
    load: (raw, report, path) => (raw === null || raw === undefined ? null : of.load(raw, report, path)),
    write: (value, sorted) => (value === null || value === undefined ? 'null' : of.write(value, sorted)),
    copy: (value) => (value === null || value === undefined ? value : of.copy(value)),
    fallback: () => null,
  };
}

export function withDefault<T>(of: Shape<T>, fallback: () => T): Shape<T> {
  return { ...of, fallback };
}

export function list<T>(of: Shape<T>): Shape<T[]> {
  return {
    load(raw, report, path) {
      if (Array.isArray(raw)) return raw.map((item, i) => of.load(item, report, `${path}.${i}`));
      report(path, 'list_type', 'Input should be a valid list', raw);
      return [];
    },
    write: (value, sorted) => (Array.isArray(value) ? `[${value.map((item) => of.write(item, sorted)).join(', ')}]` : dumps(value, sorted)),
    copy: (value) => (Array.isArray(value) ? value.map(of.copy) : value),
  };
}

/** A dict with string keys, in the order of insertion. */
export function dict<T>(of: Shape<T>): Shape<Map<string, T>> {
  return {
    load(raw, report, path) {
      const out = new Map<string, T>();
      if (!isDict(raw)) report(path, 'dict_type', 'Input should be a valid dictionary', raw);
      else for (const [key, value] of raw) out.set(key, of.load(value, report, `${path}.${key}`));
      return out;
    },
    write(value, sorted) {
      const keys = [...value.keys()];
      if (sorted) keys.sort(compareStrings);
      return `{${keys.map((key) => `${quote(key)}: ${of.write(value.get(key)!, sorted)}`).join(', ')}}`;
    },
    copy: (value) => new Map([...value].map(([key, item]) => [key, of.copy(item)])),
  };
}

/** An instance of a model: not a dict, to which anything else compares and prints otherwise. */
export function isModel(v: unknown): v is Record<string, unknown> {
  return typeof v === 'object' && v !== null && !Array.isArray(v) && !isDict(v);
}

export type Fields = Record<string, Shape>;
export type RecordOf<F extends Fields> = { -readonly [K in keyof F]: F[K] extends Shape<infer T> ? T : never };

/** A model of named fields. `extra: 'forbid'` refuses others, as the benchmark's databases do. */
export function record<F extends Fields>(
  name: string,
  fields: F,
  extra: 'ignore' | 'forbid' = 'ignore',
): Shape<RecordOf<F>> & { fields: F } {
  const entries = Object.entries(fields) as [string, Shape][];
  const labels = new Map(entries.map(([key]) => [key, `${quote(key)}: `]));
  const inOrder = [...entries].sort((a, b) => compareStrings(a[0], b[0]));
  return {
    fields,
    load(raw, report, path) {
      const out: Record<string, unknown> = {};
      const given = isModel(raw) ? new Map(Object.entries(raw)) : raw;
      if (!isDict(given)) {
        report(path, 'model_type', `Input should be a valid dictionary or instance of ${name}`, raw);
        return out as RecordOf<F>;
      }
      for (const [key, shape] of entries) {
        const here = path === '' ? key : `${path}.${key}`;
        if (given.has(key)) out[key] = shape.load(given.get(key), report, here);
        else if (shape.fallback) out[key] = shape.fallback();
        else report(here, 'missing', 'Field required', raw);
      }
      if (extra === 'forbid') {
        for (const [key, value] of given) {
          if (!Object.hasOwn(fields, key))
            report(path === '' ? key : `${path}.${key}`, 'extra_forbidden', 'Extra inputs are not permitted', value);
        }
      }
      return out as RecordOf<F>;
    },
    write(value, sorted) {
      // Assigned unchecked it may be anything.
      if (!isModel(value)) return dumps(value, sorted);
      let out = '{';
      for (const [key, shape] of sorted ? inOrder : entries) {
        if (out.length > 1) out += ', ';
        out += labels.get(key)! + shape.write((value as Record<string, unknown>)[key], sorted);
      }
      return `${out}}`;
    },
    copy(value) {
      if (!isModel(value)) return value;
      const out: Record<string, unknown> = {};
      for (const [key, shape] of entries) out[key] = shape.copy((value as Record<string, unknown>)[key]);
      return out as RecordOf<F>;
    },
  };
}

/** One of several models, told by a field whose value is a literal. */
export function union<T extends Record<string, unknown>>(tag: keyof T & string, of: Record<string, Shape>): Shape<T> {
  const shapeOf = (value: unknown): Shape | undefined => {
    const kind = isDict(value) ? value.get(tag) : isModel(value) ? value[tag] : undefined;
    return typeof kind === 'string' && Object.hasOwn(of, kind) ? of[kind] : undefined;
  };
  return {
    load(raw, report, path) {
      const shape = shapeOf(raw);
      if (shape) return shape.load(raw, report, path) as T;
      report(path, 'union_tag', `Input should have one of ${Object.keys(of).join(', ')} as ${tag}`, raw);
      return {} as T;
    },
    write: (value, sorted) => shapeOf(value)?.write(value, sorted) ?? dumps(value, sorted),
    copy: (value) => (shapeOf(value)?.copy(value) ?? value) as T,
  };
}

/** Reads a model, or raises what pydantic raises. */
export function validate<T>(name: string, shape: Shape<T>, raw: unknown): T {
  const lines: string[] = [];
  let errors = 0;
  const value = shape.load(
    raw,
    (path, type, message, input) => {
      errors++;
      lines.push(path, `  ${message} [type=${type}, input_value=${repr(input)}, input_type=${typeName(input)}]`);
    },
    '',
  );
  if (errors === 0) return value;
  throw new PythonError('ValidationError', `${errors} validation error${errors === 1 ? '' : 's'} for ${name}\n${lines.join('\n')}`);
}

/** What a model holds, as `model_dump` gives it. */
export function dump<T>(shape: Shape<T>, value: T): unknown {
  return readExact(shape.write(value, false));
}

/** Merges a patch as the benchmark's initialization_data is merged: dicts key by key, everything else replaced. */
export function merge(into: unknown, patch: unknown): unknown {
  if (!isDict(into) || !isDict(patch)) return patch;
  const out = new Map(into);
  for (const [key, value] of patch) out.set(key, out.has(key) ? merge(out.get(key), value) : value);
  return out;
}
