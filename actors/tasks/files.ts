/**
 * Tasks from files: JSON lines, Parquet, or a module. Every row is checked before anything starts; SINKFLEX_TASK_FILE says which file and
 * which line (of Parquet and modules: which row) cannot be used.
 */
import { readFileSync, statSync } from 'node:fs';
import { extname, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ActorsError } from '../errors.ts';
import type { TaskRow } from './types.ts';

/** From the columns of a row to the task; throws an Error that says what is wrong with it. */
export type RowReader = (row: Record<string, unknown>) => TaskRow;

const MODULES = ['.js', '.mjs', '.ts', '.mts'];

export async function readTaskFiles(paths: readonly string[], read: RowReader): Promise<TaskRow[]> {
  const rows: TaskRow[] = [];
  for (const path of paths) {
    const before = rows.length;
    for await (const { where, row } of rowsOf(resolve(path))) rows.push(checked(row, where, read));
    if (rows.length === before) throw refusal(path, 'it holds no row');
  }
  return rows;
}

interface Located {
  /** file:line. */
  where: string;
  row: unknown;
}

async function* rowsOf(path: string): AsyncGenerator<Located> {
  if (!statSync(path, { throwIfNoEntry: false })?.isFile()) throw refusal(path, 'there is no such file');
  const kind = extname(path);
  if (kind === '.jsonl' || kind === '.ndjson') yield* lines(path);
  else if (kind === '.parquet') yield* parquet(path);
  else if (MODULES.includes(kind)) yield* moduleRows(path);
  else throw refusal(path, `it must end in .jsonl, .ndjson, .parquet, or ${MODULES.join(', ')} for a module`);
}

function* lines(path: string): Generator<Located> {
  let number = 0;
  for (const line of readFileSync(path, 'utf8').split('\n')) {
    number++;
    if (line.trim() === '') continue;
    const where = `${path}:${number}`;
    try {
      yield { where, row: JSON.parse(line) };
    } catch (cause) {
      throw refusal(where, `no JSON: ${(cause as Error).message}`, cause);
    }
  }
}

async function* parquet(path: string): AsyncGenerator<Located> {
  const { asyncBufferFromFile, parquetReadObjects } = await import('hyparquet');
  let rows: Record<string, unknown>[];
  try {
    rows = await parquetReadObjects({ file: await asyncBufferFromFile(path) });
  } catch (cause) {
    throw refusal(path, `it cannot be read as Parquet (plain or snappy): ${(cause as Error).message}`, cause);
  }
  for (const [i, row] of rows.entries()) yield { where: `${path}: row ${i + 1}`, row: plain(row) };
}

/** Its default export: rows, or a function (possibly async) that returns them. */
async function* moduleRows(path: string): AsyncGenerator<Located> {
  let rows: unknown;
  try {
    const { default: given } = (await import(pathToFileURL(path).href)) as { default?: unknown };
    rows = typeof given === 'function' ? await given() : given;
  } catch (cause) {
    throw refusal(path, `the module failed: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
  }
  const iterable = rows as AsyncIterable<unknown> & Iterable<unknown>;
  if (typeof rows !== 'object' || rows === null || !(Symbol.iterator in iterable || Symbol.asyncIterator in iterable))
    throw refusal(path, 'its default export must be an array of rows, or a function that returns one');
  let number = 0;
  for await (const row of iterable) yield { where: `${path}: row ${++number}`, row: plain(row) };
}

/** As JSON would have it: whole numbers of 64 bits become numbers, absent values go. */
function plain(value: unknown): unknown {
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
  if (value instanceof Date) return value.toISOString();
  if (Array.isArray(value)) return value.map(plain);
  if (ArrayBuffer.isView(value)) return [...(value as Uint8Array)].map(plain);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, v]) => v !== undefined && v !== null)
      .map(([k, v]) => [k, plain(v)]),
  );
}

function checked(row: unknown, where: string, read: RowReader): TaskRow {
  if (typeof row !== 'object' || row === null || Array.isArray(row)) throw refusal(where, 'a row is an object');
  try {
    return read(row as Record<string, unknown>);
  } catch (cause) {
    throw refusal(where, cause instanceof Error ? cause.message : String(cause), cause);
  }
}

function refusal(where: string, what: string, cause?: unknown): ActorsError {
  return new ActorsError('SINKFLEX_TASK_FILE', `${where}: ${what}`, { details: { where }, ...(cause === undefined ? {} : { cause }) });
}
