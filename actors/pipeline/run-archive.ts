/**
 * The copy of a run in an S3-compatible store: s3://bucket/prefix/<name of the run folder>/, file by file as it is here. A checkpoint's files
 * go last and its manifest last of them, so that a copy that was cut short is one of an earlier moment. What a run has thrown away (old
 * checkpoints) stays in the archive.
 */
import { existsSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { archivePlace, download, keyIn, S3, upload } from '../archive/index.ts';
import { ActorsError } from '../errors.ts';
import { filesBelow } from '../files-below.ts';
import { SqliteTrajectoryStore } from '../trajectory/index.ts';
import { checkOutput, type RunFolder } from './run-folder.ts';

export interface ArchiveCount {
  /** Files that were copied. */
  copied: number;
  /** Files that were there already. */
  kept: number;
}

export interface ArchiveOptions {
  signal?: AbortSignal;
  env?: NodeJS.ProcessEnv;
}

/** Size and time of change of files as they were stored, by name. */
type Stored = Map<string, string>;

/**
 * Copies a run folder to `url` (s3://bucket/prefix); the run may be under way. `stored`: what earlier calls of the same process have stored,
 * which is neither read nor asked for again while it stands as it was.
 */
export async function saveRun(folder: RunFolder, url: string, o: ArchiveOptions & { stored?: Stored } = {}): Promise<ArchiveCount> {
  const place = archivePlace(url);
  const s3 = S3.fromEnvironment(place.bucket, o);
  const count = { copied: 0, kept: 0 };
  const put = async (name: string, path: string) => {
    try {
      const { size, mtimeMs } = statSync(path);
      const now = `${size} ${mtimeMs}`;
      const copied = o.stored?.get(name) !== now && (await upload(s3, keyIn(place, basename(folder.path), name), path));
      o.stored?.set(name, now);
      count[copied ? 'copied' : 'kept']++;
    } catch (e) {
      // Retention took a checkpoint away, or a file was replaced by its successor of another name.
      if ((e as NodeJS.ErrnoException).code !== 'ENOENT') throw e;
    }
  };
  await saveTrajectories(folder, put);
  for (const name of filesOf(folder.path)) await put(name, folder.file(...name.split('/')));
  return count;
}

/** The database is being written: what is stored is a copy of one moment. */
async function saveTrajectories(folder: RunFolder, put: (name: string, path: string) => Promise<void>): Promise<void> {
  const store = await folder.readTrajectories();
  if (!(store instanceof SqliteTrajectoryStore)) return store?.close();
  const copy = folder.file('trajectories', `.copy-${process.pid}.db`);
  try {
    await store.copyTo(copy);
    for (const ending of ['', '-wal'])
      if (existsSync(copy + ending)) await put(`trajectories/${basename(store.place)}${ending}`, copy + ending);
  } finally {
    await store.close();
    for (const ending of ['', '-wal']) rmSync(copy + ending, { force: true });
  }
}

/** Names within the folder in the order in which they go. What is half-written, and the database, are left out. */
function filesOf(folder: string): string[] {
  const order = (name: string): number => (!name.startsWith('checkpoints/') ? 0 : name.endsWith('/manifest.json') ? 2 : 1);
  return filesBelow(folder)
    .filter((name) => !/(^|\/)\.|\.tmp-\d+$|\.tmp\/|\.part$|\.db(-wal|-shm)?$/.test(name))
    .sort((a, b) => order(a) - order(b)); // stable
}

/** Names of the runs that are archived at `url` (s3://bucket/prefix). */
export async function archivedRuns(url: string, o: ArchiveOptions = {}): Promise<string[]> {
  const place = archivePlace(url);
  const prefix = keyIn(place, '');
  const names: string[] = [];
  for await (const { key } of S3.fromEnvironment(place.bucket, o).list(prefix && `${prefix}/`)) {
    const found = /^([^/]+)\/config\.yaml$/.exec(key.slice(prefix === '' ? 0 : prefix.length + 1));
    if (found) names.push(found[1]!);
  }
  return names;
}

/** Fetches an archived run (s3://bucket/prefix/run) into a folder: a new or empty one, or one that an earlier call began to fill. */
export async function restoreRun(url: string, path: string, o: ArchiveOptions = {}): Promise<ArchiveCount> {
  const place = archivePlace(url);
  const s3 = S3.fromEnvironment(place.bucket, o);
  const keys = new Set<string>();
  for await (const { key } of s3.list(`${place.prefix}/`)) keys.add(key.slice(place.prefix.length + 1));
  // A checkpoint that retention took away while it was copied has no manifest.
  const isWhole = (key: string) => !key.startsWith('checkpoints/') || keys.has(`${key.split('/').slice(0, 2).join('/')}/manifest.json`);
  if (!keys.has('config.yaml'))
    throw new ActorsError(
      'SINKFLEX_ARCHIVE',
      `there is no run at ${url}: give s3://bucket/prefix/run (sinkflex archive list s3://bucket/prefix)`,
    );
  const begun = join(path, '.restoring');
  if (!existsSync(begun)) {
    checkOutput(path);
    mkdirSync(path, { recursive: true });
    writeFileSync(begun, `${url}\n`);
  }
  const count = { copied: 0, kept: 0 };
  for (const key of [...keys].filter(isWhole)) {
    const names = key.split('/');
    if (names.some((name) => ['', '.', '..'].includes(name)))
      throw new ActorsError('SINKFLEX_ARCHIVE', `the archive holds ${key}, which is no file of a run`);
    count[(await download(s3, keyIn(place, key), join(path, ...names))) ? 'copied' : 'kept']++;
  }
  rmSync(begun);
  return count;
}

/** Copies a run again and again while it goes on; one copy at a time, failures are told and the next copy makes up for them. */
export class RunArchive {
  readonly #folder: RunFolder;
  readonly #url: string;
  readonly #signal: AbortSignal;
  readonly #warn: (text: string) => void;
  readonly #stored: Stored = new Map();
  #copying: Promise<void> | undefined;
  #again = false;

  constructor(folder: RunFolder, url: string, o: { signal: AbortSignal; warn: (text: string) => void }) {
    this.#folder = folder;
    this.#url = url;
    this.#signal = o.signal;
    this.#warn = o.warn;
  }

  /** Begins a copy behind the caller's back, or another one after that which is under way. */
  copy(): void {
    if (this.#copying) this.#again = true;
    else this.#copying = this.#copy();
  }

  /** The last copy, of all that stands now. */
  async finish(): Promise<void> {
    this.copy();
    while (this.#copying) await this.#copying;
  }

  async #copy(): Promise<void> {
    do {
      this.#again = false;
      try {
        await saveRun(this.#folder, this.#url, { signal: this.#signal, stored: this.#stored });
      } catch (e) {
        if (this.#signal.aborted) break;
        this.#warn(
          `the run was not archived: ${(e as Error).message}; sinkflex archive save ${this.#folder.path} ${this.#url} makes up for it`,
        );
      }
    } while (this.#again && !this.#signal.aborted);
    this.#copying = undefined;
  }
}

/** SINKFLEX_ARCHIVE where the bucket cannot be read with the credentials that there are. */
export async function checkArchive(url: string, o: ArchiveOptions = {}): Promise<void> {
  const { bucket, prefix } = archivePlace(url);
  await S3.fromEnvironment(bucket, o).list(`${prefix}/`).next();
}
