/**
 * The embedded store: one SQLite file beside the run (libsql), in WAL mode so that a report may read while the run writes.
 * Rows go in by slices of bounded size with the event loop between them; a step is still one transaction.
 */
import { existsSync, mkdirSync } from 'node:fs';
import { copyFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import Database from 'libsql';
import { ActorsError } from '../errors.ts';
import { headOf, type TrajectoryHead, type TrajectoryRecord } from './record.ts';
import { type ConsumedMark, consumedTwice, type StepEntry, storeFailure, type TrajectoryFilter, type TrajectoryStore } from './store.ts';

const FORMAT = 3;
const SCHEMA = `
CREATE TABLE IF NOT EXISTS trajectory (
  id INTEGER PRIMARY KEY, phase TEXT NOT NULL, step INTEGER NOT NULL, task INTEGER NOT NULL, sample INTEGER NOT NULL,
  grp TEXT NOT NULL, seed INTEGER NOT NULL, reward REAL, reward_parts TEXT NOT NULL, diagnostics TEXT, stop_reason TEXT NOT NULL,
  turns INTEGER NOT NULL, tool_calls INTEGER NOT NULL, malformed INTEGER NOT NULL, redone INTEGER NOT NULL, lineage INTEGER NOT NULL,
  advantage REAL, filtered TEXT, tokens INTEGER NOT NULL, produced_tokens INTEGER NOT NULL, version_min INTEGER, version_max INTEGER,
  forks TEXT, seconds TEXT NOT NULL, text TEXT NOT NULL, ids BLOB NOT NULL, produced BLOB NOT NULL, versions BLOB NOT NULL, logprobs BLOB NOT NULL,
  UNIQUE (phase, step, task, sample)
);
CREATE INDEX IF NOT EXISTS trajectory_task ON trajectory (task, sample);
CREATE INDEX IF NOT EXISTS trajectory_group ON trajectory (grp);
CREATE INDEX IF NOT EXISTS trajectory_version ON trajectory (version_min, version_max);
CREATE TABLE IF NOT EXISTS consumed (
  task INTEGER NOT NULL, sample INTEGER NOT NULL, step INTEGER NOT NULL, lineage INTEGER NOT NULL, PRIMARY KEY (task, sample)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS consumed_step ON consumed (step);
PRAGMA user_version = ${FORMAT};
`;
const LIGHT = `id, phase, step, task, sample, grp, seed, reward, reward_parts, diagnostics, stop_reason, turns, tool_calls, malformed, redone,
  lineage, advantage, filtered, tokens, produced_tokens, version_min, version_max, forks, seconds`;
const HEAVY = 'text, ids, produced, versions, logprobs';
/** Rows handed over at once: some tens of microseconds each, so that the loop is held for a few milliseconds. */
const SLICE_TOKENS = 200_000;
const SLICE_ROWS = 256;
const PAGE_ROWS = 128;
/** Readers hold the file for moments only. */
const BUSY_MS = 2000;

interface LightRow {
  id: number;
  phase: 'train' | 'validation';
  step: number;
  task: number;
  sample: number;
  grp: string;
  seed: number;
  reward: number | null;
  reward_parts: string;
  diagnostics: string | null;
  stop_reason: TrajectoryRecord['stop_reason'];
  turns: number;
  tool_calls: number;
  malformed: number;
  redone: number;
  lineage: number;
  advantage: number | null;
  filtered: string | null;
  tokens: number;
  produced_tokens: number;
  version_min: number | null;
  version_max: number | null;
  forks: string | null;
  seconds: string;
}
interface HeavyRow extends LightRow {
  text: string | ArrayBuffer;
  ids: ArrayBuffer;
  produced: ArrayBuffer;
  versions: ArrayBuffer;
  logprobs: ArrayBuffer;
}

type Connection = InstanceType<typeof Database>;

export class SqliteTrajectoryStore implements TrajectoryStore {
  readonly place: string;
  readonly #db: Connection;
  readonly #readonly: boolean;
  /** Transactions of this process, one after the other. */
  #last: Promise<unknown> = Promise.resolve();

  /** `readonly`: an existing store, which another process may be writing. */
  constructor(path: string, o: { readonly?: boolean } = {}) {
    this.place = path;
    this.#readonly = o.readonly ?? false;
    if (o.readonly && !existsSync(path)) throw storeFailure(path, 'read', new Error('there is no such file'));
    try {
      if (!o.readonly) mkdirSync(dirname(path), { recursive: true });
      this.#db = new Database(path, { timeout: BUSY_MS });
    } catch (e) {
      throw storeFailure(path, 'open', e);
    }
    this.#run('open', () => {
      const { user_version: format } = this.#db.prepare('PRAGMA user_version').get() as { user_version: number };
      if (format !== 0 && format !== FORMAT) throw new Error(`it has format ${format}, this version reads ${FORMAT}`);
      if (o.readonly) {
        this.#db.exec('PRAGMA query_only = 1');
        return;
      }
      this.#db.exec('PRAGMA journal_mode = WAL');
      this.#db.exec('PRAGMA synchronous = NORMAL');
      if (format < FORMAT) this.#db.exec(SCHEMA);
    });
  }

  /**
   * Copies the store as it is now to `path`, and what the file itself does not have yet to `path`-wal, while others go on writing: under a
   * read transaction nobody empties the log or puts later pages into the file, and pages that come meanwhile are in the copied log too.
   */
  async copyTo(path: string): Promise<void> {
    this.#run('copy', () => {
      this.#db.exec('BEGIN');
      this.#db.prepare('SELECT count(*) FROM sqlite_schema').get();
    });
    try {
      await copyFile(this.place, path);
      if (existsSync(`${this.place}-wal`)) await copyFile(`${this.place}-wal`, `${path}-wal`);
    } catch (e) {
      throw storeFailure(this.place, 'copy', e);
    } finally {
      this.#run('copy', () => this.#db.exec('ROLLBACK'));
    }
  }

  step(entry: StepEntry): Promise<void> {
    return this.#transaction('write', async () => {
      const mark = this.#db.prepare('INSERT INTO consumed (task, sample, step, lineage) VALUES (?, ?, ?, ?)');
      for (const m of entry.consumed) {
        try {
          mark.run(m.task, m.sample, entry.step, entry.lineage);
        } catch (e) {
          if ((e as { code?: string }).code === 'SQLITE_CONSTRAINT_PRIMARYKEY') throw consumedTwice(this.place, m, entry.step, e);
          throw e;
        }
      }
      await this.#insert(entry.records);
    });
  }

  validation(step: number, records: readonly TrajectoryRecord[]): Promise<void> {
    return this.#transaction('write', async () => {
      this.#db.prepare("DELETE FROM trajectory WHERE phase = 'validation' AND step = ?").run(step);
      await this.#insert(records);
    });
  }

  rewind(step: number): Promise<void> {
    return this.#transaction('cut back', async () => {
      this.#db.prepare("DELETE FROM trajectory WHERE phase = 'train' AND step > ?").run(step);
      this.#db.prepare('DELETE FROM consumed WHERE step > ?').run(step);
    });
  }

  async *read(filter: TrajectoryFilter = {}): AsyncGenerator<TrajectoryRecord> {
    for await (const row of this.#pages<HeavyRow>(`${LIGHT}, ${HEAVY}`, filter)) yield recordOf(row);
  }

  async *heads(filter: TrajectoryFilter = {}): AsyncGenerator<TrajectoryHead> {
    for await (const row of this.#pages<LightRow>(LIGHT, filter)) {
      const { tokens, produced_tokens, version_min, version_max } = row;
      yield { ...light(row), tokens, produced_tokens, version_min, version_max };
    }
  }

  async consumedAt(m: ConsumedMark): Promise<number | undefined> {
    return this.#run('read', () => {
      const row = this.#db.prepare('SELECT step FROM consumed WHERE task = ? AND sample = ?').get(m.task, m.sample);
      return (row as { step: number } | undefined)?.step;
    });
  }

  async consumedCount(): Promise<number> {
    return this.#run('read', () => (this.#db.prepare('SELECT COUNT(*) AS n FROM consumed').get() as { n: number }).n);
  }

  async stepsOf(phase: 'train' | 'validation'): Promise<number[]> {
    return this.#run('read', () =>
      (this.#db.prepare('SELECT DISTINCT step FROM trajectory WHERE phase = ? ORDER BY step').all(phase) as { step: number }[]).map(
        (r) => r.step,
      ),
    );
  }

  flush(): Promise<void> {
    return this.#alone(async () => {
      // Moves the log into the file and flushes both. A reader may hold some of it back: that part is flushed with the log.
      this.#run('flush', () => this.#db.prepare('PRAGMA wal_checkpoint(FULL)').all());
    });
  }

  async close(): Promise<void> {
    await this.#last.catch(() => {});
    if (!this.#db.open) return;
    // Whoever reads leaves the files as they are.
    if (!this.#readonly) this.#fold();
    this.#db.close();
  }

  #fold(): void {
    try {
      // One plain file, which opens from a disk that cannot be written; where somebody reads, the log stays.
      this.#db.prepare('PRAGMA journal_mode = DELETE').all();
    } catch {
      // Busy readers.
    }
  }

  async #insert(records: readonly TrajectoryRecord[]): Promise<void> {
    const columns = `${LIGHT.replace('id, ', '')}, ${HEAVY}`;
    const insert = this.#db.prepare(
      `INSERT INTO trajectory (${columns}) VALUES (${columns
        .split(',')
        .map(() => '?')
        .join(', ')})`,
    );
    let tokens = 0;
    let rows = 0;
    for (const r of records) {
      insert.run(...valuesOf(r));
      tokens += r.ids.length;
      if (++rows < SLICE_ROWS && tokens < SLICE_TOKENS) continue;
      [tokens, rows] = [0, 0];
      await new Promise((next) => setImmediate(next));
    }
  }

  async *#pages<Row extends LightRow>(columns: string, f: TrajectoryFilter): AsyncGenerator<Row> {
    const where = ['id > ?'];
    const values: (string | number)[] = [];
    const also = (condition: string, ...given: (string | number)[]): void => {
      where.push(condition);
      values.push(...given);
    };
    if (f.phase !== undefined) also('phase = ?', f.phase);
    if (f.steps !== undefined) also('step BETWEEN ? AND ?', ...f.steps);
    if (f.task !== undefined) also('task = ?', f.task);
    if (f.group !== undefined) also('grp = ?', f.group);
    if (f.version !== undefined) also('version_min <= ? AND version_max >= ?', f.version, f.version);
    const query = this.#run('read', () =>
      this.#db.prepare(`SELECT ${columns} FROM trajectory WHERE ${where.join(' AND ')} ORDER BY id LIMIT ${PAGE_ROWS}`),
    );
    for (let after = 0; ; ) {
      const rows = this.#run('read', () => query.all(after, ...values) as Row[]);
      yield* rows;
      if (rows.length < PAGE_ROWS) return;
      after = rows.at(-1)!.id;
      await new Promise((next) => setImmediate(next));
    }
  }

  #transaction(what: string, work: () => Promise<void>): Promise<void> {
    return this.#alone(async () => {
      this.#run(what, () => this.#db.exec('BEGIN IMMEDIATE'));
      try {
        await work();
        this.#db.exec('COMMIT');
      } catch (e) {
        if (this.#db.inTransaction) this.#db.exec('ROLLBACK');
        throw e instanceof ActorsError ? e : storeFailure(this.place, what, e);
      }
    });
  }

  #alone(work: () => Promise<void>): Promise<void> {
    const done = this.#last.catch(() => {}).then(work);
    this.#last = done;
    return done;
  }

  #run<T>(what: string, action: () => T): T {
    try {
      return action();
    } catch (e) {
      throw storeFailure(this.place, what, e);
    }
  }
}

