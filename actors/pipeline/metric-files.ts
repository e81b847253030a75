// Where the numbers of a run go: metrics.jsonl always, TensorBoard event files and a CSV table on request; with a cut-back for rollbacks and resumes.
import { existsSync, mkdirSync, readdirSync, readFileSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { type MetricRecord, readMetrics, SFT_STEP, TRAINING_STEP } from './metrics.ts';
import { AppendFile, atomicWrite, ioError } from './run-folder-io.ts';
import { eventFileName, frames, scalarRecord, stepOf, versionRecord } from './tensorboard.ts';

/** Takes the records of a run, in order. */
export interface MetricSink {
  write(record: MetricRecord): void;
  /** Forgets every training record after `step` (those of the warm start stay). */
  rewind(step: number): void;
  /** Forgets everything: the run begins again. */
  clear(): void;
  close(): void;
}

/** The loggers that write files beside metrics.jsonl. */
export type MetricFile = 'tensorboard' | 'csv';

/** metrics.jsonl of a run folder and what else is wanted: tensorboard/, metrics.csv. What exists is continued. */
export function openMetrics(folder: string, o: { files?: readonly MetricFile[]; now?: () => number } = {}): MetricSink {
  const files = o.files ?? ['tensorboard'];
  const lines = join(folder, 'metrics.jsonl');
  // The first: the table is written anew from it.
  const sinks: MetricSink[] = [new JsonLines(lines)];
  if (files.includes('tensorboard')) sinks.push(new EventFiles(join(folder, 'tensorboard'), o.now ?? Date.now));
  if (files.includes('csv')) sinks.push(new Table(join(folder, 'metrics.csv'), () => readMetrics(lines)));
  return {
    write: (record) => {
      for (const s of sinks) s.write(record);
    },
    rewind: (step) => {
      for (const s of sinks) s.rewind(step);
    },
    clear: () => {
      for (const s of sinks) s.clear();
    },
    close: () => {
      for (const s of sinks) s.close();
    },
  };
}

class JsonLines implements MetricSink {
  readonly #path: string;
  #file: AppendFile;
  constructor(path: string) {
    this.#path = path;
    // A torn last line of a crashed run is dropped before anything is appended to it.
    this.#file = new AppendFile(path, existsSync(path) ? encodeLines(readMetrics(path)) : undefined);
  }
  write(record: MetricRecord): void {
    this.#file.append(encodeLines([record]));
  }
  rewind(step: number): void {
    this.#keep(readMetrics(this.#path).filter((r) => !((r[TRAINING_STEP] ?? 0) > step)));
  }
  clear(): void {
    this.#keep([]);
  }
  #keep(records: readonly MetricRecord[]): void {
    this.#file.close();
    this.#file = new AppendFile(this.#path, encodeLines(records));
  }
  close(): void {
    this.#file.close();
  }
}

const encodeLines = (records: readonly MetricRecord[]): Buffer => Buffer.from(records.map((r) => `${JSON.stringify(r)}\n`).join(''));

class EventFiles implements MetricSink {
  readonly #folder: string;
  readonly #now: () => number;
  #file: AppendFile | undefined;
  constructor(folder: string, now: () => number) {
    this.#folder = folder;
    this.#now = now;
    try {
      mkdirSync(folder, { recursive: true });
    } catch (error) {
      throw ioError(error, folder);
    }
  }
  write(record: MetricRecord): void {
    const { [TRAINING_STEP]: training, [SFT_STEP]: sft, ...scalars } = record;
    this.#open().append(scalarRecord({ wallTime: this.#now() / 1000, step: training ?? sft ?? 0, scalars }));
  }
  rewind(step: number): void {
    this.#keep((payload) => (stepOf(payload) ?? 0) <= step || isWarmStart(payload));
  }
  clear(): void {
    this.#keep(() => false);
  }
  #keep(wanted: (payload: Buffer) => boolean): void {
    this.#file?.close();
    this.#file = undefined;
    for (const name of readdirSync(this.#folder).filter((n) => n.includes('tfevents'))) {
      const path = join(this.#folder, name);
      const kept = [...frames(readFileSync(path))].filter((f) => wanted(f.payload));
      if (kept.length <= 1) unlinkSync(path);
      else atomicWrite(path, Buffer.concat(kept.map((f) => f.whole)));
    }
  }
  close(): void {
    this.#file?.close();
    this.#file = undefined;
  }
  #open(): AppendFile {
    if (this.#file) return this.#file;
    const seconds = this.#now() / 1000;
    let name = eventFileName(seconds);
    for (let n = 1; existsSync(join(this.#folder, name)); n++) name = eventFileName(seconds).replace(/\.\d+$/, `.${n}`);
    this.#file = new AppendFile(join(this.#folder, name), versionRecord(seconds));
    return this.#file;
  }
}

/** Records of the warm start count their own steps; every one of their tags begins with sft/. */
const isWarmStart = (payload: Buffer): boolean => payload.includes('sft/');

/**
 * A row a record, a column a name, in the order in which names came first: columns never move. A record with a new name makes the file be
 * written anew as a whole; the names are few and soon all known.
 */
class Table implements MetricSink {
  readonly #path: string;
  readonly #records: () => MetricRecord[];
  #columns = new Set<string>();
  #file: AppendFile | undefined;
  /** `records`: all that were written before, and the one that is being written. */
  constructor(path: string, records: () => MetricRecord[]) {
    this.#path = path;
    this.#records = records;
    this.#rewrite();
  }
  write(record: MetricRecord): void {
    if (Object.keys(record).some((name) => !this.#columns.has(name))) this.#rewrite();
    else this.#file?.append(Buffer.from(this.#row(record)));
  }
  rewind(): void {
    this.#rewrite();
  }
  clear(): void {
    this.#rewrite();
  }
  close(): void {
    this.#file?.close();
  }
  #rewrite(): void {
    const records = this.#records();
    this.#columns = new Set(records.flatMap(Object.keys));
    const header = `${[...this.#columns].map(cell).join(',')}\n`;
    this.#file?.close();
    this.#file = new AppendFile(this.#path, Buffer.from(header + records.map((r) => this.#row(r)).join('')));
  }
  #row(record: MetricRecord): string {
    return `${[...this.#columns].map((name) => record[name] ?? '').join(',')}\n`;
  }
}

/** RFC 4180. */
const cell = (text: string): string => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
