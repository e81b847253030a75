// Which runs of this user live on this host, from their folders: what a command attaches to. A folder counts if it belongs to this user,
// nobody else can enter it, and the very process that made it is alive.
import { existsSync, lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { os } from '../../kernels/host.ts';
import { RuntimeFailure } from '../api/errors.ts';
import { runFolderBase } from '../node/folder-base.ts';

/** Who is, or was, the head of a cluster's folder. */
const HEAD_FILE = 'head.json';
/** What a run says of itself, beside its token. */
export const ABOUT_FILE = 'observe.json';

export interface FoundRun {
  folder: string;
  pid: number;
  /** The program that it drives, as a path. */
  program: string;
  /** ISO 8601. */
  startedAt: string;
}

export interface AboutRun extends Omit<FoundRun, 'folder'> {
  /** Of the process, so that another with the same pid is not taken for it. */
  startTime: string;
}

export function aboutThisRun(): AboutRun {
  return {
    pid: process.pid,
    program: process.argv[1] ?? process.execPath,
    startedAt: new Date().toISOString(),
    startTime: os.processStartTime(process.pid) ?? '',
  };
}

/** undefined: no run lives there. */
export function runIn(folder: string): FoundRun | undefined {
  try {
    const about = lstatSync(folder);
    if (!about.isDirectory() || about.uid !== process.getuid?.() || (about.mode & 0o077) !== 0) return undefined;
    const { pid, program, startedAt, startTime } = JSON.parse(readFileSync(join(folder, ABOUT_FILE), 'utf8')) as AboutRun;
    if (!Number.isSafeInteger(pid) || !os.processRuns(pid, startTime)) return undefined;
    return { folder, pid, program: String(program), startedAt: String(startedAt) };
  } catch {
    return undefined; // no run's folder, or being made or removed
  }
}

/** A cluster whose head is not there: what lives in it goes on, but nobody answers for it. */
export function headlessIn(folder: string): { folder: string; pid: number } | undefined {
  try {
    const about = lstatSync(folder);
    if (!about.isDirectory() || about.uid !== process.getuid?.() || (about.mode & 0o077) !== 0) return undefined;
    const { pid, start } = JSON.parse(readFileSync(join(folder, HEAD_FILE), 'utf8')) as { pid: number; start: string };
    if (!Number.isSafeInteger(pid) || os.processRuns(pid, start)) return undefined;
    return { folder, pid };
  } catch {
    return undefined;
  }
}

function describeHeadless({ folder, pid }: { folder: string; pid: number }): string {
  return `the head of ${folder} (process ${pid}) has ended. Actors there go on without it, but nobody answers for them: start it again with sinkflex head --folder ${folder}`;
}

function foldersIn(base: string): string[] {
  return readdirSync(base)
    .filter((name) => name.startsWith('sinkflex-'))
    .map((name) => join(base, name));
}

/** The living runs of this user, oldest first. */
export function findRuns(base = runFolderBase()): FoundRun[] {
  return foldersIn(base)
    .map(runIn)
    .filter((run) => run !== undefined)
    .sort((a, b) => (a.startedAt < b.startedAt ? -1 : 1));
}

/** The run that is meant by a folder or a process number; without, the only one. Otherwise SINKFLEX_NO_RUN, which says what there is. */
export function chooseRun(wanted?: string, runs: () => FoundRun[] = findRuns): FoundRun {
  if (wanted === undefined) {
    const found = runs();
    if (found.length === 1) return found[0]!;
    const headless = found.length === 0 ? foldersIn(runFolderBase()).map(headlessIn).find(Boolean) : undefined;
    if (headless !== undefined) throw new RuntimeFailure('SINKFLEX_NO_HEAD', describeHeadless(headless));
    throw new RuntimeFailure(
      'SINKFLEX_NO_RUN',
      found.length === 0
        ? 'no run of yours is alive on this host: start one (a program that calls init()), or name its folder with --run'
        : `${found.length} runs of yours are alive; choose one with --run <pid>:\n${describeRuns(found)}`,
    );
  }
  if (/^\d+$/.test(wanted)) {
    const found = runs();
    const run = found.find(({ pid }) => String(pid) === wanted);
    if (run !== undefined) return run;
    throw new RuntimeFailure('SINKFLEX_NO_RUN', `process ${wanted} drives no run of yours${suggest(found)}`);
  }
  const run = runIn(resolve(wanted));
  if (run !== undefined) return run;
  const headless = headlessIn(resolve(wanted));
  if (headless !== undefined) throw new RuntimeFailure('SINKFLEX_NO_HEAD', describeHeadless(headless));
  const what = existsSync(wanted) ? 'is not the folder of a living run that belongs to you alone' : 'does not exist';
  throw new RuntimeFailure('SINKFLEX_NO_RUN', `${wanted} ${what}${suggest(runs())}`);
}

function suggest(runs: FoundRun[]): string {
  return runs.length === 0 ? '; no run of yours is alive on this host' : `; did you mean --run\n${describeRuns(runs)}`;
}

function describeRuns(runs: FoundRun[]): string {
  return runs.map(({ pid, program, startedAt, folder }) => `  ${pid}  ${program}  since ${startedAt}  ${folder}`).join('\n');
}
