// How a worker asks the gateway of its host for a channel to a worker of another one, or where that worker can be reached without gateways.
import { RuntimeFailure } from '../api/errors.ts';
import { type Purpose, purposes } from './authentication.ts';
import { CarriedTransport } from './carried.ts';
import type { Admission } from './network.ts';
import { admissions, dialSocket, handshake } from './socket.ts';

/** The gateway may have to reach the other host first. */
const OPEN_MS = 8000;
/** What a gateway is told: u32 the worker, u8 the purpose. */
export const WANTED_BYTES = 5;

function writeWanted(callee: number, purpose: Purpose): Buffer {
  const wanted = Buffer.alloc(WANTED_BYTES);
  wanted.writeUInt32LE(callee, 0);
  wanted[4] = purposes.indexOf(purpose);
  return wanted;
}

/** Throws SINKFLEX_PROTOCOL. */
export function readWanted(data: Buffer): { callee: number; purpose: Purpose } {
  const purpose = purposes[data[4]!];
  if (purpose === undefined || purpose === 'own') throw new RuntimeFailure('SINKFLEX_PROTOCOL', 'a gateway was asked for what it has not');
  return { callee: data.readUInt32LE(0), purpose };
}

/** Asks the gateway with that socket for a channel to a worker of another host. Rejects with SINKFLEX_UNREACHABLE. */
export async function dialGateway(
  path: string,
  token: Buffer,
  self: number,
  peer: number,
  purpose: Purpose = 'carried',
): Promise<CarriedTransport | Admission> {
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
    socket.write(writeWanted(peer, purpose));
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

/** Where that worker lets others in without gateways, as it says; empty: nowhere. */
export async function askDoor(path: string, token: Buffer, self: number, peer: number): Promise<string> {
  const transport = await dialGateway(path, token, self, peer, 'door');
  if (typeof transport === 'string') return '';
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    const timer = setTimeout(() => transport.close(), OPEN_MS);
    transport.open(
      (chunk) => void parts.push(chunk),
      () => {
        clearTimeout(timer);
        resolve(Buffer.concat(parts).toString('utf8'));
      },
    );
  });
}