type Value = string | number | null | Buffer;
function valuesOf(r: TrajectoryRecord): Value[] {
  const h = headOf(r);
  return [
    h.phase,
    h.step,
    h.task,
    h.sample,
    h.group,
    h.seed,
    // SQLite has no NaN: it stands as NULL, as in JSON.
    Number.isNaN(h.reward) ? null : h.reward,
    JSON.stringify(h.reward_parts),
    h.diagnostics === undefined ? null : JSON.stringify(h.diagnostics),
    h.stop_reason,
    h.turns,
    h.tool_calls,
    h.malformed,
    h.redone,
    h.lineage,
    h.advantage ?? null,
    h.filtered ?? null,
    h.tokens,
    h.produced_tokens,
    h.version_min,
    h.version_max,
    h.forks === undefined ? null : JSON.stringify(h.forks),
    JSON.stringify(h.seconds),
    // The binding reads text up to its first NUL, blobs whole.
    r.text.includes('\0') ? Buffer.from(r.text) : r.text,
    int32s(r.ids),
    int32s(r.produced.flat()),
    int32s(r.versions.flat()),
    Buffer.from(r.logprobs, 'base64'),
  ];
}

const int32s = (values: readonly number[]): Buffer => Buffer.from(Int32Array.from(values).buffer);
const pairs = (raw: ArrayBuffer): [number, number][] => {
  const flat = new Int32Array(raw);
  return Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i]!, flat[2 * i + 1]!]);
};

