// A link between two hosts: any number of streams over one resumable session. What is urgent goes first, then bytes of all streams in turn,
// then a piece of a block; little lies in the socket at any time, so that nothing urgent waits behind much.
import { contentBytes, DESCRIPTOR_BYTES, type Purpose, purposes } from '../wire/index.ts';
import { PacketWriter, readRecords, record, wrong } from './packet.ts';
import type { Pipe, PipeEnd } from './pipe.ts';
import { Resumable } from './resumable.ts';
import { Stream } from './stream.ts';

/** What may lie in the socket, and what may be unacknowledged. */
const IN_SOCKET = 1024 * 1024;
const UNACKNOWLEDGED = 64 * 2 ** 20;
const SMALL_PACKET = 128 * 1024;
const MOST_STREAMS = 65_536;
const OPENING_BYTES = 9;
/** A link that broke is over when it has not healed by then: the lease of a host. */
export const LINK_LEASE_MS = 10_000;
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 5000;

/** The next pipe of the same session, or that the other side does not know it any more; rejects if there is no way there now. */
export type Redial = () => Promise<{ pipe: Pipe; received: number } | 'forgotten'>;

export interface LinkOptions {
  /** Of both ends the same. */
  session: string;
  /** The other end's. */
  host: string;
  /** This end opened it, and opens it again. */
  redial?: Redial;
  onOpen(stream: Stream, caller: number, callee: number, purpose: Purpose): void;
  onEnd(why: string): void;
  random?: () => number;
  leaseMs?: number;
}

export class Link {
  readonly session: string;
  readonly host: string;
  readonly #options: LinkOptions;
  readonly #resumable: Resumable;
  readonly #streams = new Map<number, Stream>();
  /** Those that have something to send. */
  readonly #ready = new Set<Stream>();
  #urgent = new PacketWriter();
  #nextStream: number;
  #timer: NodeJS.Timeout | undefined;
  #retry: NodeJS.Timeout | undefined;
  #pumping = false;
  ended = false;
  /** Pipes that it has had. */
  pipes = 0;

  constructor(options: LinkOptions) {
    this.#options = options;
    this.session = options.session;
    this.host = options.host;
    this.#nextStream = options.redial === undefined ? 2 : 1;
    this.#resumable = new Resumable(
      (packet, raw) => readRecords(packet, raw, (kind, id, content) => this.#record(kind, id, content)),
      () => this.#pump(),
    );
  }

  /** By this end. */
  get opened(): boolean {
    return this.#options.redial !== undefined;
  }

  get up(): boolean {
    return this.#resumable.pipe !== undefined;
  }

  get received(): number {
    return this.#resumable.received;
  }

  get streams(): number {
    return this.#streams.size;
  }

  /** Goes on over this pipe; the one before, if it still stands, is the older one. */
  adopt(pipe: Pipe, theirReceived: number): void {
    if (this.ended) {
      pipe.close();
      return;
    }
    const earlier = this.#resumable.pipe;
    this.#resumable.detach();
    earlier?.destroy();
    clearTimeout(this.#retry);
    this.#retry = undefined;
    this.pipes++;
    try {
      this.#resumable.attach(pipe, theirReceived);
    } catch (error) {
      pipe.destroy('protocol');
      this.end((error as Error).message);
      return;
    }
    pipe.open(
      (message) => {
        if (this.#resumable.pipe !== pipe) return;
        this.#resumable.onMessage(message);
        if (this.#resumable.pipe === pipe) this.#healed();
      },
      (how) => {
        if (this.#resumable.pipe === pipe) this.#broken(how);
      },
    );
    this.#pump();
  }

  /** Something came through whole: a pipe that damages everything heals nothing. */
  #healed(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #broken(how: PipeEnd): void {
    this.#resumable.detach();
    if (how === 'bye') this.end('the other host has ended it');
    else if (how === 'protocol') this.end('it carried what is no part of the protocol');
    else {
      const leaseMs = this.#options.leaseMs ?? LINK_LEASE_MS;
      this.#timer ??= setTimeout(() => this.end(`it broke and did not heal within ${leaseMs} ms`), leaseMs);
      if (this.#options.redial !== undefined) this.#again(0);
    }
  }

  /** Full jitter: many that lost the same host do not come back together. */
  #again(tries: number): void {
    const waitMs = (this.#options.random ?? Math.random)() * Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** tries);
    this.#retry = setTimeout(() => {
      this.#options.redial!().then(
        (answer) => {
          if (answer === 'forgotten') this.end('the other host has forgotten it');
          else if (this.ended || this.up) answer.pipe.destroy();
          else this.adopt(answer.pipe, answer.received);
        },
        () => {
          if (!this.ended && !this.up) this.#again(tries + 1);
        },
      );
    }, waitMs);
  }

  // --- streams

  /** `opened`: its admission, or undefined if the other worker cannot be reached. */
  open(caller: number, callee: number, purpose: Purpose, opened: (admission: number | undefined) => void): Stream {
    const id = this.#nextStream;
    this.#nextStream += 2;
    const stream = this.#add(id);
    stream.onOpened = (admission) => opened(admission === 255 ? undefined : admission);
    const content = Buffer.allocUnsafe(OPENING_BYTES);
    content.writeUInt32LE(caller, 0);
    content.writeUInt32LE(callee, 4);
    content[8] = purposes.indexOf(purpose);
    this.#say(record.open, id, content);
    return stream;
  }

  #add(id: number): Stream {
    const stream = new Stream(id, (which) => {
      this.#ready.add(which);
      this.#pump();
    });
    this.#streams.set(id, stream);
    return stream;
  }

