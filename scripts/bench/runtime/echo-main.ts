// The other end of a bare channel: as a thread it sends messages back, as a process (argument: the socket's path) bytes. Ends with its peer.
import { connect } from 'node:net';
import { parentPort } from 'node:worker_threads';

const path = process.argv[2];
if (parentPort !== null) {
  const port = parentPort;
  port.on('message', (message) => port.postMessage(message));
} else if (path !== undefined) {
  process.disconnect?.();
  const socket = connect(path);
  socket.on('data', (bytes) => socket.write(bytes));
  socket.on('error', () => {});
}
