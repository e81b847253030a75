// The life of a run: init and shutdown, in the program that is the driver.
import { isMainThread } from 'node:worker_threads';
import type { OwnerId } from '../control/index.ts';
import type { Head } from '../head/index.ts';
import type { Agent } from '../node/index.ts';
import { hasSession, type Session } from '../worker/index.ts';
import { checkTimeout } from './check.ts';
import { RuntimeFailure } from './errors.ts';
import type { Observing } from './observing.ts';
import { checkInit } from './options.ts';
import type { ActorInfo, ActorOutput, InitOptions } from './types.ts';

/** What a driver has. */
export interface Run {
  readonly session: Session;
  readonly folder: string;
  /** What it spawns ends with it. */
  readonly owner: OwnerId;
  /** Where they live in this process. */
  readonly head: Head | undefined;
  readonly agent: Agent | undefined;
  /** How it is seen; undefined: its head is another process. */
  observing?: Observing;
  listActors(): ActorInfo[];
  onActorChange(listener: (info: ActorInfo) => void): () => void;
  /** As far as this process knows at once. */
  nameTaken(name: string): boolean;
  /** Ends what it owns; stop() hooks get the time. */
  close(timeoutMs: number): Promise<void>;
  /** At the exit of the process: no time for anything else. */
  onExit(): void;
}

let run: Run | undefined;
let starting = false;
let ending: Promise<void> | undefined;

/** The run that this program drives, if it drives one. */
export function currentRun(): Run | undefined {
  return run;
}

export function driver(): Run {
  if (run !== undefined) return run;
  if (hasSession()) throw new RuntimeFailure('SINKFLEX_DRIVER_ONLY', 'only the program that called init() can do this, not an actor');
  throw new RuntimeFailure('SINKFLEX_NOT_INITIALISED', 'call init() first');
}

const toStderr = ({ name, pid, line }: ActorOutput): void => void process.stderr.write(`[${name} ${pid}] ${line}\n`);

/**
 * Starts a run in this process: it is the driver, and everything ends with it. With `address`, the folder or the URL of a running head, the actors of
 * this driver live on the nodes that have joined that head; those with lifetime 'detached' stay when the driver goes.
 *
 * @example
 * await init();
 * const counter = spawn(Counter);
 * console.log(await counter.add(2));
 * await shutdown();
 */
export async function init(options: InitOptions = {}): Promise<void> {
  const checked = checkInit(options);
  if (run === undefined && hasSession()) {
    throw new RuntimeFailure(
      'SINKFLEX_DRIVER_ONLY',
      'init() ran inside an actor: the module that defines the actor also starts the program. Move the definition to a module that only defines actors',
    );
  }
  if (run !== undefined || starting) throw new RuntimeFailure('SINKFLEX_ALREADY_INITIALISED', 'init() was called before');
  if (!isMainThread) throw new RuntimeFailure('SINKFLEX_DRIVER_ONLY', 'init() runs in the main thread only');
  starting = true;
  try {
    // What only a driver needs is loaded here: every worker imports this file.
    const { sweepFolder, sweepRunFolders } = await import('../node/run-folder.ts');
    const { setTaskCpus } = await import('../tasks/engine.ts');
    sweepRunFolders();
    if (options.spillFolder !== undefined) sweepFolder(options.spillFolder);
    const started =
      options.address === undefined
        ? await (await import('./local-run.ts')).startLocalRun(checked, options.onOutput ?? toStderr)
        : await (await import('./attached-run.ts')).attachRun({ ...checked.place, address: options.address }, checked);
    run = started;
    process.once('exit', started.onExit);
    setTaskCpus(checked.total.cpus!);
    await started.session.open();
    await started.observing?.open(started, options);
  } catch (error) {
    if (run !== undefined) await shutdown();
    throw error;
  } finally {
    starting = false;
  }
}

/** Ends every actor (stop() hooks get the time), then the run. Leaves nothing behind. Without a run it does nothing. */
export function shutdown(options: { timeoutMs?: number } = {}): Promise<void> {
  const timeoutMs = checkTimeout('shutdown', options) ?? 5000;
  if (ending !== undefined) return ending;
  if (run === undefined) {
    if (hasSession())
      return Promise.reject(
        new RuntimeFailure('SINKFLEX_DRIVER_ONLY', 'shutdown() is for the program that called init(), not for an actor'),
      );
    return Promise.resolve();
  }
  const current = run;
  ending = (async () => {
    try {
      const { endTasks } = await import('../tasks/engine.ts');
      await endTasks();
      await current.close(timeoutMs);
    } finally {
      process.off('exit', current.onExit);
      run = undefined;
      ending = undefined;
    }
  })();
  return ending;
}
