// A WebSocket whose other end has proved itself: binary messages in both directions, and the knowledge that the peer is still there.
import type { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import { RuntimeFailure } from '../api/errors.ts';
import { Lane, type Place } from './emulation.ts';

/** Larger messages are cut off. Whoever sends more sends several. */
export const MAX_MESSAGE = 1024 * 1024;
/** A peer is asked after so long, and given up when nothing came for so long: suspect, in the failure clock of the architecture. */
export const PING_MS = 1000;
export const SILENT_MS = 3000;

/** What both sides of a WebSocket are made with. */
export const webSocketOptions = {
  perMessageDeflate: false,
  maxPayload: MAX_MESSAGE,
  maxFragments: 16,
  maxBufferedChunks: 4096,
  skipUTF8Validation: true,
  autoPong: false,
  // Masks protect old proxies from browsers. Nobody of ours is a browser, and a mask of zeros costs nothing.
  generateMask: (mask: Buffer): void => void mask.fill(0),
} as const;

/**
 * How a pipe ended: said so, the peer's process went (the end of its stream), reset, silent, something was lost or changed on the way, or the
 * peer said what it must not.
 */
export type PipeEnd = 'bye' | 'end' | 'reset' | 'silent' | 'damaged' | 'protocol' | 'here';

export interface Pipe {
  /** The buffer belongs to the pipe until `sent`. */
  send(data: Buffer, sent?: () => void): void;
  /** Bytes that are not on their way yet. */
  readonly buffered: number;
  readonly closed: boolean;
  /** The other host, as it names itself, once that is known. */
  host: string | undefined;
  /** One message only; what follows waits for open(). */
  first(onMessage: (data: Buffer) => void, onClose: () => void): void;
  /** Begins to deliver. */
  open(onMessage: (data: Buffer) => void, onClose: (how: PipeEnd) => void): void;
  /** The peer has answered what was sent at that performance.now(). */
  onAnswered: ((sentAt: number) => void) | undefined;
  /** Ends it after what was sent; the peer learns that it was meant. */
  close(): void;
  /** Ends it now. */
  destroy(how?: PipeEnd): void;
}

const BYE = 1000;
/** What a ping carries: f64 when it was sent, u32 messages that were sent before it. */
const PING_BYTES = 12;

export class WebSocketPipe implements Pipe {
  readonly #socket: WebSocket;
  #early: Buffer[] | undefined = [];
  onAnswered: ((sentAt: number) => void) | undefined = undefined;
  #onMessage: ((data: Buffer) => void) | undefined;
  #onClose: ((how: PipeEnd) => void) | undefined;
  #end: PipeEnd | undefined;
  #ended = false;
  #heardAt = performance.now();
  #lookedAt = performance.now();
  readonly #timer: NodeJS.Timeout;
  /** Messages, in each direction. */
  #sent = 0;
  #received = 0;
  readonly #place: Place;
  readonly #out: Lane;
  readonly #in: Lane;

  /** `raw`: what carries it. `place`: what it is for, as faults name it. */
  constructor(socket: WebSocket, raw: Duplex | undefined, place: Place) {
    this.#socket = socket;
    this.#place = place;
    const sever = (): void => this.destroy('reset');
    this.#out = new Lane('out', place, sever);
    this.#in = new Lane('in', place, sever);
    socket.on('message', (data: Buffer, binary: boolean) => this.#in.pass(data, (whole) => this.#message(whole, binary)));
    socket.on('ping', (data: Buffer) => this.#in.pass(data, () => this.#pinged(data), true));
    socket.on('pong', (data: Buffer) => this.#in.pass(data, () => this.#ponged(data), true));
    socket.on('error', (error: Error & { code?: string }) => {
      this.#end ??= error.code?.startsWith('WS_ERR') ? 'protocol' : 'reset';
      socket.terminate();
    });
    raw?.once('end', () => {
      this.#end ??= 'end';
    });
    socket.once('close', (code) => this.#closed(code === BYE ? 'bye' : (this.#end ?? 'reset')));
    this.#timer = setInterval(() => this.#look(), PING_MS);
    this.#timer.unref();
    setImmediate(() => this.#ping());
  }

  get buffered(): number {
    return this.#socket.bufferedAmount;
  }

  get host(): string | undefined {
    return this.#place.host;
  }

  set host(host: string | undefined) {
    if (host !== undefined) this.#place.host = host;
  }

  get closed(): boolean {
    return this.#ended;
  }

  #look(): void {
    const now = performance.now();
    // Whoever looks was late itself: what came meanwhile has not been read yet.
    if (now - this.#lookedAt > 2 * PING_MS) this.#heardAt = Math.max(this.#heardAt, now - PING_MS);
    this.#lookedAt = now;
    // A worker's loop may be busy for as long as it likes. Whether its host is there, the head knows.
    if (now - this.#heardAt > SILENT_MS && this.#place.room !== 'worker') this.destroy('silent');
    else this.#ping();
  }

  #ping(): void {
    if (this.#ended || this.#socket.readyState !== 1) return;
    const data = Buffer.allocUnsafe(PING_BYTES);
    data.writeDoubleLE(performance.now(), 0);
    data.writeUInt32LE(this.#sent, 8);
    this.#out.pass(data, () => this.#socket.ping(data), true);
  }

  #pinged(data: Buffer): void {
    if (this.#ended) return;
    this.#heardAt = performance.now();
    // What was sent before it has come before it, or will not come.
    if (data.length !== PING_BYTES) this.destroy('protocol');
    else if (data.readUInt32LE(8) !== this.#received) this.destroy('damaged');
    else if (this.#socket.readyState === 1) this.#out.pass(data, () => this.#socket.pong(data), true);
  }

  #ponged(data: Buffer): void {
    const now = performance.now();
    this.#heardAt = now;
    // A lease counts from this time, so it is one of ours or nothing.
    if (data.length === PING_BYTES && data.readDoubleLE(0) <= now) this.onAnswered?.(data.readDoubleLE(0));
  }

  send(data: Buffer, sent?: () => void): void {
    if (this.#ended || this.#socket.readyState !== 1) return;
    this.#sent = (this.#sent + 1) >>> 0;
    this.#out.pass(data, (whole) => {
      if (this.#socket.readyState !== 1) return;
      this.#socket.send(whole, { binary: true, compress: false }, sent === undefined ? undefined : () => sent());
    });
  }

  #message(data: Buffer, binary: boolean): void {
    this.#heardAt = performance.now();
    this.#received = (this.#received + 1) >>> 0;
    if (!binary) this.destroy('protocol');
    else if (this.#onMessage !== undefined) this.#deliver(data);
    else this.#early?.push(data);
  }

  first(onMessage: (data: Buffer) => void, onClose: () => void): void {
    const early = this.#early?.shift();
    if (early !== undefined) {
      onMessage(early);
      return;
    }
    this.#onClose = onClose;
    this.#onMessage = (data) => {
      this.#onMessage = this.#onClose = undefined;
      onMessage(data);
    };
    if (this.#ended) process.nextTick(onClose);
  }

  open(onMessage: (data: Buffer) => void, onClose: (how: PipeEnd) => void): void {
    this.#onMessage = onMessage;
    this.#onClose = onClose;
    const early = this.#early ?? [];
    this.#early = undefined;
    for (const data of early) this.#deliver(data);
    if (this.#ended) process.nextTick(() => onClose(this.#end ?? 'reset'));
  }

  #deliver(data: Buffer): void {
    if (this.#ended) return;
    try {
      this.#onMessage?.(data);
    } catch (error) {
      if (!(error instanceof RuntimeFailure)) throw error;
      process.stderr.write(`[sinkflex] a link was cut: ${error.message}\n`);
      this.destroy('protocol');
    }
  }

  close(): void {
    if (this.#ended) return;
    this.#end ??= 'here';
    this.#socket.close(BYE);
    // The other end may never answer.
    setTimeout(() => this.#socket.terminate(), 500).unref();
    this.#closed('here');
  }

  destroy(how: PipeEnd = 'here'): void {
    this.#end ??= how;
    this.#socket.terminate();
    this.#closed(this.#end);
  }

  #closed(how: PipeEnd): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#end ??= how;
    this.#out.close();
    this.#in.close();
    clearInterval(this.#timer);
    this.#onClose?.(how);
  }
}
