// Worker processes. The only file that forks, always from the main thread (a death signal follows the thread that forked).
import cluster from 'node:cluster';
import { fileURLToPath } from 'node:url';
import { isMainThread } from 'node:worker_threads';
import { RuntimeFailure } from '../api/errors.ts';
import type { FromAgent, ToAgent } from '../control/index.ts';
import { type CarrierEvents, type CarrierOptions, entryUrl, STDERR_GRACE_MS, type WorkerCarrier } from './carrier.ts';
import type { Janitor } from './janitor.ts';
import { OutputLines } from './output.ts';

const withValue = new Set(['-e', '--eval', '-p', '--print', '-r', '--require', '--import', '--loader', '--experimental-loader']);
const loaders = ['-r', '--require', '--import', '--loader', '--experimental-loader'];

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

export function forkWorker(options: CarrierOptions, events: CarrierEvents, janitor: Janitor): WorkerCarrier {
  if (!isMainThread) throw new RuntimeFailure('SINKFLEX_DRIVER_ONLY', 'worker processes are forked from the main thread only');
  const entry = fileURLToPath(entryUrl('../worker/process-main'));
  const needsLoader = entry.endsWith('.ts') || /\.[cm]?tsx?$/.test(options.module);
  cluster.setupPrimary({
    exec: entry,
    args: [options.label],
    execArgv: workerFlags(process.execArgv, needsLoader),
    serialization: 'advanced',
    silent: true,
  });
  const worker = cluster.fork(options.env);
  const child = worker.process;
  const pid = child.pid;
  if (pid !== undefined) janitor.add(pid);

  let over = false;
  let exit: { exitCode?: number; signal?: string } | undefined;
  const stderr = new OutputLines(
    child.stderr!,
    (line) => events.onLine('stderr', line),
    () => report(),
  );
  new OutputLines(
    child.stdout!,
    (line) => events.onLine('stdout', line),
    () => {},
  );

  const killGroup = (): void => {
    if (pid === undefined) return;
    try {
      process.kill(-pid, 'SIGKILL'); // what it started
    } catch {
      // Nothing was, or it ended before it had a group of its own.
    }
  };
  const report = (): void => {
    if (over || exit === undefined) return;
    over = true;
    events.onEnd({ ...exit, lastStderr: stderr.last });
  };
  const ended = (code: number | null, signal: NodeJS.Signals | null): void => {
    if (exit !== undefined) return;
    exit = { ...(code === null ? {} : { exitCode: code }), ...(signal === null ? {} : { signal }) };
    killGroup();
    if (pid !== undefined) janitor.gone(pid);
    if (stderr.ended) report();
    else setTimeout(report, STDERR_GRACE_MS);
  };
  child.once('exit', ended);
  worker.on('error', (error: Error) => {
    // Not started at all, or a message that could not be sent to a process that is going.
    if (pid === undefined) {
      exit = { exitCode: -1 };
      over = true;
      events.onEnd({ ...exit, lastStderr: [], error });
    }
  });
  // A worker whose modules are still loading loses messages (seen with Node 20): it says when it listens.
  let early: unknown[] | undefined = [{ t: 'birth', birth: options.birth }];
  const say = (message: unknown): void => {
    if (worker.isConnected()) worker.send(message as object);
  };
  worker.on('message', (message: ToAgent) => {
    if (message.t !== 'ready') events.onMessage(message);
    else {
      const waiting = early ?? [];
      early = undefined;
      for (const each of waiting) say(each);
    }
  });

  return {
    pid,
    send(message: FromAgent) {
      if (early !== undefined) early.push(message);
      else say(message);
    },
    destroy() {
      child.kill('SIGKILL');
      killGroup();
    },
  };
}
