// Jobs of a cluster: commands that run on the head's host as drivers. Each has a folder with its output and what became of it, so that a head
// which was killed and started again knows them all.
import { spawn } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { nanoid } from 'nanoid';
import { os } from '../../kernels/host.ts';
import { RuntimeFailure } from '../api/errors.ts';
import { readFile, writeFile } from './job-files.ts';
import type { ProcessName } from './state.ts';

/** What one answer holds of a log. */
const LOG_BYTES = 256 * 1024;
const LOOK_MS = 50;
const ID = /^[A-Za-z0-9_-]{1,64}$/;

/** `lost`: nobody saw how it ended. */
export type JobState = 'starting' | 'running' | 'succeeded' | 'failed' | 'stopped' | 'lost';

export interface JobInfo {
  job: string;
  state: JobState;
  command: string[];
  /** ISO 8601. */
  submittedAt: string;
  endedAt?: string;
  pid?: number;
  exitCode?: number;
  signal?: string;
  /** It could not be started. */
  error?: string;
}

export interface JobRequest {
  command: string[];
  /** Default: the folder in which the head was started. */
  cwd?: string;
  env?: Record<string, string>;
  /** Default: a new one. */
  job?: string;
}

export interface JobLog {
  text: Uint8Array;
  /** Where the next piece begins. */
  next: number;
  /** Of the job when it was read: once it has ended and a piece is empty, that was all. */
  state: JobState;
}

interface Submitted extends Required<JobRequest> {
  submittedAt: string;
  /** Who watches over it. */
  watcher?: ProcessName;
}

export class JobDesk {
  readonly #folder: string;
  readonly #cluster: string;

  /** `cluster`: the folder of the head. */
  constructor(cluster: string) {
    this.#cluster = cluster;
    this.#folder = join(cluster, 'jobs');
  }

  submit({ command, cwd = process.cwd(), env = {}, job = nanoid(10) }: JobRequest): JobInfo {
    if (!ID.test(job))
      throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `the name of a job is 1 to 64 of A-Z a-z 0-9 _ -, not ${JSON.stringify(job)}`);
    if (command.length === 0) throw new RuntimeFailure('SINKFLEX_BAD_OPTION', 'a job is a command: at least the name of a program');
    if (!statSync(cwd, { throwIfNoEntry: false })?.isDirectory())
      throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `the host of the head has no folder ${cwd}`);
    const folder = join(this.#folder, job);
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    try {
      mkdirSync(folder, { mode: 0o700 });
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') throw cause;
      throw new RuntimeFailure('SINKFLEX_NAME_TAKEN', `there is a job ${job} already`, { cause });
    }
    const all = { ...env, SINKFLEX_ADDRESS: this.#cluster, SINKFLEX_JOB: job };
    const submitted: Submitted = { job, command, cwd, env: all, submittedAt: new Date().toISOString() };
    writeFile(folder, 'job.json', submitted);
    const entry = fileURLToPath(new URL(`./job-main${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url));
    const watcher = spawn(process.execPath, [...process.execArgv, entry, folder], { stdio: 'ignore', detached: true });
    watcher.once('error', (error) => writeFile(folder, 'ended.json', { error: error.message, endedAt: new Date().toISOString() }));
    watcher.unref();
    if (watcher.pid !== undefined)
      writeFile(folder, 'job.json', { ...submitted, watcher: { pid: watcher.pid, start: os.processStartTime(watcher.pid) ?? '' } });
    return this.#info(job);
  }

  list(): JobInfo[] {
    if (!existsSync(this.#folder)) return [];
    const jobs = readdirSync(this.#folder).map((job) => this.#info(job));
    return jobs.sort((a, b) => (a.submittedAt < b.submittedAt ? -1 : 1));
  }

  log(job: string, from: number): JobLog {
    const { state } = this.#info(job);
    const text = Buffer.alloc(LOG_BYTES);
    let file: number;
    try {
      file = openSync(join(this.#folder, job, 'output.log'), 'r');
    } catch {
      return { text: new Uint8Array(0), next: from, state }; // it has not begun
    }
    try {
      const count = readSync(file, text, 0, LOG_BYTES, from);
      return { text: text.subarray(0, count), next: from + count, state };
    } finally {
      closeSync(file);
    }
  }

  /** SIGTERM to the job and what it started; SIGKILL to what is left of it after graceMs. Answers what became of it. */
  async stop(job: string, graceMs: number): Promise<JobInfo> {
    const over = (): boolean => ended(this.#info(job).state);
    const folder = join(this.#folder, job);
    for (let wait = 0; this.#info(job).state === 'starting' && wait < graceMs; wait += LOOK_MS) await delay(LOOK_MS);
    if (over()) return this.#info(job);
    writeFile(folder, 'stopped.json', {});
    for (const [signal, forMs] of [
      ['SIGTERM', graceMs],
      ['SIGKILL', 2000],
    ] as const) {
      this.#signal(job, signal);
      for (const end = performance.now() + forMs; !over() && performance.now() < end; ) await delay(LOOK_MS);
    }
    return this.#info(job);
  }

  #signal(job: string, signal: NodeJS.Signals): void {
    const { pid, state } = this.#info(job);
    if (pid === undefined || ended(state)) return;
    try {
      process.kill(-pid, signal);
    } catch {
      // It has just ended.
    }
  }

  /** Ends all of them. */
  async close(graceMs: number): Promise<void> {
    const running = this.list().filter(({ state }) => !ended(state));
    await Promise.all(running.map(({ job }) => this.stop(job, graceMs)));
  }

  #info(job: string): JobInfo {
    const folder = join(this.#folder, job);
    const submitted = ID.test(job) ? readFile<Submitted>(folder, 'job.json') : undefined;
    if (submitted === undefined)
      throw new RuntimeFailure(
        'SINKFLEX_UNKNOWN_JOB',
        `the cluster has no job ${JSON.stringify(job.slice(0, 64))}: sinkflex job list shows those that it has`,
      );
    const { command, submittedAt, watcher } = submitted;
    // In this order: between the two it may end.
    const watched = lives(watcher);
    const end = readFile<{ code?: number | null; signal?: string | null; error?: string; endedAt: string }>(folder, 'ended.json');
    const started = readFile<ProcessName>(folder, 'started.json');
    const about = { job, command, submittedAt, ...(started === undefined ? {} : { pid: started.pid }) };
    const stopped = existsSync(join(folder, 'stopped.json'));
    if (end === undefined) {
      if (watcher === undefined || watched || lives(started)) return { ...about, state: started === undefined ? 'starting' : 'running' };
      return { ...about, state: stopped ? 'stopped' : 'lost' };
    }
    const { code, signal, error, endedAt } = end;
    const state = stopped ? 'stopped' : code === 0 ? 'succeeded' : 'failed';
    return {
      ...about,
      state,
      endedAt,
      ...(typeof code === 'number' ? { exitCode: code } : {}),
      ...(typeof signal === 'string' ? { signal } : {}),
      ...(error === undefined ? {} : { error }),
    };
  }
}

const lives = (process: ProcessName | undefined): boolean => process !== undefined && os.processRuns(process.pid, process.start);

const ended = (state: JobState): boolean => state !== 'starting' && state !== 'running';
