// Entry of a worker process. Lives no longer than its agent: a death signal and the end of the IPC channel both end it. Leaves the
// terminal's process group, so that Ctrl-C reaches the driver only, and so that its own children can be ended with it.
import { writeSync } from 'node:fs';
import { os } from '../../kernels/host.ts';
import type { BirthMessage, FromAgent, RehearseMessage, ToAgent, WorkerBirth } from '../control/index.ts';
import { encodeError } from '../wire/index.ts';
import { preload, rehearse, WorkerLife } from './boot.ts';
import { applyEnvironment } from './environment.ts';
import { enterMemoryGroup, preferAsVictim } from './memory.ts';

process.on('disconnect', () => process.exit(0));
os.dieWithParent(process.ppid); // before it is known whose it is; whether that is still its agent is asked again at its birth
os.leaveProcessGroup();
preferAsVictim();

let life: WorkerLife | undefined;

/** Not before the process has lived for a moment. */
const WATCH_AFTER_MS = 1000;

function watchStackSoon(birth: WorkerBirth): void {
  const watch = async (): Promise<void> => (await import('./stack-watcher.ts')).watchStack(birth);
  setTimeout(() => void watch().catch(() => {}), WATCH_AFTER_MS).unref(); // failed: there are no stacks
}

function send(message: ToAgent, sent?: () => void): void {
  if (process.connected) process.send!(message, undefined, undefined, () => sent?.());
  else sent?.();
}

/** Nobody can receive it: it ends the worker, and is its cause of death. */
function fatal(error: unknown): void {
  const text = error instanceof Error ? (error.stack ?? error.message) : `uncaught: ${String(error)}`;
  writeSync(2, `${text}\n`);
  send({ t: 'fatal', error: encodeError(error) }, () => process.exit(1));
  setTimeout(() => process.exit(1), 500);
}
process.on('uncaughtException', fatal);
process.on('unhandledRejection', fatal);

process.on('message', (message: BirthMessage | RehearseMessage | FromAgent) => {
  if (message.t === 'birth') {
    os.dieWithParent(message.birth.agentPid);
    process.title = message.label;
    applyEnvironment(message.environment);
    if (message.birth.memoryGroup !== undefined) enterMemoryGroup(message.birth.memoryGroup);
    watchStackSoon(message.birth);
    life = new WorkerLife(message.birth, { send, exit: (code) => process.exit(code) });
  } else if (message.t === 'rehearse') void rehearse(message.folder);
  else life?.onMessage(message);
});
send({ t: 'ready' });
/** What actors import is there. */
export const loaded: Promise<void> = preload();
