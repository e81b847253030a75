// What workers write, kept in <run folder>/logs: a file for each name and pid, each line with its time and stream. Written in batches;
// a file that has grown beyond its share is moved to <file>.1, whose forerunner goes, counted.
import { closeSync, fstatSync, mkdirSync, openSync, readdirSync, readSync, renameSync, rmSync, statSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { RuntimeFailure } from '../api/errors.ts';
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
  path: string;
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

const pattern = /^(.+)-(-?\d+)\.log(?:\.1)?$/;

interface Open {
  fd: number;
  bytes: number;
  waiting: string[];
  waitingBytes: number;
}

export class LogFolder {
  readonly folder: string;
  readonly #limit: number;
  readonly #now: () => number;
  readonly #open = new Map<string, Open>();
  /** File -> the name as it was given, and bytes of it that were thrown away. */
  readonly #names = new Map<string, string>();
  readonly #lost = new Map<string, number>();
  /** Files of workers that have ended, oldest first. */
  readonly #finished = new Set<string>();
  readonly #listeners = new Set<(line: ActorOutput, time: string) => void>();
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
    if (this.#closed) return;
    const time = new Date(this.#now()).toISOString();
    for (const listener of this.#listeners) listener(output, time);
    if (this.#broken !== undefined) return;
    const key = fileNameOf(output.name, output.pid);
    const text = formatLine(time, output.stream, output.line);
    let open = this.#open.get(key);
    if (open === undefined) {
      open = { fd: -1, bytes: 0, waiting: [], waitingBytes: 0 };
      this.#open.set(key, open);
      this.#names.set(key, output.name);
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
        open.fd = openSync(path, 'a', 0o600);
        open.bytes = fstatSync(open.fd).size;
      }
      open.bytes += writeSync(open.fd, text);
      if (open.bytes > this.#limit) {
        closeSync(open.fd);
        open.fd = -1;
        this.#lost.set(key, (this.#lost.get(key) ?? 0) + (statSync(`${path}.1`, { throwIfNoEntry: false })?.size ?? 0));
        renameSync(path, `${path}.1`);
      }
    } catch (error) {
      this.#broken = (error as Error).message;
      process.stderr.write(`[sinkflex] lines of actors are no longer kept in ${this.folder}: ${this.#broken}\n`);
    }
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
      this.#names.delete(oldest);
      this.#lost.delete(oldest);
      for (const file of [oldest, `${oldest}.1`]) rmSync(join(this.folder, file), { force: true });
    }
  }

  listen(listener: (line: ActorOutput, time: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** One with the last line written comes last. */
  files(): LogFile[] {
    this.flush();
    const found = new Map<string, LogFile & { time: number }>();
    for (const file of readdirSync(this.folder)) {
      const match = pattern.exec(file);
      const about = statSync(join(this.folder, file), { throwIfNoEntry: false });
      if (match === null || about === undefined) continue;
      const key = `${match[1]}-${match[2]}.log`;
      const earlier = found.get(key);
      found.set(key, {
        name: this.#names.get(key) ?? match[1]!,
        pid: Number(match[2]),
        bytes: about.size + (earlier?.bytes ?? 0),
        lostBytes: this.#lost.get(key) ?? 0,
        path: join(this.folder, key),
        time: Math.max(about.mtimeMs, earlier?.time ?? 0),
      });
    }
    return [...found.values()].sort((a, b) => a.time - b.time).map(({ time: _time, ...file }) => file);
  }

  /** The last `count` lines that go by that name (of all its processes, in the order of their last line), and how many there are. `known`: there is such an actor,
   * even if it has written nothing. */
  tail(name: string, count = Number.POSITIVE_INFINITY, known = false): LogTail {
    const all = this.files();
    const files = all.filter((file) => file.name === name);
    if (files.length === 0 && !known) {
      const names = [...new Set(all.map((file) => file.name))];
      const there =
        names.length === 0
          ? 'nothing has been written yet'
          : `there are logs of ${names.slice(-20).join(', ')}${names.length > 20 ? ` and ${names.length - 20} others` : ''}`;
      throw new RuntimeFailure('SINKFLEX_NO_LOG', `nothing that goes by ${JSON.stringify(name)} was written; ${there}`);
    }
    const lines = files.flatMap(({ path }) => [...readLines(`${path}.1`), ...readLines(path)]);
    return {
      lines: count >= lines.length ? lines : lines.slice(lines.length - count),
      total: lines.length,
      lostBytes: files.reduce((sum, file) => sum + file.lostBytes, 0),
    };
  }

  close(): void {
    if (this.#closed) return;
    this.flush();
    this.#closed = true;
    for (const { fd } of this.#open.values()) if (fd >= 0) closeSync(fd);
    this.#open.clear();
  }
}

/** As in the files: time, stream, text. */
export function formatLine(time: string, stream: string, line: string): string {
  return `${time} ${stream} ${line}\n`;
}

function readLines(path: string): string[] {
  let fd: number;
  try {
    fd = openSync(path, 'r');
  } catch {
    return [];
  }
  try {
    const bytes = Buffer.alloc(fstatSync(fd).size);
    const read = readSync(fd, bytes, 0, bytes.length, 0);
    const lines = bytes.toString('utf8', 0, read).split('\n');
    if (lines.at(-1) === '') lines.pop();
    return lines;
  } finally {
    closeSync(fd);
  }
}
