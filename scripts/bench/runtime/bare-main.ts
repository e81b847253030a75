// A worker that does nothing but wait for messages, as a thread or as a process: what an idle actor is compared with.
import { parentPort } from 'node:worker_threads';

if (parentPort !== null) {
  parentPort.on('message', () => {});
  parentPort.postMessage('ready');
} else {
  process.on('message', () => {});
  process.on('disconnect', () => process.exit());
  process.send?.('ready');
}
