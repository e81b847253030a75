// The head's memory on disk: every change is appended and synced before anybody hears of its consequences. Changes of the same moment share
// one fdatasync. What a crash left half written is cut off at the next start: nobody had heard of it. When the log has grown, a snapshot
// takes its place.
//   <n>.log        8 bytes magic, then records: u32 length, u32 CRC-32 of what follows, u32 length of the header, header, sections
//   <n>.snapshot   8 bytes magic, one record: the state at the beginning of <n>.log
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { type FileHandle, open, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { RuntimeFailure } from '../api/errors.ts';
import { decodeAlone, Encoded, encodeAlone } from '../wire/index.ts';

const MAGIC = Buffer.from('SFXJRNL1', 'latin1');
const PREFIX = 12;
const COMPACT_BYTES = 16 * 2 ** 20;

function toRecord(value: unknown): Buffer {
  const { header, sections } = encodeAlone(value);
  const record = Buffer.alloc(PREFIX + header.length + sections.length);
  record.writeUInt32LE(record.length - 8, 0);
  record.writeUInt32LE(header.length, 8);
  record.set(header, PREFIX);
  record.set(sections, PREFIX + header.length);
  record.writeUInt32LE(crc32(record.subarray(8)), 4);
  return record;
}

/** All whole records of a file, and where the last of them ends. */
function readRecords(path: string): { records: unknown[]; end: number; size: number } {
  const bytes = readFileSync(path);
  const records: unknown[] = [];
  if (!bytes.subarray(0, MAGIC.length).equals(MAGIC)) return { records, end: 0, size: bytes.length };
  let at = MAGIC.length;
  while (bytes.length - at >= PREFIX) {
    const length = bytes.readUInt32LE(at);
    const next = at + 8 + length;
    if (length < 4 || next > bytes.length || crc32(bytes.subarray(at + 8, next)) !== bytes.readUInt32LE(at + 4)) break;
    const headerEnd = at + PREFIX + bytes.readUInt32LE(at + 8);
    // Copies: sections must be aligned, and the file's buffer is not to be kept.
    records.push(
      decodeAlone(new Encoded(new Uint8Array(bytes.subarray(at + PREFIX, headerEnd)), new Uint8Array(bytes.subarray(headerEnd, next)))),
    );
    at = next;
  }
  return { records, end: at, size: bytes.length };
}

function syncFolder(folder: string): void {
  const descriptor = openSync(folder, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

type Queued = { bytes: Buffer } | { action: () => void } | { snapshot: Buffer };

export interface Recovered {
  journal: Journal;
  snapshot: unknown;
  records: unknown[];
  /** Bytes of unfinished records that were cut off. */
  cut: number;
}

/** What a head writes down before it speaks. */
export interface RecordLog {
  append(record: unknown): void;
  /** Runs it when all that was appended before is safe, in the order of these calls. */
  whenDurable(action: () => void): void;
  /** The whole state, for a snapshot. */
  makeSnapshot: (() => unknown) | undefined;
}

export class Journal implements RecordLog {
  readonly #folder: string;
  #number: number;
  #file: FileHandle;
  #size: number;
  readonly #compactBytes: number;
  #queue: Queued[] = [];
  #flushing: Promise<void> | undefined;
  #compacting = false;
  #failed = false;
  /** The whole state, for a snapshot. */
  makeSnapshot: (() => unknown) | undefined;
  /** The disk refuses: nothing that is promised from here on can be kept. */
  onFailure: (error: Error) => void = (error) => {
    throw error;
  };

  private constructor(folder: string, number: number, file: FileHandle, size: number, compactBytes: number) {
    this.#folder = folder;
    this.#number = number;
    this.#file = file;
    this.#size = size;
    this.#compactBytes = compactBytes;
  }

  /** Opens the journal of that folder, or begins one. One process at a time. */
  static async open(folder: string, compactBytes = COMPACT_BYTES): Promise<Recovered> {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const files = readdirSync(folder);
    const numbers = files.filter((name) => /^\d+\.snapshot$/.test(name)).map((name) => Number.parseInt(name, 10));
    const number = Math.max(0, ...numbers);
    let snapshot: unknown;
    if (number > 0) {
      const { records } = readRecords(join(folder, `${number}.snapshot`));
      if (records.length !== 1) {
        throw new RuntimeFailure('SINKFLEX_JOURNAL_DAMAGED', `${join(folder, `${number}.snapshot`)} does not pass its checksum`);
      }
      snapshot = records[0];
    }
    const log = join(folder, `${number}.log`);
    // Whatever else is there belongs to before this snapshot, or to a later one that was never finished.
    for (const name of files)
      if (name !== `${number}.snapshot` && name !== `${number}.log`) rmSync(join(folder, name), { recursive: true });
    let found: { records: unknown[]; end: number; size: number } = { records: [], end: 0, size: 0 };
    if (existsSync(log)) found = readRecords(log);
    if (found.end === 0) {
      writeFileSync(log, MAGIC, { mode: 0o600 });
      found.end = MAGIC.length;
    } else if (found.end < found.size) truncateSync(log, found.end);
    const file = await open(log, 'a');
    await file.sync();
    syncFolder(folder);
    const journal = new Journal(folder, number, file, found.end, compactBytes);
    return { journal, snapshot, records: found.records, cut: Math.max(0, found.size - found.end) };
  }

  /** Appends; on disk soon. */
  append(record: unknown): void {
    const bytes = toRecord(record);
    this.#size += bytes.length;
    this.#queue.push({ bytes });
    if (this.#size > this.#compactBytes && !this.#compacting && this.makeSnapshot !== undefined) {
      this.#compacting = true;
      this.#queue.push({ snapshot: toRecord(this.makeSnapshot()) });
    }
    this.#flush();
  }

  /** Runs it when all that was appended before is on disk: now, if it is. In the order of these calls. */
  whenDurable(action: () => void): void {
    if (this.#flushing === undefined && this.#queue.length === 0) action();
    else this.#queue.push({ action });
  }

  #flush(): void {
    if (this.#flushing !== undefined || this.#failed) return;
    this.#flushing = this.#drain().then(
      () => {
        this.#flushing = undefined;
        if (this.#queue.length > 0) this.#flush();
      },
      (error) => {
        this.#failed = true; // whoever waits for the disk waits for ever
        this.onFailure(error as Error);
      },
    );
  }

  async #drain(): Promise<void> {
    // The rest of this turn still has its chance to share the sync.
    await new Promise<void>((resolve) => setImmediate(resolve));
    while (this.#queue.length > 0) {
      const queue = this.#queue;
      this.#queue = [];
      let actions: (() => void)[] = [];
      let bytes: Buffer[] = [];
      const settle = async (): Promise<void> => {
        if (bytes.length > 0) {
          await this.#file.appendFile(Buffer.concat(bytes));
          await this.#file.datasync();
        }
        bytes = [];
        for (const action of actions) action();
        actions = [];
      };
      for (const each of queue) {
        if ('bytes' in each) bytes.push(each.bytes);
        else if ('action' in each) actions.push(each.action);
        else {
          await settle();
          await this.#rotate(each.snapshot);
        }
      }
      await settle();
    }
  }

  async #rotate(snapshot: Buffer): Promise<void> {
    const number = this.#number + 1;
    const path = join(this.#folder, `${number}.snapshot`);
    const temporary = await open(`${path}.new`, 'w', 0o600);
    try {
      await temporary.appendFile(Buffer.concat([MAGIC, snapshot]));
      await temporary.sync();
    } finally {
      await temporary.close();
    }
    const file = await open(join(this.#folder, `${number}.log`), 'w', 0o600);
    await file.appendFile(MAGIC);
    await file.sync();
    await rename(`${path}.new`, path);
    syncFolder(this.#folder);
    await this.#file.close();
    for (const kind of ['log', 'snapshot']) rmSync(join(this.#folder, `${this.#number}.${kind}`), { force: true });
    this.#file = file;
    this.#number = number;
    // What was appended meanwhile is still in the queue, and goes to the new file.
    this.#size = MAGIC.length;
    this.#compacting = false;
  }

  /** Resolves when everything is on disk and the file is closed. */
  async close(): Promise<void> {
    while (this.#flushing !== undefined && !this.#failed) await this.#flushing;
    await this.#file.close();
  }
}
