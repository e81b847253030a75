// Whether a process that listened is gone: its host says that nobody listens there any more. No answer says nothing.
import { connect } from 'node:net';
import { parseClusterUrl } from './address.ts';

const ANSWER_MS = 1000;

export function nobodyListens(url: string): Promise<boolean> {
  const { host, port } = parseClusterUrl(url);
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const done = (gone: boolean): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(gone);
    };
    const timer = setTimeout(() => done(false), ANSWER_MS);
    socket.once('connect', () => done(false));
    socket.once('error', (error: NodeJS.ErrnoException) => done(error.code === 'ECONNREFUSED'));
  });
}
