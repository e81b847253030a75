/**
 * A database shared between environments: tables of records, read by all, copied record by record where one environment writes. What an
 * environment changed is all that it holds.
 */
import { createHash } from 'node:crypto';
import { quote } from './python/json.ts';
import { dump, merge, type Shape, validate } from './python/shape.ts';
import { compareStrings, isDict, lookUp, valueError } from './python/values.ts';

interface Printed {
  /** `"id": {...}, ` for each id in order, in ASCII. */
  bytes: Buffer;
  /** Where each begins; one more than there are. */
  starts: Float64Array;
  /** Place of an id in the order. */
  at: Map<string, number>;
}

/** A table as loaded. Never written: records may be frozen. */
export interface BaseTable<T = unknown> {
  shape: Shape<T>;
  records: ReadonlyMap<string, T>;
  /** Ids as they are hashed. */
  order: readonly string[];
  /** The records as they are hashed; made when first needed. */
  printed: Printed | undefined;
  /** Each record as tools show it. */
  shown: Map<string, string>;
}

export type BaseTables = Readonly<Record<string, BaseTable>>;

export function baseTable<T>(shape: Shape<T>, records: ReadonlyMap<string, T>): BaseTable<T> {
  return { shape, records, order: [...records.keys()].sort(compareStrings), printed: undefined, shown: new Map() };
}

function printOf<T>(base: BaseTable<T>): Printed {
  if (base.printed) return base.printed;
  const pieces = base.order.map((id) => `${quote(id)}: ${base.shape.write(base.records.get(id)!, true)}, `);
  const starts = new Float64Array(pieces.length + 1);
  for (const [i, piece] of pieces.entries()) starts[i + 1] = starts[i]! + piece.length;
  base.printed = { bytes: Buffer.from(pieces.join(''), 'latin1'), starts, at: new Map(base.order.map((id, i) => [id, i])) };
  return base.printed;
}

/** How many of the sorted ids come before this one. */
function lowerBound(order: readonly string[], id: string): number {
  let [low, high] = [0, order.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compareStrings(order[middle]!, id) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** One environment's view of a table. */
export class Table<T> {
  readonly base: BaseTable<T>;
  /** Records of its own, also those that the base does not have. */
  readonly own = new Map<string, T>();
  #version = 0;

  constructor(base: BaseTable<T>) {
    this.base = base;
  }

  /** Grows with every copy made for writing; a record once copied may change without it. */
  get version(): number {
    return this.#version;
  }

  /** For reading only. Raises for keys that no dict takes. */
  find(id: unknown): Readonly<T> | undefined {
    return this.own.size > 0 ? (lookUp(this.own, id) ?? lookUp(this.base.records, id)) : lookUp(this.base.records, id);
  }

  /** The environment's own copy of a record that is there. */
  edit(id: string): T {
    this.#version++;
    let mine = this.own.get(id);
    if (mine === undefined) {
      mine = this.base.shape.copy(this.base.records.get(id)!);
      this.own.set(id, mine);
    }
    return mine;
  }

  put(id: string, value: T): void {
    this.#version++;
    this.own.set(id, value);
  }

  /** A record that is there, as tools show it. */
  show(id: string): string {
    const mine = this.own.get(id);
    if (mine !== undefined) return this.base.shape.write(mine, false);
    let shown = this.base.shown.get(id);
    if (shown === undefined) {
      shown = this.base.shape.write(this.base.records.get(id)!, false);
      this.base.shown.set(id, shown);
    }
    return shown;
  }

  get size(): number {
    let added = 0;
    for (const id of this.own.keys()) if (!this.base.records.has(id)) added++;
    return this.base.records.size + added;
  }

  snapshot(): () => void {
    const before = new Map([...this.own].map(([id, record]) => [id, this.base.shape.copy(record)]));
    return () => {
      this.#version++;
      this.own.clear();
      for (const [id, record] of before) this.own.set(id, record);
    };
  }

  /** All records for reading, in the order of insertion. */
  *entries(): Generator<[string, Readonly<T>]> {
    for (const [id, record] of this.base.records) yield [id, this.own.get(id) ?? record];
    for (const [id, record] of this.own) if (!this.base.records.has(id)) yield [id, record];
  }

  /** As it is hashed, in pieces: what the environment did not change comes as views of one buffer of the base. */
  *print(): Generator<Uint8Array | string> {
    const { base, own } = this;
    const printed = printOf(base);
    const changed = [...own.keys()].sort(compareStrings);
    let next = 0;
    yield '{';
    let first = true;
    const separate = () => {
      const comma = first ? '' : ', ';
      first = false;
      return comma;
    };
    for (const id of [...changed, undefined]) {
      let end = next;
      if (id === undefined) end = base.order.length;
      else end = base.records.has(id) ? printed.at.get(id)! : lowerBound(base.order, id);
      if (end > next) {
        yield separate();
        // Without the ', ' after the last of them.
        yield printed.bytes.subarray(printed.starts[next]!, printed.starts[end]! - 2);
      }
      if (id === undefined) break;
      yield `${separate()}${quote(id)}: ${base.shape.write(own.get(id)!, true)}`;
      next = base.records.has(id) ? end + 1 : end;
    }
    yield '}';
  }

  /** Records that differ from the base, as they are hashed; nothing where only copies were made. */
  changes(): Map<string, string> {
    const out = new Map<string, string>();
    for (const [id, mine] of this.own) {
      const printed = this.base.shape.write(mine, true);
      const before = this.base.records.get(id);
      if (before === undefined || this.base.shape.write(before, true) !== printed) out.set(id, printed);
    }
    return out;
  }
}

/** What can be done with tables without knowing their records. */
export type Tables = Readonly<Record<string, Pick<Table<unknown>, 'print' | 'changes' | 'snapshot'>>>;

/** What puts everything back as it is now. */
export function snapshotTables(tables: Tables): () => void {
  const restores = Object.values(tables).map((table) => table.snapshot());
  return () => {
    for (const restore of restores) restore();
  };
}

/** Merges a task's data into a database; raises what its models refuse. */
export function patchTables(tables: object, data: Record<string, unknown>): void {
  for (const [name, records] of Object.entries(data)) {
    const table = Object.hasOwn(tables, name) ? (tables as Record<string, Table<unknown>>)[name] : undefined;
    if (!table || !isDict(records)) throw valueError(`the database has no table "${name}"`);
    for (const [id, patch] of records) {
      const now = table.find(id);
      table.put(id, validate(name, table.base.shape, now === undefined ? patch : merge(dump(table.base.shape, now), patch)));
    }
  }
}

/** The benchmark's hash of a database: sha256 of its dump with sorted keys. */
export function hashTables(tables: Tables): string {
  const hash = createHash('sha256');
  hash.update('{');
  for (const [i, name] of Object.keys(tables).sort(compareStrings).entries()) {
    hash.update(`${i > 0 ? ', ' : ''}${quote(name)}: `);
    for (const piece of tables[name]!.print()) hash.update(piece);
  }
  return hash.update('}').digest('hex');
}

/** Whether the hashes of two views of one base are equal, from what was changed alone. */
export function sameTables(a: Tables, b: Tables): boolean {
  return Object.keys(a).every((name) => {
    const [x, y] = [a[name]!.changes(), b[name]!.changes()];
    return x.size === y.size && [...x].every(([id, printed]) => y.get(id) === printed);
  });
}

export function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
