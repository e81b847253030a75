/** What launching a sandbox of this machine takes, whatever keeps it in: its programs, the files that go in, and the first words to it. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, realpathSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import type { Duplex, Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { ActorsError } from '../errors.ts';
import { Channel } from './channel.ts';
import type { SandboxInfo, SandboxLimits } from './types.ts';

/** Inside, the supervisor and its runner lie here. */
export const HOME = '/opt/sinkflex';

/** No site packages, no compiled files, no user folder. */
export const PYTHON_FLAGS = ['-s', '-S', '-B'];

/** What every program inside sees of the environment. */
export const ENVIRONMENT: Readonly<Record<string, string>> = {
  PATH: '/usr/bin:/bin',
  HOME: '/episode',
  LANG: 'C.UTF-8',
  PYTHONHASHSEED: '0',
  UV_THREADPOOL_SIZE: '1',
};

export interface Preparation {
  limits: SandboxLimits;
  javascript: boolean;
  /** Limit each program's address space, where no control group limits the memory of all. */
  addressSpace: boolean;
  /** For files of this provider alone; removed with it. */
  ownFolder: string;
  /** For what outlives it. */
  stateFolder: string;
}

export interface LaunchOptions {
  id: string;
  /** Of the slot; used where root starts the sandbox. */
  uid: number;
  /** See ControlGroup.joinFiles. */
  joinFiles: readonly string[];
}

export interface Launched {
  child: ChildProcess;
  channel: Channel;
  /** The end of what it said on standard error. */
  complaint(): string;
  /** After its end: removes what the launcher keeps of it. */
  forget?(): void;
}

/** One way to keep a program in. */
export interface Launcher {
  readonly provider: string;
  readonly isolation: SandboxInfo['isolation'];
  /** Once, before the first launch: SINKFLEX_SANDBOX_MISSING names the package that is not there. */
  prepare(p: Preparation): void;
  launch(o: LaunchOptions, onEnd: (why: string) => void): Launched;
  /** Limits of the control group: what holds the sandbox needs processes too. */
  groupLimits(limits: SandboxLimits): SandboxLimits;
}

/** Folder of the files that go into a sandbox: beside the sources, for what is built holds scripts only. */
export const insideFolder = (): string => {
  const here = dirname(fileURLToPath(import.meta.url));
  const beside = join(here, 'inside');
  return existsSync(beside) ? beside : join(here, '..', '..', '..', 'actors', 'sandbox', 'inside');
};

/** Of this package. */
export const packageRoot = (): string => realpathSync(join(insideFolder(), '..', '..', '..'));

/** Programs that sandboxes are made of, with the Debian package of each. */
const PACKAGES: Readonly<Record<string, string>> = {
  bwrap: 'bubblewrap',
  runsc: 'runsc',
  setpriv: 'util-linux',
  prlimit: 'util-linux',
  python3: 'python3',
};

/** Where a program is; SINKFLEX_SANDBOX_MISSING names the package to install. */
export function findProgram(name: string, path = `${process.env.PATH ?? ''}:/usr/bin:/bin:/usr/sbin`): string {
  if (process.platform !== 'linux') {
    throw new ActorsError('SINKFLEX_SANDBOX_MISSING', `sandboxes of this machine need Linux; this is ${process.platform}: nothing was run`);
  }
  const found = path
    .split(delimiter)
    .map((folder) => join(folder, name))
    .find(isProgram);
  if (found !== undefined) return found;
  throw new ActorsError(
    'SINKFLEX_SANDBOX_MISSING',
    `the sandbox needs ${name}, which is not installed (Debian, Ubuntu: apt-get install ${PACKAGES[name]}): nothing was run`,
    { details: { program: name, package: PACKAGES[name] } },
  );
}

/** A Python of /usr is seen inside; one in somebody's home is not. */
export function findPython(): string {
  const python = realpathSync(isProgram('/usr/bin/python3') ? '/usr/bin/python3' : findProgram('python3'));
  if (python.startsWith('/usr/')) return python;
  throw new ActorsError(
    'SINKFLEX_SANDBOX_MISSING',
    `the sandbox needs a python3 below /usr, and ${python} is not (Debian, Ubuntu: apt-get install python3): nothing was run`,
    { details: { program: 'python3', package: 'python3' } },
  );
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The supervisor in two files, compiled: a sandbox starts several milliseconds sooner. Their paths, the one to run first. */
export function compileSupervisor(python: string, folder: string): string[] {
  const script =
    'import py_compile, sys\nfor a in sys.argv[2:]: py_compile.compile(a + ".py", sys.argv[1] + "/" + a.rsplit("/", 1)[1] + ".pyc", doraise=True)';
  const names = ['supervisor', '_sinkflex_children'];
  const { status, stderr } = spawnSync(
    python,
    [...PYTHON_FLAGS, '-c', script, folder, ...names.map((name) => join(insideFolder(), name))],
    {
      encoding: 'utf8',
    },
  );
  if (status !== 0) throw new ActorsError('SINKFLEX_SANDBOX_LOST', `${python} cannot compile the supervisor: ${stderr.trim()}`);
  return names.map((name) => join(folder, `${name}.pyc`));
}

/** The first argument of the supervisor. `node`: the command that waits for a JavaScript program. */
export function supervisorConfig(
  p: Preparation,
  o: { in: number; out: number; node: readonly string[] | undefined; user?: number },
): string {
  return JSON.stringify({
    in: o.in,
    out: o.out,
    user: o.user ?? null,
    home: HOME,
    node: o.node ?? null,
    limits: p.limits,
    addressSpace: p.addressSpace,
    spareJavaScript: p.javascript,
  });
}

/** Joins the control groups and becomes the command. The environment holds nothing of this process's: a program could read its parents'. */
export function spawnJoined(
  command: readonly string[],
  joinFiles: readonly string[],
  stdio: ('pipe' | 'ignore' | number)[],
  channelOf: (child: ChildProcess) => { input: Readable | Duplex; output: Writable | Duplex },
  onEnd: (why: string) => void,
): Launched {
  const script = 'for f in $JOIN; do echo $$ > "$f" || exit 96; done; unset JOIN; exec "$@"';
  const child = spawn('/bin/sh', ['-c', script, 'sh', ...command], {
    stdio,
    env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', JOIN: joinFiles.join(' ') },
    cwd: '/',
    detached: true,
  });
  let said = '';
  child.stderr!.setEncoding('utf8');
  child.stderr!.on('data', (text: string) => {
    said = (said + text).slice(-2000);
  });
  const { input, output } = channelOf(child);
  const channel = new Channel(input, output, onEnd);
  child.on('error', (e) => channel.end(e.message));
  child.on('exit', (code, signal) => channel.end(`the sandbox ended (${signal ?? `exit ${code}`})`));
  return { child, channel, complaint: () => said.trim() };
}
