// Mutual proof that both ends know the token of the run, before a single byte is decoded. The token never travels.
//   caller -> listener   magic 'SFXA' ('SFXC', 'SFXD': for a worker of another host), u32 caller's worker, 16 bytes nonce
//   listener -> caller   16 bytes nonce, HMAC(token, 'listener' | both hellos)
//   caller -> listener   HMAC(token, 'caller' | both hellos)
//   listener -> caller   one byte: whether it lets the caller in (network.ts)
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { RuntimeFailure } from '../api/errors.ts';

/** Number of the head of a cluster: no worker has it. */
export const HEAD = 2 ** 32 - 1;

/**
 * Who listens: a worker, the run itself for those who look at it (with a token of their own), the way from this host to others; and to those
 * of other hosts the control of the head, or the links of a host or of a worker.
 */
export type Address = number | 'observe' | 'gateway' | 'head' | 'link' | 'worker';

export function addressName(address: Address): string {
  if (address === 'observe') return 'the run';
  if (typeof address !== 'number') return address === 'gateway' ? 'the gateway of this host' : 'the other host';
  return address === HEAD ? 'the head' : `worker ${address}`;
}

/**
 * What a connection is for: a channel of the caller, one of a worker of another host whose words its gateway brings, or only to be told where
 * that worker can come in itself.
 */
export type Purpose = 'own' | 'carried' | 'door';
const MAGICS: Readonly<Record<Purpose, number>> = { own: 0x41584653, carried: 0x43584653, door: 0x44584653 };
export const purposes = Object.keys(MAGICS) as readonly Purpose[];
const NONCE = 16;
const PROOF = 32;
export const HELLO_BYTES = 4 + 4 + NONCE;
export const REPLY_BYTES = NONCE + PROOF;
export const PROOF_BYTES = PROOF;
export const ADMISSION_BYTES = 1;

function proof(token: Buffer, role: 'caller' | 'listener', hello: Buffer, nonce: Buffer, listener: Address): Buffer {
  return createHmac('sha256', token).update(role).update(hello).update(nonce).update(String(listener)).digest();
}

function refused(what: string): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_AUTHENTICATION_FAILED', what);
}

export interface CallerSide {
  hello: Buffer;
  /** Checks the listener's reply; answers the proof to send. */
  answer(reply: Buffer): Buffer;
}

export function callerSide(token: Buffer, self: number, listener: Address, purpose: Purpose = 'own'): CallerSide {
  const hello = Buffer.alloc(HELLO_BYTES);
  hello.writeUInt32LE(MAGICS[purpose], 0);
  hello.writeUInt32LE(self, 4);
  randomBytes(NONCE).copy(hello, 8);
  return {
    hello,
    answer(reply) {
      const nonce = reply.subarray(0, NONCE);
      if (!timingSafeEqual(reply.subarray(NONCE, REPLY_BYTES), proof(token, 'listener', hello, nonce, listener))) {
        throw refused(`${addressName(listener)} does not know the token`);
      }
      return proof(token, 'caller', hello, nonce, listener);
    },
  };
}

export interface ListenerSide {
  caller: number;
  purpose: Purpose;
  reply: Buffer;
  /** Checks the caller's proof. */
  check(answer: Buffer): void;
}

export function listenerSide(token: Buffer, self: Address, hello: Buffer): ListenerSide {
  const magic = hello.readUInt32LE(0);
  const purpose = purposes.find((each) => MAGICS[each] === magic);
  if (purpose === undefined) throw refused('the caller does not speak this protocol');
  const caller = hello.readUInt32LE(4);
  const own = Buffer.from(hello);
  const nonce = randomBytes(NONCE);
  return {
    caller,
    purpose,
    reply: Buffer.concat([nonce, proof(token, 'listener', own, nonce, self)]),
    check(answer) {
      if (!timingSafeEqual(answer, proof(token, 'caller', own, nonce, self)))
        throw refused(`a caller that says it is ${caller} does not know the token of ${addressName(self)}`);
    },
  };
}
