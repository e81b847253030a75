// Channels between threads of one process: message ports, which the main thread hands out. Sharing the process is the proof of belonging to
// the run. Frames are the same as on a socket; sections that are ours alone are transferred, not copied.
import { MessageChannel, type MessagePort, type TransferListItem } from 'node:worker_threads';
import type { Transport } from './channel.ts';
import { joined } from './loopback.ts';
import type { Admission } from './network.ts';

/** A short frame, a character a byte; a longer one; one with sections. */
type Posted = string | Uint8Array | [head: Uint8Array, ...sections: Uint8Array[]];

/** How a worker gets ports to others, and is asked for them. */
export interface Broker {
  /** A port to that worker; undefined: it is not in this process. */
  port(peer: number): Promise<MessagePort | undefined>;
  /** Calls back with each port that somebody asked for. Answers how to stop. */
  accept(self: number, arrived: (caller: number, port: MessagePort) => void): () => void;
}

/** Up to here a string costs least: cloning an array makes a buffer outside the heap on either side, and both are collected later. */
const STRING_BYTES = 2048;
/** Copying so little costs less than handing it over. */
const TRANSFER_BYTES = 4096;
const ANSWER_MS = 2000;

/** Asks a worker of this process for a channel; undefined: it is none of this process, or is going. */
export async function portTo(broker: Broker, peer: number): Promise<Transport | Admission | undefined> {
  const port = await broker.port(peer);
  if (port === undefined) return undefined;
  const answer = await new Promise<Admission | undefined>((resolve) => {
    const timer = setTimeout(() => resolve(undefined), ANSWER_MS);
    port.once('message', (admission: Admission) => {
      clearTimeout(timer);
      resolve(admission);
    });
    port.once('close', () => {
      clearTimeout(timer);
      resolve(undefined);
    });
  });
  if (answer === 'yes') return new PortTransport(port);
  port.close();
  return answer;
}

/** The other side of portTo. */
export function answerPort(port: MessagePort, admission: Admission): Transport | undefined {
  port.postMessage(admission);
  if (admission === 'yes') return new PortTransport(port);
  port.close();
  return undefined;
}

class PortTransport implements Transport {
  readonly handsOver = true;
  readonly #port: MessagePort;
  #closed = false;

  constructor(port: MessagePort) {
    this.#port = port;
    port.once('close', () => {
      this.#closed = true;
    });
  }

  write(chunks: Buffer[]): boolean {
    const head = chunks[0]!;
    if (chunks.length === 1 && head.length <= STRING_BYTES) {
      this.#port.postMessage(head.toString('latin1'));
      return true;
    }
    // What is posted is cloned or handed over with its whole buffer, so it must be a buffer of its own.
    const own = new Uint8Array(head);
    if (chunks.length === 1) {
      if (own.length > TRANSFER_BYTES) this.#port.postMessage(own, [own.buffer as ArrayBuffer]);
      else this.#port.postMessage(own);
      return true;
    }
    const message: Uint8Array[] = [own];
    const transfer: TransferListItem[] = [];
    for (let i = 1; i < chunks.length; i++) {
      const chunk = chunks[i]!;
      const part = chunk.byteLength === chunk.buffer.byteLength ? chunk : new Uint8Array(chunk);
      message.push(part);
      transfer.push(part.buffer as ArrayBuffer);
    }
    this.#port.postMessage(message, transfer);
    return true;
  }

  open(onData: (chunk: Buffer, sections?: Buffer) => void, onClose: () => void): void {
    this.#port.on('message', (message: Posted) => {
      if (this.#closed) return;
      if (typeof message === 'string') onData(Buffer.from(message, 'latin1'));
      else if (!Array.isArray(message)) onData(view(message));
      else if (message.length === 2) onData(view(message[0]), view(message[1]!));
      else onData(view(message[0]), joined(message.slice(1)));
    });
    if (this.#closed) process.nextTick(onClose);
    else this.#port.once('close', onClose);
  }

  close(): void {
    this.#closed = true;
    this.#port.close();
  }
}

function view(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Worker -> how to give it a port. Used in the main thread of a process only. */
const hub = new Map<number, (caller: number, port: MessagePort) => void>();

/** Makes a worker of this process reachable; answers how to end that. */
export function attach(worker: number, deliver: (caller: number, port: MessagePort) => void): () => void {
  hub.set(worker, deliver);
  return () => {
    if (hub.get(worker) === deliver) hub.delete(worker);
  };
}

/** A port to that worker, if it is in this process. */
export function openPort(caller: number, peer: number): MessagePort | undefined {
  const deliver = hub.get(peer);
  if (deliver === undefined) return undefined;
  const { port1, port2 } = new MessageChannel();
  deliver(caller, port2);
  return port1;
}

/** The main thread's own. */
export class MainBroker implements Broker {
  readonly #self: number;
  constructor(self: number) {
    this.#self = self;
  }
  async port(peer: number): Promise<MessagePort | undefined> {
    return openPort(this.#self, peer);
  }
  accept(self: number, arrived: (caller: number, port: MessagePort) => void): () => void {
    return attach(self, arrived);
  }
}

/** Between a thread and the main thread. `request`: of the thread that asks; `caller`: somebody asks for this thread. */
export type PortMessage =
  | { t: 'port'; request: number; peer: number }
  | { t: 'port'; request: number; port?: MessagePort }
  | { t: 'port'; caller: number; port: MessagePort };

/** A thread's. */
export class ThreadBroker implements Broker {
  readonly #send: (message: PortMessage) => void;
  readonly #asked = new Map<number, (port: MessagePort | undefined) => void>();
  #requests = 0;
  #arrived: ((caller: number, port: MessagePort) => void) | undefined;
  #early: [number, MessagePort][] = [];

  constructor(send: (message: PortMessage) => void) {
    this.#send = send;
  }

  port(peer: number): Promise<MessagePort | undefined> {
    const request = ++this.#requests;
    return new Promise((resolve) => {
      this.#asked.set(request, resolve);
      this.#send({ t: 'port', request, peer });
    });
  }

  accept(_self: number, arrived: (caller: number, port: MessagePort) => void): () => void {
    this.#arrived = arrived;
    for (const [caller, port] of this.#early.splice(0)) arrived(caller, port);
    return () => {
      this.#arrived = undefined;
    };
  }

  onMessage(message: PortMessage): void {
    if ('caller' in message) {
      if (this.#arrived === undefined) this.#early.push([message.caller, message.port]);
      else this.#arrived(message.caller, message.port);
    } else if (!('peer' in message)) {
      this.#asked.get(message.request)?.(message.port);
      this.#asked.delete(message.request);
    }
  }
}
