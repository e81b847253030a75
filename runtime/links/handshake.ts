// The proof of the token over a WebSocket, in both directions, before anything else is looked at: the messages of wire/authentication.ts.
import type { WebSocket } from 'ws';
import { RuntimeFailure } from '../api/errors.ts';
import { callerSide, HELLO_BYTES, type ListenerSide, listenerSide, PROOF_BYTES, REPLY_BYTES } from '../wire/index.ts';

export const HANDSHAKE_MS = 2000;
/** What a listener has to say to whom: the control of the head, the link of a host, or that of a worker. */
export type Room = 'head' | 'link' | 'worker';
export const rooms: readonly Room[] = ['head', 'link', 'worker'];

/** Hosts have no numbers: they name themselves once they are let in. */
const NOBODY = 0;
const WELCOME = 1;

/** Messages of exactly these sizes, one after the other, or the reason why not. */
function expect(socket: WebSocket, sizes: number[], step: (data: Buffer, index: number) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    let at = 0;
    const done = (error?: Error): void => {
      clearTimeout(timer);
      socket.off('message', onMessage);
      socket.off('close', onClose);
      if (error === undefined) {
        socket.off('error', onError);
        resolve();
        return;
      }
      socket.terminate(); // its 'error' is still listened to
      reject(error);
    };
    const refuse = (what: string): void => done(new RuntimeFailure('SINKFLEX_AUTHENTICATION_FAILED', what));
    const onMessage = (data: Buffer, binary: boolean): void => {
      if (!binary || data.length !== sizes[at]) {
        refuse('the other end does not speak this protocol');
        return;
      }
      try {
        step(data, at);
      } catch (error) {
        done(error as Error);
        return;
      }
      if (++at === sizes.length) done();
    };
    const onClose = (): void => refuse('the other end closed the connection during the handshake');
    const onError = (): void => refuse('the other end broke the connection during the handshake');
    const timer = setTimeout(() => refuse('the other end did not finish the handshake in time'), HANDSHAKE_MS);
    timer.unref();
    socket.on('message', onMessage);
    socket.once('close', onClose);
    socket.on('error', onError);
  });
}

/** `proved`: called in the very moment, so that nothing that follows is missed. */
export function proveToListener(socket: WebSocket, token: Buffer, room: Room, proved: () => void): Promise<void> {
  const side = callerSide(token, NOBODY, room);
  const done = expect(socket, [REPLY_BYTES, 1], (data, index) => {
    if (index === 0) socket.send(side.answer(data));
    else if (data[0] === WELCOME) proved();
    else throw new RuntimeFailure('SINKFLEX_AUTHENTICATION_FAILED', 'the other end did not let this process in');
  });
  socket.send(side.hello);
  return done;
}

export function proveToCaller(socket: WebSocket, token: Buffer, room: Room, proved: () => void): Promise<void> {
  let side: ListenerSide;
  return expect(socket, [HELLO_BYTES, PROOF_BYTES], (data, index) => {
    if (index === 0) {
      side = listenerSide(token, room, data);
      socket.send(side.reply);
      return;
    }
    side.check(data);
    socket.send(Buffer.from([WELCOME]));
    proved();
  });
}
