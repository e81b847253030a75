// Local sockets between the workers of a host: one listener a worker, in a folder that only this user can enter, authenticated by the
// token of the run. Sizes are fixed until the peer has proved itself, and bounded after.
import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { RuntimeFailure } from '../api/errors.ts';
import {
  ADMISSION_BYTES,
  type Address,
  addressName,
  callerSide,
  HEAD,
  HELLO_BYTES,
  type ListenerSide,
  listenerSide,
  PROOF_BYTES,
  type Purpose,
  REPLY_BYTES,
} from './authentication.ts';
import { CarriedTransport, writeChunks } from './carried.ts';
import type { Transport } from './channel.ts';
import type { Admission } from './network.ts';

const HANDSHAKE_MS = 2000;
/** By the byte that stands for it. */
export const admissions: readonly Admission[] = ['yes', 'mine', 'full'];

/** Of a gateway, `folder` is that path itself: a folder may have several. */
export function socketPath(folder: string, address: Address): string {
  if (address === 'gateway') return folder;
  return join(folder, address === HEAD ? 'head.sock' : `${address}.sock`);
}

class SocketTransport implements Transport {
  #socket: Socket;
  /** Bytes that arrived together with the last message of the handshake. */
  #early: Buffer;

  constructor(socket: Socket, early: Buffer) {
    this.#socket = socket;
    this.#early = early;
    socket.on('error', () => {}); // 'close' follows; from here on, since the peer may go at any moment
    socket.pause();
  }

  readonly handsOver = false;

  write(chunks: Buffer[], sent?: () => void): boolean {
    const socket = this.#socket;
    if (chunks.length > 1) socket.cork();
    writeChunks(socket, chunks, sent);
    if (chunks.length > 1) socket.uncork();
    return socket.writableLength === 0;
  }

