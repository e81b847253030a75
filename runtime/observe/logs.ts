// What workers write, kept in <run folder>/logs: a file for each name and pid, each line with its time and stream. Written in batches;
// a file that has grown to its share is followed by <file>.1, .2 and so on, of which the last two stay; what goes is counted.
import { closeSync, fstatSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { ActorOutput } from '../api/types.ts';

const DEFAULT_BYTES = 8 * 2 ** 20;
/** Lines wait for each other this long, or until there are so many bytes. */
const BATCH_MS = 50;
const BATCH_BYTES = 256 * 1024;
const LONGEST_NAME = 180;
/** Files of workers that have ended, beyond which the oldest go. */
const FINISHED_KEPT = 1000;

export interface LogFile {
  /** Name of the actor, or of the shared worker. */
  name: string;
  pid: number;
  bytes: number;
  /** Bytes that had to make room. */
  lostBytes: number;
  /** What is written now. */
  path: string;
  /** Numbers of the files that are there, oldest first; 0 has none in its name. */
  parts: number[];
}

export interface LogTail {
  lines: string[];
  total: number;
  lostBytes: number;
}

/** The name as part of a file's name. */
export function fileNameOf(name: string, pid: number): string {
  return `${encodeURIComponent(name).replaceAll('*', '%2A').slice(0, LONGEST_NAME)}-${pid}.log`;
}

const pattern = /^(.+-(-?\d+)\.log)(?:\.(\d+))?$/;

interface Open {
  fd: number;
  /** Number of the file that is open. */
  part: number;
  bytes: number;
  waiting: string[];
  waitingBytes: number;
}

export class LogFolder {
  readonly folder: string;
  readonly #limit: number;
  readonly #now: () => number;
  readonly #open = new Map<string, Open>();
  /** Files of workers that have ended, oldest first. */
  readonly #finished = new Set<string>();
  #timer: NodeJS.Timeout | undefined;
  #closed = false;
  /** Why lines are not kept any more (a full disk), told once. */
  #broken: string | undefined;

  /** `limitBytes`: of one file, with its forerunner. */
  constructor(runFolder: string, limitBytes = DEFAULT_BYTES, now: () => number = Date.now) {
    this.folder = join(runFolder, 'logs');
    this.#limit = limitBytes / 2;
    this.#now = now;
    mkdirSync(this.folder, { mode: 0o700, recursive: true });
  }

  write(output: ActorOutput): void {
    if (this.#closed || this.#broken !== undefined) return;
    const time = new Date(this.#now()).toISOString();
    const key = fileNameOf(output.name, output.pid);
    const text = `${time} ${output.stream} ${output.line}\n`;
    let open = this.#open.get(key);
    if (open === undefined) {
      open = { fd: -1, part: -1, bytes: 0, waiting: [], waitingBytes: 0 };
      this.#open.set(key, open);
      this.#finished.delete(key);
    }
    open.waiting.push(text);
    open.waitingBytes += text.length;
    if (open.waitingBytes > BATCH_BYTES) this.#flush(key, open);
    else this.#timer ??= setTimeout(() => this.flush(), BATCH_MS).unref();
  }

  /** Writes what waits. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (const [key, open] of this.#open) this.#flush(key, open);
  }

  /** Small sequential appends go to the page cache in microseconds: no queue of asynchronous writes, nothing lost at exit. */
  #flush(key: string, open: Open): void {
    if (open.waiting.length === 0) return;
    const text = open.waiting.join('');
    open.waiting = [];
    open.waitingBytes = 0;
    const path = join(this.folder, key);
    try {
      if (open.fd < 0) {
        if (open.part < 0) open.part = partsOf(this.folder, key).at(-1) ?? 0;
        open.fd = openSync(partPath(path, open.part), 'a', 0o600);
        open.bytes = fstatSync(open.fd).size;
      }
      open.bytes += writeSync(open.fd, text);
      if (open.bytes > this.#limit) this.#nextPart(path, open);
    } catch (error) {
      this.#broken = (error as Error).message;
      process.stderr.write(`[sinkflex] lines of actors are no longer kept in ${this.folder}: ${this.#broken}\n`);
    }
  }

  #nextPart(path: string, open: Open): void {
    closeSync(open.fd);
    open.fd = -1;
    const goes = partPath(path, open.part - 1);
    const lost = open.part === 0 ? 0 : (statSync(goes, { throwIfNoEntry: false })?.size ?? 0);
    if (lost > 0) {
      writeFileSync(`${path}.lost`, String(lostOf(path) + lost), { mode: 0o600 });
      rmSync(goes, { force: true });
    }
    open.part++;
  }

  /** The worker has ended: no descriptor is kept for it. */
  ended(name: string, pid: number): void {
    const key = fileNameOf(name, pid);
    const open = this.#open.get(key);
    if (open === undefined) return;
    this.#flush(key, open);
    if (open.fd >= 0) closeSync(open.fd);
    this.#open.delete(key);
    this.#finished.add(key);
    for (const oldest of this.#finished) {
      if (this.#finished.size <= FINISHED_KEPT) return;
      this.#finished.delete(oldest);
      const path = join(this.folder, oldest);
      for (const part of partsOf(this.folder, oldest)) rmSync(partPath(path, part), { force: true });
      rmSync(`${path}.lost`, { force: true });
    }
  }

  close(): void {
    if (this.#closed) return;
    this.flush();
    this.#closed = true;
    for (const { fd } of this.#open.values()) if (fd >= 0) closeSync(fd);
    this.#open.clear();
  }
}

/** The file of a log with that number. */
export function partPath(path: string, part: number): string {
  return part === 0 ? path : `${path}.${part}`;
}

function partsOf(folder: string, key: string): number[] {
  return readdirSync(folder)
    .map((file) => pattern.exec(file))
    .filter((match) => match?.[1] === key)
    .map((match) => Number(match![3] ?? 0))
    .sort((a, b) => a - b);
}

/** The logs of a run; the one with the last line written comes last. */
export function listLogs(folder: string): LogFile[] {
  const found = new Map<string, LogFile & { time: number }>();
  for (const file of readdirSync(folder)) {
    const match = pattern.exec(file);
    const about = match === null ? undefined : statSync(join(folder, file), { throwIfNoEntry: false });
    if (match === null || about === undefined) continue;
    const [, key, pid, part = 0] = match;
    const path = join(folder, key!);
    const earlier = found.get(key!);
    const parts = [...(earlier?.parts ?? []), Number(part)].sort((a, b) => a - b);
    found.set(key!, {
      name: nameOf(key!.slice(0, -`-${pid}.log`.length)),
      pid: Number(pid),
      bytes: about.size + (earlier?.bytes ?? 0),
      lostBytes: lostOf(path),
      path: partPath(path, parts.at(-1)!),
      parts,
      time: Math.max(about.mtimeMs, earlier?.time ?? 0),
    });
  }
  return [...found.values()].sort((a, b) => a.time - b.time).map(({ time: _time, ...file }) => file);
}

/** What had to make room in a file. */
function lostOf(path: string): number {
  try {
    return Number(readFileSync(`${path}.lost`, 'utf8'));
  } catch {
    return 0;
  }
}

function nameOf(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a name that was cut in the middle of a character
  }
}