function light(row: LightRow): Omit<TrajectoryRecord, 'text' | 'ids' | 'produced' | 'versions' | 'logprobs'> {
  return {
    step: row.step,
    phase: row.phase,
    task: row.task,
    sample: row.sample,
    group: row.grp,
    seed: row.seed,
    reward: row.reward ?? Number.NaN,
    reward_parts: JSON.parse(row.reward_parts) as Record<string, number>,
    ...(row.diagnostics === null ? {} : { diagnostics: JSON.parse(row.diagnostics) as Record<string, number> }),
    stop_reason: row.stop_reason,
    turns: row.turns,
    tool_calls: row.tool_calls,
    malformed: row.malformed,
    redone: row.redone,
    lineage: row.lineage,
    ...(row.advantage === null ? {} : { advantage: row.advantage }),
    ...(row.filtered === null ? {} : { filtered: row.filtered }),
    ...(row.forks === null ? {} : { forks: JSON.parse(row.forks) as number[] }),
    seconds: JSON.parse(row.seconds) as TrajectoryRecord['seconds'],
  };
}

function recordOf(row: HeavyRow): TrajectoryRecord {
  const { seconds, ...rest } = light(row);
  return {
    ...rest,
    text: typeof row.text === 'string' ? row.text : Buffer.from(row.text).toString('utf8'),
    ids: [...new Int32Array(row.ids)],
    produced: pairs(row.produced),
    versions: pairs(row.versions),
    logprobs: Buffer.from(row.logprobs).toString('base64'),
    seconds,
  };
}
