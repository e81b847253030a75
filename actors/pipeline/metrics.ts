// Where the numbers of a run go: metrics.jsonl and TensorBoard event files behind one interface, with a cut-back for rollbacks and resumes.
import {
  closeSync,
  existsSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { atomicWrite, ioError } from './run-folder-io.ts';
import type { Interval } from './statistics.ts';
import { eventFileName, frames, scalarRecord, stepOf, versionRecord } from './tensorboard.ts';

/** The numbers of one step under verl's names. */
export type MetricRecord = Record<string, number>;

/** The name that counts GRPO steps; a record without it belongs to the warm start and has SFT_STEP. */
export const TRAINING_STEP = 'training/global_step';
export const SFT_STEP = 'sft/global_step';

/** Takes the records of a run, in order. */
export interface MetricSink {
  write(record: MetricRecord): void;
  /** Forgets every training record after `step` (those of the warm start stay). */
  rewind(step: number): void;
  /** Forgets everything: the run begins again. */
  clear(): void;
  close(): void;
}

const TIMING_PREFIXES = ['timing_s/', 'timing_per_token_ms/', 'perf/', 'time/'];

/** Wall-clock numbers, which no promise of reproducibility covers. */
export const isTiming = (name: string): boolean => TIMING_PREFIXES.some((p) => name.startsWith(p));

/** The part of a record that a seed fixes in synchronous mode. */
export function withoutTimings(record: MetricRecord): MetricRecord {
  return Object.fromEntries(Object.entries(record).filter(([name]) => !isTiming(name)));
}

/** Reads metrics.jsonl; a torn last line (a crash) is left out. */
export function readMetrics(path: string): MetricRecord[] {
  if (!existsSync(path)) return [];
  const records: MetricRecord[] = [];
  for (const line of readFileSync(path, 'utf8').split('\n')) {
    if (line === '') continue;
    try {
      records.push(JSON.parse(line, (_, v) => v ?? Number.NaN) as MetricRecord);
    } catch {
      break;
    }
  }
  return records;
}

/** A validation as it stands in the metrics: the step it was made after, and its score. */
export interface ValidationPoint {
  step: number;
  score: Interval;
}

/** The validations among the records, by step, whatever their source and N; of two at one step the later counts. */
export function validationPoints(records: readonly MetricRecord[]): ValidationPoint[] {
  const points = new Map<number, ValidationPoint>();
  for (const r of records) {
    const name = Object.keys(r).find((key) => /^val-core\/.+\/reward\/mean@\d+$/.test(key));
    if (name === undefined) continue;
    const step = r[TRAINING_STEP] ?? 0;
    const mean = r[name]!;
    const n = Object.entries(r).find(([key]) => /^val-core\/.+\/tasks$/.test(key))?.[1] ?? 0;
    points.set(step, { step, score: { mean, low: r[`${name}/low`] ?? mean, high: r[`${name}/high`] ?? mean, n } });
  }
  return [...points.values()].sort((a, b) => a.step - b.step);
}

/** metrics.jsonl and tensorboard/ of a run folder. Both are continued where they exist. */
export function openMetrics(folder: string, o: { now?: () => number } = {}): MetricSink {
  const sinks: MetricSink[] = [
    new JsonLines(join(folder, 'metrics.jsonl')),
    new EventFiles(join(folder, 'tensorboard'), o.now ?? Date.now),
  ];
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

/** A file that only grows, by whole pieces: a piece that does not fit on the disk is taken back. */
export class AppendFile {
  readonly path: string;
  #fd: number;
  #size: number;
  constructor(path: string, content?: Uint8Array) {
    this.path = path;
    if (content !== undefined) atomicWrite(path, content);
    try {
      this.#fd = openSync(path, 'a');
    } catch (error) {
      throw ioError(error, path);
    }
    this.#size = fstatSync(this.#fd).size;
  }
  append(piece: Uint8Array): void {
    try {
      for (let done = 0; done < piece.length; ) done += writeSync(this.#fd, piece, done);
      this.#size += piece.length;
    } catch (error) {
      const failure = ioError(error, this.path);
      try {
        ftruncateSync(this.#fd, this.#size);
      } catch {
        // A reader drops what is torn; the first error is the one to tell.
      }
      throw failure;
    }
  }
  close(): void {
    if (this.#fd < 0) return;
    fsyncSync(this.#fd);
    closeSync(this.#fd);
    this.#fd = -1;
  }
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
