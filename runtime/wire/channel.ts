// One channel between two workers: messages of one event-loop turn leave in one frame, answers come back to the calls that wait for
// them. Knows nothing of actors; what a message means is the handler's affair.
import { performance } from 'node:perf_hooks';
import { newBlockChannel } from '../../kernels/host.ts';
import { RuntimeFailure } from '../api/errors.ts';
import { blockPool } from './blocks.ts';
import { Decoder, Encoder, type HeaderSink } from './codec.ts';
import { type FrameLimits, FrameReader, PREFIX_BYTES, writePrefix } from './frame.ts';
import { EMPTY } from './sections.ts';

/** Brings blocks of shared memory to another host, where they have other descriptors. */
export interface BlockCarrier {
  /** The next frame names this block; one that is named twice is announced twice. */
  announce(descriptor: Uint8Array): void;
  /** What is here in its stead, once for each time that it was announced. */
  find(descriptor: Uint8Array): Uint8Array | undefined;
}

/** What carries the bytes: a socket, or a loop back into the same worker. */
export interface Transport {
  /** The receiver keeps the very buffers that are written. */
  readonly handsOver: boolean;
  /** The peer is on another host: it cannot open blocks of this one. */
  readonly abroad?: boolean;
  /** Unless they are brought to it. */
  readonly blocks?: BlockCarrier;
  /** True when the bytes are no longer needed: the buffers may be written again. `sent`: called when that is so, at once or later. */
  write(chunks: Buffer[], sent?: () => void): boolean;
  /** Begins to deliver: pieces of the stream, or a frame's head and its sections, which are the receiver's to keep. */
  open(onData: (chunk: Buffer, sections?: Buffer) => void, onClose: () => void): void;
  /** Ends the connection after what was written. */
  close(): void;
}

export interface ChannelHandler {
  onMessage(channel: Channel, message: unknown[]): void;
  onClose(channel: Channel, error: Error | undefined): void;
}

const BLOCK = 64 * 1024;
/** A turn that writes more than this sends what it has, so that the peer starts early and blocks stay small. */
const EARLY_FLUSH = 512 * 1024;

/** Its reactions are microtasks, for less than queueMicrotask(), which makes a resource for each. */
const turnEnds = Promise.resolve();

export class Channel implements HeaderSink {
  /** Number of the worker at the other end. */
  readonly peer: number;
  closed = false;
  /** performance.now() at which the last bytes came: the age of a call that waits, without a clock reading for each. */
  receivedAt = 0;
  #transport: Transport;
  #handler: ChannelHandler;
  #encoder: Encoder;
  /** Number of this channel for blocks of shared memory; 0: everything goes in the frames. */
  readonly #blocks: number;
  #decoder: Decoder;
  #reader: FrameReader;
  /** Prefix and messages of the frame being built. */
  #block: Buffer = Buffer.allocUnsafeSlow(BLOCK);
  #end = PREFIX_BYTES;
  #scheduled = false;
  /** In the handler of messages that came: what it sends leaves when it has seen them all. */
  #delivering = false;
  #error: Error | undefined;
  readonly #flushLater = (): void => void process.nextTick(this.#flushNow);
  readonly #flushNow = (): void => {
    this.#scheduled = false;
    this.flush();
  };

  constructor(peer: number, transport: Transport, handler: ChannelHandler, limits?: FrameLimits) {
    this.peer = peer;
    this.#transport = transport;
    this.#handler = handler;
    const { abroad, blocks } = transport;
    this.#blocks = blockPool() === undefined || (abroad === true && blocks === undefined) ? 0 : newBlockChannel();
    this.#encoder = new Encoder(!transport.handsOver, this.#blocks);
    if (blocks !== undefined) this.#encoder.sections.named = [];
    this.#decoder = new Decoder(blocks === undefined ? undefined : (descriptor) => blocks.find(descriptor));
    this.#reader = new FrameReader((messages, sections, fresh) => this.#frame(messages, sections, fresh), limits);
  }

  open(): void {
    this.#transport.open(
      (chunk, sections) => {
        this.receivedAt = performance.now();
        this.#delivering = true;
        try {
          if (sections === undefined) this.#reader.push(chunk);
          else this.#reader.pushFrame(chunk, sections);
        } catch (error) {
          this.close(
            error instanceof RuntimeFailure
              ? error
              : new RuntimeFailure('SINKFLEX_PROTOCOL', `the peer's frame does not decode: ${(error as Error).message}`),
          );
        } finally {
          this.#delivering = false;
          // At once: the peer goes on while this turn ends. What microtasks send goes in a frame of its own.
          this.flush();
        }
      },
      () => this.#ended(),
    );
  }

  /** Encodes now (later changes of the value are not sent) and sends at the end of the turn. Answers the encoded bytes. */
  send(message: unknown[]): number {
    if (this.closed) return 0;
    const before = this.#end;
    const sectionBytes = this.#encoder.encode(message, this);
    const headerBytes = this.#end - before;
    if (this.#end + Math.max(sectionBytes, this.#encoder.sections.bytes) > EARLY_FLUSH) this.flush();
    else if (!this.#scheduled && !this.#delivering) {
      this.#scheduled = true;
      // After all microtasks of this turn, before the loop goes on: a microtask that asks for the next tick.
      void turnEnds.then(this.#flushLater);
    }
    return headerBytes + sectionBytes;
  }

  append(source: Buffer, start: number, end: number): void {
    const needed = this.#end + end - start;
    if (needed > this.#block.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(needed, this.#block.length * 2));
      this.#block.copy(larger, 0, 0, this.#end);
      this.#block = larger;
    }
    source.copy(this.#block, this.#end, start, end);
    this.#end = needed;
  }

  encoderReplaced(): void {
    this.flush();
    this.#encoder.fresh = true;
  }

  flush(): void {
    if (this.#end === PREFIX_BYTES || this.closed) return;
    const sectionBytes = this.#encoder.sections.bytes;
    writePrefix(this.#block, this.#end - PREFIX_BYTES, sectionBytes, this.#encoder.fresh);
    this.#encoder.frameEnded();
    const first = this.#block.subarray(0, this.#end);
    const chunks = sectionBytes > 0 ? [first, ...this.#encoder.sections.take()] : [first];
    this.#end = PREFIX_BYTES;
    const { named } = this.#encoder.sections;
    if (named !== undefined && named.length > 0) for (const descriptor of named.splice(0)) this.#transport.blocks!.announce(descriptor);
    const reusable = this.#transport.write(chunks, sectionBytes > 0 ? this.#encoder.sections.takePooled() : undefined);
    if (!reusable || this.#block.length > EARLY_FLUSH * 2) this.#block = Buffer.allocUnsafeSlow(BLOCK);
  }

  #frame(messages: Buffer, sections: Buffer, fresh: boolean): void {
    if (this.closed) return;
    const decoded = this.#decoder.decode(messages, sections, fresh);
    for (let i = 0; i < decoded.length && !this.closed; i++) {
      const message = decoded[i];
      if (!Array.isArray(message)) throw new RuntimeFailure('SINKFLEX_PROTOCOL', 'the peer sent a message that is no array');
      this.#handler.onMessage(this, message);
    }
  }

  /** Sends what is waiting, then ends the connection. */
  close(error?: Error): void {
    if (this.closed) return;
    this.#error = error;
    if (error === undefined) this.flush();
    this.#transport.close();
    this.#ended();
  }

  #ended(): void {
    if (this.closed) return;
    this.closed = true;
    this.#block = EMPTY;
    if (this.#blocks !== 0) blockPool()?.channelGone(this.#blocks);
    this.#handler.onClose(this, this.#error);
  }
}