  /** Answers an opening: an admission, or undefined. Unless it is a 'yes' (0) the stream is over with that. */
  answer(stream: Stream, admission: number | undefined): void {
    this.#say(record.opened, stream.id, Buffer.from([admission ?? 255]));
    if (admission !== 0) this.#drop(stream);
  }

  consumed(stream: Stream, bytes: number): void {
    const credit = stream.consumed(bytes);
    if (credit === 0 || !this.#streams.has(stream.id)) return;
    const content = Buffer.allocUnsafe(4);
    content.writeUInt32LE(credit, 0);
    this.#say(record.credit, stream.id, content);
  }

  /** Now, whatever it still had to send. */
  abort(stream: Stream): void {
    if (!this.#streams.has(stream.id)) return;
    this.#say(record.close, stream.id, undefined);
    this.#drop(stream);
  }

  #drop(stream: Stream): void {
    this.#streams.delete(stream.id);
    this.#ready.delete(stream);
    stream.ended();
  }

  #say(kind: Parameters<PacketWriter['add']>[0], stream: number, content: Uint8Array | undefined): void {
    if (this.ended) return;
    this.#urgent.add(kind, stream, content);
    this.#pump();
  }

  #record(kind: number, id: number, content: Buffer): void {
    if (this.ended) return;
    if (kind === record.open) {
      this.#opened(id, content);
      return;
    }
    const stream = this.#streams.get(id);
    if (stream === undefined) return; // it was closed here meanwhile
    switch (kind) {
      case record.opened: {
        if (content.length !== 1 || stream.onOpened === undefined) throw wrong('an answer that nobody waits for');
        const { onOpened } = stream;
        stream.onOpened = undefined;
        if (content[0] !== 0) {
          this.#streams.delete(id);
          this.#ready.delete(stream);
        }
        onOpened(content[0]!);
        return;
      }
      case record.bytes:
        stream.bytes(content);
        return;
      case record.block:
        if (content.length !== DESCRIPTOR_BYTES) throw wrong('a block without a name');
        stream.block(content, contentBytes(content));
        return;
      case record.piece:
        stream.piece(content);
        this.consumed(stream, content.length);
        return;
      case record.credit:
        stream.credit(number(content));
        return;
      case record.close:
        this.#drop(stream);
        return;
      default:
        throw wrong(`a record of unknown kind ${kind}`);
    }
  }

  #opened(id: number, content: Buffer): void {
    const theirs = id > 0 && id % 2 !== this.#nextStream % 2;
    const purpose = purposes[content[8] ?? purposes.length];
    if (content.length !== OPENING_BYTES || purpose === undefined || !theirs || this.#streams.has(id))
      throw wrong('an opening that is none');
    const stream = this.#add(id);
    if (this.#streams.size > MOST_STREAMS) this.answer(stream, undefined);
    else this.#options.onOpen(stream, content.readUInt32LE(0), content.readUInt32LE(4), purpose);
  }

  // --- sending

  #pump(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    try {
      for (;;) {
        const { pipe } = this.#resumable;
        if (pipe === undefined || this.ended) return;
        const room = pipe.buffered < IN_SOCKET && this.#resumable.unacknowledged < UNACKNOWLEDGED;
        const packet = this.#urgent;
        if (room) this.#takeBytes(packet);
        const bulk = room ? this.#bulk() : undefined;
        if (bulk !== undefined) {
          const { raw, done } = bulk.takePiece(packet);
          this.#send(packet, raw, done);
          // Behind the others that have one.
          this.#ready.delete(bulk);
          if (bulk.hasPiece || bulk.hasBytes) this.#ready.add(bulk);
        } else if (!packet.empty) this.#send(packet);
        else return;
      }
    } finally {
      this.#pumping = false;
    }
  }

  #send(packet: PacketWriter, raw?: Buffer, done?: () => void): void {
    this.#resumable.send(packet.take(), raw, done);
  }

  #takeBytes(packet: PacketWriter): void {
    for (const stream of this.#ready) {
      if (packet.bytes >= SMALL_PACKET) return;
      const over = stream.hasBytes && stream.takeBytes(packet, SMALL_PACKET);
      if (over) {
        this.#streams.delete(stream.id);
        this.#ready.delete(stream);
        stream.ended();
      } else if (!stream.hasBytes && !stream.hasPiece) this.#ready.delete(stream);
      else if (stream.hasBytes) {
        // It had its turn.
        this.#ready.delete(stream);
        this.#ready.add(stream);
      }
    }
  }

  #bulk(): Stream | undefined {
    for (const stream of this.#ready) if (stream.hasPiece) return stream;
    return undefined;
  }

  // --- its end

  /** Says goodbye, if the other side can hear it. */
  close(): void {
    this.end('this host has ended it', (pipe) => pipe.close());
  }

  end(why: string, part = (pipe: Pipe): void => pipe.destroy()): void {
    if (this.ended) return;
    this.ended = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#retry);
    const { pipe } = this.#resumable;
    this.#resumable.end();
    if (pipe !== undefined) part(pipe);
    for (const stream of [...this.#streams.values()]) {
      const { onOpened } = stream;
      stream.onOpened = undefined;
      stream.ended();
      onOpened?.(255);
    }
    this.#streams.clear();
    this.#ready.clear();
    this.#options.onEnd(why);
  }
}

function number(content: Buffer): number {
  if (content.length !== 4) throw wrong('a number that is none');
  return content.readUInt32LE(0);
}
