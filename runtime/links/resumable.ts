// One direction-and-back of numbered packets between two hosts that outlives the pipes that carry it: what the other side has not
// acknowledged is kept and sent again on the next pipe, what comes twice is dropped. Nothing is lost or repeated as long as both ends live.
import { RuntimeFailure } from '../api/errors.ts';
import { isWhole, PACKET_HEADER, seal, wrong } from './packet.ts';
import type { Pipe } from './pipe.ts';

/** Acknowledged at the latest after so much, or so long. */
const ACK_BYTES = 256 * 1024;
const ACK_PACKETS = 64;
const ACK_MS = 20;
const LAST = 2 ** 32 - 1;

interface Kept {
  number: number;
  packet: Buffer;
  raw: Buffer | undefined;
  /** Called once the other side has it. */
  done: (() => void) | undefined;
}

export class Resumable {
  readonly #receive: (packet: Buffer, raw: Buffer | undefined) => void;
  /** There may be room again: something was sent, or acknowledged. */
  readonly #onRoom: () => void;
  #pipe: Pipe | undefined;
  #next = 1;
  #received = 0;
  #kept: Kept[] = [];
  #keptFrom = 0;
  /** Bytes that were sent and not acknowledged. */
  unacknowledged = 0;
  // What came since the last acknowledgement.
  #bytes = 0;
  #packets = 0;
  #timer: NodeJS.Timeout | undefined;
  /** A packet whose raw message is still to come. */
  #half: Buffer | undefined;

  constructor(receive: (packet: Buffer, raw: Buffer | undefined) => void, onRoom: () => void) {
    this.#receive = receive;
    this.#onRoom = onRoom;
  }

  get received(): number {
    return this.#received;
  }

  get pipe(): Pipe | undefined {
    return this.#pipe;
  }

  /** Goes on over this pipe, on which the other side has said what it has. Throws SINKFLEX_PROTOCOL if that cannot be. */
  attach(pipe: Pipe, theirReceived: number): void {
    this.detach();
    if (theirReceived >= this.#next) throw wrong('an acknowledgement of what was never sent');
    this.#acknowledged(theirReceived);
    if (theirReceived + 1 < (this.#kept[this.#keptFrom]?.number ?? this.#next)) throw wrong('an acknowledgement that goes back');
    this.#pipe = pipe;
    this.#acknowledge();
    for (let i = this.#keptFrom; i < this.#kept.length; i++) this.#write(pipe, this.#kept[i]!);
  }

  /** The pipe is gone. */
  detach(): void {
    this.#pipe = undefined;
    this.#half = undefined;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#bytes = this.#packets = 0;
  }

  /** `packet`: room for its header, then records. It and `raw` are left alone until `done`. */
  send(packet: Buffer, raw?: Buffer, done?: () => void): void {
    if (this.#next === LAST) throw new RuntimeFailure('SINKFLEX_PROTOCOL', 'the link has used up its numbers');
    const kept = { number: this.#next++, packet, raw, done };
    this.#kept.push(kept);
    this.unacknowledged += packet.length + (raw?.length ?? 0);
    if (this.#pipe !== undefined) this.#write(this.#pipe, kept);
  }

  #write(pipe: Pipe, { number, packet, raw }: Kept): void {
    seal(packet, number, this.#received, raw);
    this.#acknowledges();
    if (raw === undefined) pipe.send(packet, this.#onRoom);
    else {
      pipe.send(packet);
      pipe.send(raw, this.#onRoom);
    }
  }

  /** What goes out next says what was received. */
  #acknowledges(): void {
    this.#bytes = this.#packets = 0;
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  onMessage(message: Buffer): void {
    const half = this.#half;
    this.#half = undefined;
    if (half !== undefined) this.#sealed(half, message);
    else if (message.length >= PACKET_HEADER && message.readUInt32LE(8) > 0) this.#half = message;
    else this.#sealed(message, undefined);
  }

  #sealed(packet: Buffer, raw: Buffer | undefined): void {
    if (packet.length < PACKET_HEADER || !isWhole(packet, raw)) {
      this.#pipe?.destroy('damaged');
      return;
    }
    const acknowledged = packet.readUInt32LE(4);
    if (acknowledged >= this.#next) throw wrong('an acknowledgement of what was never sent');
    this.#acknowledged(acknowledged);
    const number = packet.readUInt32LE(0);
    if (number > 0) this.#numbered(number, packet, raw);
    else if (packet.length > PACKET_HEADER || raw !== undefined) throw wrong('a packet without a number');
  }

  #numbered(number: number, packet: Buffer, raw: Buffer | undefined): void {
    if (number <= this.#received) return; // again, after a resumption
    if (number !== this.#received + 1) {
      // One was lost on the way, or overtaken: the next pipe begins with it.
      this.#pipe?.destroy('damaged');
      return;
    }
    this.#received = number;
    this.#bytes += packet.length + (raw?.length ?? 0);
    this.#packets++;
    if (this.#bytes >= ACK_BYTES || this.#packets >= ACK_PACKETS) this.#acknowledge();
    else this.#timer ??= setTimeout(() => this.#acknowledge(), ACK_MS);
    this.#receive(packet, raw);
  }

  #acknowledge(): void {
    this.#acknowledges();
    if (this.#pipe === undefined) return;
    const packet = Buffer.alloc(PACKET_HEADER);
    seal(packet, 0, this.#received, undefined);
    this.#pipe.send(packet);
  }

  #acknowledged(number: number): void {
    let room = false;
    for (; this.#keptFrom < this.#kept.length; this.#keptFrom++) {
      const kept = this.#kept[this.#keptFrom]!;
      if (kept.number > number) break;
      this.unacknowledged -= kept.packet.length + (kept.raw?.length ?? 0);
      kept.done?.();
      this.#kept[this.#keptFrom] = undefined as unknown as Kept;
      room = true;
    }
    if (this.#keptFrom > 1024 || this.#keptFrom === this.#kept.length) {
      this.#kept.splice(0, this.#keptFrom);
      this.#keptFrom = 0;
    }
    if (room) this.#onRoom();
  }

  /** It will not go on: what was kept is let go of. */
  end(): void {
    this.detach();
    const kept = this.#kept.slice(this.#keptFrom);
    this.#kept = [];
    this.#keptFrom = 0;
    this.unacknowledged = 0;
    for (const { done } of kept) done?.();
  }
}
