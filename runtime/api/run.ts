// The life of a run: init and shutdown, in the program that is the driver.
import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';
import type { FromHead, PeerLink } from '../control/index.ts';
import { Head } from '../head/index.ts';
import { Agent, HARD_AFTER_MS, makeRunFolder, type Subscriber, sweepRunFolders } from '../node/index.ts';
import { hasSession, Session } from '../worker/index.ts';
import { RuntimeFailure } from './errors.ts';
import { checkInit } from './options.ts';
import type { ActorOutput, InitOptions } from './types.ts';

interface Run {
  head: Head;
  agent: Agent;
  session: Session;
  folder: string;
  onExit: () => void;
}
let run: Run | undefined;
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
 * Starts a run in this process: it is the driver, and everything ends with it.
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
  if (run !== undefined) throw new RuntimeFailure('SINKFLEX_ALREADY_INITIALISED', 'init() was called before');
  if (!isMainThread) throw new RuntimeFailure('SINKFLEX_DRIVER_ONLY', 'init() runs in the main thread only');
  sweepRunFolders();
  const folder = makeRunFolder();
  const token = randomBytes(32);
  const head = new Head();
  const link: PeerLink = { send: (message: FromHead) => agent.onHead(message) };
  const agent = new Agent(
    {
      folder,
      token,
      sharedWorkers: checked.sharedWorkers,
      maxInFlightBytes: checked.maxInFlightBytes,
      warmWorkers: checked.warmWorkers,
      onOutput: options.onOutput ?? toStderr,
    },
    { send: (message) => head.receive(message, link) },
  );
  head.join(link);
  const self: Subscriber = {
    worker: 0,
    send: (message) => {
      if (message.t === 'place' || message.t === 'killed' || message.t === 'answer') own.onAgent(message);
    },
  };
  const own = new Session(
    { worker: 0, folder, token, maxInFlightBytes: checked.maxInFlightBytes },
    { send: (message) => agent.receive(message, self) },
  );
  const onExit = (): void => {
    agent.destroy();
    rmSync(folder, { recursive: true, force: true });
  };
  process.once('exit', onExit);
  run = { head, agent, session: own, folder, onExit };
  await own.open();
}

/** Ends every actor (stop() hooks get the time), then the run. Leaves nothing behind. Without a run it does nothing. */
export function shutdown(options: { timeoutMs?: number } = {}): Promise<void> {
  if (ending !== undefined) return ending;
  if (run === undefined) {
    if (hasSession())
      return Promise.reject(
        new RuntimeFailure('SINKFLEX_DRIVER_ONLY', 'shutdown() is for the program that called init(), not for an actor'),
      );
    return Promise.resolve();
  }
  const { head, agent, session: own, folder, onExit } = run;
  ending = (async () => {
    try {
      const timeoutMs = options.timeoutMs ?? 5000;
      agent.drain();
      await head.close(timeoutMs, Math.max(0, timeoutMs - HARD_AFTER_MS));
      await agent.close();
    } finally {
      own.close();
      rmSync(folder, { recursive: true, force: true });
      process.off('exit', onExit);
      run = undefined;
      ending = undefined;
    }
  })();
  return ending;
}