  open(onData: (chunk: Buffer) => void, onClose: () => void): void {
    const socket = this.#socket;
    socket.on('data', onData);
    socket.on('close', onClose);
    if (socket.destroyed) process.nextTick(onClose);
    else if (this.#early.length > 0) {
      socket.unshift(this.#early);
      this.#early = Buffer.alloc(0);
    }
    socket.resume();
  }

  close(): void {
    this.#socket.destroySoon();
  }
}

/** A connection that is let in, and what came with the last message of the handshake. */
export interface Entered {
  socket: Socket;
  rest: Buffer;
}

/** Reads exactly the bytes of each handshake step; whatever follows the last is handed over. */
export function handshake(socket: Socket, bytes: number, step: (data: Buffer, rest: Buffer) => void): void {
  let got: Buffer = Buffer.alloc(0);
  const onData = (chunk: Buffer): void => {
    got = got.length === 0 ? chunk : Buffer.concat([got, chunk]);
    if (got.length < bytes) return;
    socket.off('data', onData);
    socket.pause();
    step(got.subarray(0, bytes), got.subarray(bytes));
  };
  socket.on('data', onData);
  socket.resume();
}

/** Connects to a worker's listener and proves itself. Rejects if nobody listens there, or it does not know the token. */
export async function connect(folder: string, token: Buffer, self: number, peer: Address): Promise<Transport> {
  const answer = await dial(folder, token, self, peer);
  if (typeof answer !== 'string') return answer;
  throw new RuntimeFailure('SINKFLEX_PROTOCOL', `${addressName(peer)} does not take another channel (${answer})`);
}

/** The same, for those who know what to do when they are not let in. */
export async function dial(folder: string, token: Buffer, self: number, peer: Address): Promise<Transport | Admission> {
  const answer = await dialSocket(folder, token, self, peer);
  return typeof answer === 'string' ? answer : new SocketTransport(answer.socket, answer.rest);
}

/** Unless it is for its own, `self` is a worker of another host. */
export function dialSocket(
  folder: string,
  token: Buffer,
  self: number,
  peer: Address,
  purpose: Purpose = 'own',
): Promise<Entered | Admission> {
  return new Promise((resolve, reject) => {
    const side = callerSide(token, self, peer, purpose);
    const socket = createConnection(socketPath(folder, peer));
    const fail = (error: Error): void => {
      clearTimeout(timer);
      socket.destroy();
      reject(error);
    };
    const closed = (): void =>
      fail(new RuntimeFailure('SINKFLEX_AUTHENTICATION_FAILED', `${addressName(peer)} closed the connection during the handshake`));
    const timer = setTimeout(
      () => fail(new RuntimeFailure('SINKFLEX_AUTHENTICATION_FAILED', `${addressName(peer)} did not finish the handshake in time`)),
      HANDSHAKE_MS,
    );
    socket.once('error', fail);
    socket.once('close', closed);
    socket.once('connect', () => {
      socket.write(side.hello);
      handshake(socket, REPLY_BYTES, (reply) => {
        try {
          socket.write(side.answer(reply));
        } catch (error) {
          fail(error as Error);
          return;
        }
        handshake(socket, ADMISSION_BYTES, (byte, rest) => {
          clearTimeout(timer);
          socket.off('error', fail);
          socket.off('close', closed);
          const admission = admissions[byte[0]!] ?? 'full';
          socket.on('error', () => {}); // 'close' follows
          if (admission === 'yes') resolve({ socket, rest });
          else {
            socket.destroy();
            resolve(admission);
          }
        });
      });
    });
  });
}

export interface Listener {
  close(): void;
}

/**
 * Listens for the other workers of the run. `onPeer` gets each connection that has proved itself and is let in; `onRefused` each that could not.
 * `door`: where workers of other hosts can come in, as text; empty: nowhere.
 */
export function listen(
  folder: string,
  token: Buffer,
  self: Address,
  onPeer: (caller: number, transport: Transport) => void,
  onRefused: (error: Error) => void = () => {},
  admit: (caller: number) => Admission = () => 'yes',
  door: () => Promise<string> = async () => '',
): Promise<Listener> {
  const arrived = ({ caller, purpose }: ListenerSide, { socket, rest }: Entered): void => {
    if (purpose === 'own') onPeer(caller, new SocketTransport(socket, rest));
    else if (purpose === 'carried') onPeer(caller, new CarriedTransport(socket, rest));
    else {
      const transport = new CarriedTransport(socket, rest);
      void door()
        .catch(() => '') // the gateways carry what would have come in
        .then((where) => {
          if (where !== '') transport.write([Buffer.from(where)]);
          transport.close();
        });
    }
  };
  return listenSockets(folder, token, self, arrived, onRefused, admit);
}

/** The same, for those who make of a connection what they like. */
export function listenSockets(
  folder: string,
  token: Buffer,
  self: Address,
  onPeer: (side: ListenerSide, entered: Entered) => void,
  onRefused: (error: Error) => void = () => {},
  admit: (caller: number) => Admission = () => 'yes',
): Promise<Listener> {
  const sockets = new Set<Socket>();
  const server: Server = createServer({ pauseOnConnect: true }, (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    const ignore = (): void => {};
    socket.on('error', ignore);
    const refuse = (error: Error): void => {
      clearTimeout(timer);
      socket.destroy();
      onRefused(error);
    };
    const timer = setTimeout(
      () => refuse(new RuntimeFailure('SINKFLEX_AUTHENTICATION_FAILED', 'a caller did not finish the handshake in time')),
      HANDSHAKE_MS,
    );
    timer.unref();
    socket.once('close', () => clearTimeout(timer));
    handshake(socket, HELLO_BYTES, (hello) => {
      let side: ListenerSide;
      try {
        side = listenerSide(token, self, hello);
      } catch (error) {
        refuse(error as Error);
        return;
      }
      socket.write(side.reply);
      handshake(socket, PROOF_BYTES, (answer, rest) => {
        try {
          side.check(answer);
        } catch (error) {
          refuse(error as Error);
          return;
        }
        clearTimeout(timer);
        const admission = side.purpose === 'door' ? 'yes' : admit(side.caller);
        const byte = Buffer.from([admissions.indexOf(admission)]);
        if (admission === 'yes') {
          socket.write(byte);
          onPeer(side, { socket, rest });
        } else socket.end(byte);
      });
    });
  });
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    // exclusive: in a cluster worker the primary would own the socket otherwise.
    server.listen({ path: socketPath(folder, self), exclusive: true }, () => {
      resolve({
        close() {
          server.close();
          for (const socket of sockets) socket.destroy();
        },
      });
    });
  });
}
