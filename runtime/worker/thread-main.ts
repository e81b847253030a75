// Entry of a worker thread. An uncaught error reaches the agent as the thread's 'error' event, and is the actor's cause of death.
import { parentPort } from 'node:worker_threads';
import type { BirthMessage, FromAgent, RehearseMessage } from '../control/index.ts';
import { type PortMessage, ThreadBroker } from '../wire/index.ts';
import { type Carrier, preload, rehearse, WorkerLife } from './boot.ts';
import { applyEnvironment } from './environment.ts';

const port = parentPort;
if (port === null) throw new Error('thread-main runs in a worker thread only');
const carrier: Carrier = {
  send(message, sent) {
    port.postMessage(message);
    sent?.();
  },
  exit: (code) => process.exit(code),
};
let life: WorkerLife | undefined;
const broker = new ThreadBroker((message) => port.postMessage(message));
port.on('message', (message: BirthMessage | RehearseMessage | FromAgent | PortMessage) => {
  if (message.t === 'birth') {
    applyEnvironment(message.environment);
    life = new WorkerLife(message.birth, carrier, broker);
  } else if (message.t === 'rehearse') void rehearse(message.folder);
  else if (message.t === 'port') broker.onMessage(message);
  else life?.onMessage(message);
});
port.postMessage({ t: 'ready' });
void preload();
