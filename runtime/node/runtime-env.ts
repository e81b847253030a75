// The environment that a worker runs in: node flags, variables, working folder. Says whether a worker that is already running can be
// given it, or a fresh process is needed.
import { statSync } from 'node:fs';
import { RuntimeFailure } from '../api/errors.ts';
import type { EnvironmentChange } from '../control/index.ts';
import type { WorkerRequest } from './carrier.ts';

const withValue = new Set(['-e', '--eval', '-p', '--print', '-r', '--require', '--import', '--loader', '--experimental-loader']);
const loaders = ['-r', '--require', '--import', '--loader', '--experimental-loader'];

/** Variables that are read when a process starts: by node, the loader of shared libraries, allocators, or our addon. */
const readAtStart = /^(?:NODE_|UV_|LD_|DYLD_|GLIBC_|MALLOC_|SSL_|OPENSSL_|LC_|OMP_|SINKFLEX_|LANG$|LANGUAGE$|ICU_|MSGPACKR_)/;

/** Of the heap's limit and the limit of the whole process: room for code, stacks, buffers and native memory. */
const HEAP_SHARE = 0.75;
const MIB = 2 ** 20;

/** The driver's own flags, without a program given on the command line, and without loaders where plain JavaScript needs none. */
export function workerFlags(flags: readonly string[], keepLoaders: boolean): string[] {
  const kept: string[] = [];
  for (let i = 0; i < flags.length; i++) {
    const flag = flags[i]!;
    const name = flag.split('=', 1)[0]!;
    const valueFollows = withValue.has(flag);
    const drop =
      name === '-e' ||
      name === '--eval' ||
      name === '-p' ||
      name === '--print' ||
      name === '--input-type' ||
      (!keepLoaders && loaders.includes(name));
    if (!drop) kept.push(flag, ...(valueFollows && i + 1 < flags.length ? [flags[i + 1]!] : []));
    if (valueFollows) i++;
  }
  return kept;
}

/** TypeScript runs under the program's loader only. */
export function needsLoader(entry: string, module: string): boolean {
  return entry.endsWith('.ts') || /\.[cm]?tsx?$/.test(module);
}

/** All flags of a worker process. A memory limit is made known to V8, so that it collects garbage before the limit is reached. */
export function processFlags(entry: string, request: Pick<WorkerRequest, 'module' | 'execArgv' | 'memory'>): string[] {
  const flags = [...workerFlags(process.execArgv, needsLoader(entry, request.module)), ...request.execArgv];
  const heapGiven = request.execArgv.some((flag) => /^--max[-_](?:old[-_]space|heap)[-_]size/.test(flag));
  if (request.memory > 0 && !heapGiven) flags.push(`--max-old-space-size=${Math.max(16, Math.floor((request.memory * HEAP_SHARE) / MIB))}`);
  return flags;
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** What turns environment `from` into `to`. */
export function environmentChange(from: Environment, to: Environment): EnvironmentChange {
  const change: EnvironmentChange = { set: {}, unset: [] };
  for (const [name, value] of Object.entries(to)) if (value !== undefined && from[name] !== value) change.set[name] = value;
  for (const name of Object.keys(from)) if (to[name] === undefined) change.unset.push(name);
  return change;
}

/** The change would come too late in a process that runs already. */
export function needsFreshProcess(change: EnvironmentChange): boolean {
  return Object.keys(change.set).some((name) => readAtStart.test(name)) || change.unset.some((name) => readAtStart.test(name));
}

/** Throws SINKFLEX_BAD_OPTION if the folder is none. */
export function checkFolder(cwd: string | undefined): void {
  if (cwd === undefined) return;
  if (statSync(cwd, { throwIfNoEntry: false })?.isDirectory() !== true)
    throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `cwd is ${JSON.stringify(cwd)}, which is no folder on this host`);
}
