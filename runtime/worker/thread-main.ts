// Entry of a worker thread. An uncaught error reaches the agent as the thread's 'error' event, and is the actor's cause of death.
import { parentPort, workerData } from 'node:worker_threads';
import type { FromAgent, WorkerBirth } from '../control/index.ts';
import { WorkerLife } from './boot.ts';

const port = parentPort;
if (port === null) throw new Error('thread-main runs in a worker thread only');
const life = new WorkerLife(workerData as WorkerBirth, {
  send(message, sent) {
    port.postMessage(message);
    sent?.();
  },
  exit: (code) => process.exit(code),
});
port.on('message', (message: FromAgent) => life.onMessage(message));
