// Channels by way of a third worker, for workers that have too many of their own: the relay of the run (the driver) passes on what they
// say without a look at it. What cannot be passed on comes back as the end of its channel.
import { RuntimeFailure } from '../api/errors.ts';
import type { Admission, Transport } from '../wire/index.ts';
import type { Channels } from './channels.ts';
import type { Connection } from './connection.ts';

/** Worker whose process carries what has no channel of its own. */
const RELAY = 0;
const ANSWER_MS = 2000;

/** Bytes of a channel, its opening, the answer to that, or its end. */
export type Relayed = Uint8Array | 'open' | Admission | null;

class RelayedTransport implements Transport {
  readonly handsOver = false;
  readonly channel: number;
  readonly #relay: Relay;
  readonly #peer: number;
  #onData: ((chunk: Buffer) => void) | undefined;
  #onClose: (() => void) | undefined;
  #early: Buffer[] = [];
  #ended = false;

  constructor(relay: Relay, peer: number, channel: number) {
    this.#relay = relay;
    this.#peer = peer;
    this.channel = channel;
  }

  write(chunks: Buffer[], sent?: () => void): boolean {
    this.#relay.send(this.#peer, this.channel, chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks));
    sent?.();
    return true;
  }

  receive(chunk: Buffer): void {
    if (this.#onData === undefined) this.#early.push(chunk);
    else this.#onData(chunk);
  }

  open(onData: (chunk: Buffer) => void, onClose: () => void): void {
    this.#onData = onData;
    this.#onClose = onClose;
    for (const chunk of this.#early.splice(0)) onData(chunk);
    if (this.#ended) process.nextTick(onClose);
  }

  close(): void {
    this.#relay.close(this.#peer, this.channel);
  }

  end(): void {
    this.#ended = true;
    this.#onClose?.();
  }
}

export class Relay {
  readonly #channels: Channels;
  readonly #self: number;
  readonly #admit: (peer: number) => Admission;
  readonly #arrived: (peer: number, transport: Transport) => void;
  /** At an end: the channels that go by way of the relay. */
  readonly #ends = new Map<number, RelayedTransport>();
  /** At an end: channels that wait for the peer to let them in. */
  readonly #asked = new Map<number, (answer: Admission | null) => void>();
  /** At the relay: worker -> the workers that it talks to through this one, and on which channel. */
  readonly #pairs = new Map<number, Map<number, number>>();
  #carrier: Connection | undefined;
  #opened = 0;

  constructor(channels: Channels, self: number, admit: (peer: number) => Admission, arrived: (peer: number, transport: Transport) => void) {
    this.#channels = channels;
    this.#self = self;
    this.#admit = admit;
    this.#arrived = arrived;
  }

  /** Whether there is a way to that worker through it. */
  serves(peer: number): boolean {
    return this.#self !== RELAY && peer !== RELAY && peer !== this.#self;
  }

  /** Whether relayed channels depend on the connection to that worker. */
  uses(peer: number): boolean {
    return this.#self === RELAY ? this.#pairs.has(peer) : peer === RELAY && this.#ends.size + this.#asked.size > 0;
  }

  async open(peer: number): Promise<Transport | Admission> {
    const channel = this.#self * 2 ** 20 + ++this.#opened;
    const carrier = await this.#channels.to(RELAY);
    this.#carrier = carrier;
    const answer = await new Promise<Admission | null>((resolve) => {
      const timer = setTimeout(() => resolve(null), ANSWER_MS);
      this.#asked.set(channel, (admission) => {
        clearTimeout(timer);
        resolve(admission);
      });
      carrier.relay(peer, channel, 'open');
    });
    this.#asked.delete(channel);
    if (answer === null) throw new RuntimeFailure('SINKFLEX_PROTOCOL', `worker ${peer} cannot be reached by way of the relay`);
    if (answer !== 'yes') return answer;
    return this.#ends.get(peer) ?? 'mine';
  }

  send(peer: number, channel: number, what: Relayed): void {
    this.#carrier?.relay(peer, channel, what);
  }

  /** This end has done with it. */
  close(peer: number, channel: number): void {
    if (this.#ends.get(peer)?.channel !== channel) return;
    this.#ends.delete(peer);
    this.send(peer, channel, null);
  }

  onMessage(connection: Connection, other: number, channel: unknown, what: unknown): void {
    const known = what === null || what instanceof Uint8Array || what === 'open' || what === 'yes' || what === 'mine' || what === 'full';
    if (typeof channel !== 'number' || !known) throw new RuntimeFailure('SINKFLEX_PROTOCOL', 'the peer relayed something that is none');
    if (this.#self === RELAY) void this.#passOn(connection, other, channel, what);
    else if (connection.peer === RELAY) this.#receive(connection, other, channel, what);
  }

  #receive(carrier: Connection, peer: number, channel: number, what: Relayed): void {
    const end = this.#ends.get(peer);
    const mine = end?.channel === channel ? end : undefined;
    if (what instanceof Uint8Array) {
      if (mine === undefined) carrier.relay(peer, channel, null);
      else mine.receive(Buffer.from(what.buffer, what.byteOffset, what.byteLength));
    } else if (what === 'open') {
      const admission = this.#admit(peer);
      this.#carrier = carrier;
      carrier.relay(peer, channel, admission);
      if (admission === 'yes') this.#arrived(peer, this.#begin(peer, channel));
    } else if (what !== null) {
      // The end must be there before the peer's next words.
      if (what === 'yes' && this.#asked.has(channel)) this.#begin(peer, channel);
      this.#asked.get(channel)?.(what);
    } else if (mine !== undefined) {
      this.#ends.delete(peer);
      mine.end();
    } else this.#asked.get(channel)?.(null);
  }

  #begin(peer: number, channel: number): RelayedTransport {
    this.#ends.get(peer)?.end();
    const end = new RelayedTransport(this, peer, channel);
    this.#ends.set(peer, end);
    return end;
  }

  async #passOn(from: Connection, to: number, channel: number, what: Relayed): Promise<void> {
    // In order: `to` answers in the order in which it was asked.
    const onward = this.#channels.existing(to) ?? (await this.#channels.to(to).catch(() => undefined));
    if (onward === undefined) {
      if (what !== null) from.relay(to, channel, null);
      return;
    }
    if (what === 'open') this.#note(from.peer, to, channel);
    else if (what === null) this.#forget(from.peer, to, channel);
    onward.relay(from.peer, channel, what);
  }

  #note(a: number, b: number, channel: number): void {
    for (const [x, y] of [
      [a, b],
      [b, a],
    ] as const) {
      const others = this.#pairs.get(x);
      if (others === undefined) this.#pairs.set(x, new Map([[y, channel]]));
      else others.set(y, channel);
    }
  }

  #forget(a: number, b: number, channel: number): void {
    for (const [x, y] of [
      [a, b],
      [b, a],
    ] as const) {
      const others = this.#pairs.get(x);
      if (others?.get(y) !== channel) continue;
      others.delete(y);
      if (others.size === 0) this.#pairs.delete(x);
    }
  }

  connectionClosed(connection: Connection): void {
    if (this.#self === RELAY) {
      for (const [other, channel] of [...(this.#pairs.get(connection.peer) ?? [])]) {
        this.#forget(connection.peer, other, channel);
        this.#channels.to(other).then(
          (onward) => onward.relay(connection.peer, channel, null),
          () => {},
        );
      }
    } else if (connection === this.#carrier) {
      this.#carrier = undefined;
      const ends = [...this.#ends.values()];
      this.#ends.clear();
      for (const end of ends) end.end();
      for (const answer of this.#asked.values()) answer(null);
    }
  }
}
