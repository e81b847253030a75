// How a worker asks the gateway of its host for a channel to a worker of another one.
import { RuntimeFailure } from '../api/errors.ts';
import { CarriedTransport } from './carried.ts';
import type { Transport } from './channel.ts';
import type { Admission } from './network.ts';
import { admissions, dialSocket, handshake } from './socket.ts';

/** The gateway may have to reach the other host first. */
const OPEN_MS = 8000;

/** Asks the gateway with that socket for a channel to a worker of another host. Rejects with SINKFLEX_UNREACHABLE. */
export async function dialGateway(path: string, token: Buffer, self: number, peer: number): Promise<Transport | Admission> {
  const entered = await dialSocket(path, token, self, 'gateway');
  if (typeof entered === 'string') return entered;
  const { socket, rest } = entered;
  const unreachable = (why: string): RuntimeFailure =>
    new RuntimeFailure('SINKFLEX_UNREACHABLE', `worker ${peer} cannot be reached: ${why}`);
  return new Promise((resolve, reject) => {
    const fail = (why: string): void => {
      clearTimeout(timer);
      socket.destroy();
      reject(unreachable(why));
    };
    const closed = (): void => fail('no host is known that has it, or its host is out of reach');
    const timer = setTimeout(() => fail(`the gateway did not answer within ${OPEN_MS} ms`), OPEN_MS);
    socket.once('close', closed);
    const wanted = Buffer.alloc(4);
    wanted.writeUInt32LE(peer, 0);
    socket.write(wanted);
    if (rest.length > 0) socket.unshift(rest);
    handshake(socket, 1, (byte, more) => {
      clearTimeout(timer);
      socket.off('close', closed);
      const admission = admissions[byte[0]!] ?? 'full';
      if (admission === 'yes') resolve(new CarriedTransport(socket, more));
      else {
        socket.destroy();
        resolve(admission);
      }
    });
  });
}
