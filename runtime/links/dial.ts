// The way to the door of another host.
import type { Duplex } from 'node:stream';
import { WebSocket } from 'ws';
import { RuntimeFailure } from '../api/errors.ts';
import { parseClusterUrl } from './address.ts';
import { isCut } from './emulation.ts';
import { HANDSHAKE_MS, proveToListener, type Room } from './handshake.ts';
import { type Pipe, WebSocketPipe, webSocketOptions } from './pipe.ts';
import type { TlsFiles } from './tls.ts';

/** `host`: which one it is, where that is known. Rejects with SINKFLEX_UNREACHABLE (`details.refused`: that host says that nobody listens), or SINKFLEX_AUTHENTICATION_FAILED. */
export async function dialDoor(url: string, room: Room, token: Buffer, tls: TlsFiles | undefined, host?: string): Promise<Pipe> {
  const target = parseClusterUrl(url);
  const place = host === undefined ? { room } : { room, host };
  if (isCut(place)) throw new RuntimeFailure('SINKFLEX_UNREACHABLE', `${target.url} cannot be reached: it is cut off on order`);
  const socket = new WebSocket(`${target.url}/${room}`, {
    ...webSocketOptions,
    handshakeTimeout: HANDSHAKE_MS,
    followRedirects: false,
    ...(target.secure ? { minVersion: 'TLSv1.3' as const, ...(tls?.ca === undefined ? {} : { ca: tls.ca }) } : {}),
  });
  let raw: Duplex | undefined;
  await new Promise<void>((resolve, reject) => {
    const fail = (cause: Error & { code?: string }): void => {
      const details = { refused: cause.code === 'ECONNREFUSED' };
      reject(new RuntimeFailure('SINKFLEX_UNREACHABLE', `${target.url} cannot be reached: ${cause.message}`, { cause, details }));
    };
    socket.on('error', fail);
    socket.once('upgrade', (response) => {
      raw = response.socket;
    });
    socket.once('open', resolve);
  });
  let pipe: Pipe | undefined;
  await proveToListener(socket, token, room, () => {
    pipe = new WebSocketPipe(socket, raw, place);
  });
  return pipe!;
}
