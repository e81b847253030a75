// Channels by way of a third worker, for workers that have too many of their own: the relay of the run (the driver) passes frames on
// without a look at them. A frame on the way to a worker that is gone comes back as the end of its channel.
import type { Transport } from '../wire/index.ts';
import type { Channels } from './channels.ts';
import type { Connection } from './connection.ts';

/** Worker whose process carries what has no channel of its own. */
const RELAY = 0;

class RelayedTransport implements Transport {
  readonly handsOver = false;
  readonly #relay: Relay;
  readonly #peer: number;
  onData: ((chunk: Buffer) => void) | undefined;
  onClose: (() => void) | undefined;
  #early: Buffer[] = [];

  constructor(relay: Relay, peer: number) {
    this.#relay = relay;
    this.#peer = peer;
  }

  write(chunks: Buffer[], sent?: () => void): boolean {
    this.#relay.send(this.#peer, chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks));
    sent?.();
    return true;
  }

  receive(chunk: Buffer): void {
    if (this.onData === undefined) this.#early.push(chunk);
    else this.onData(chunk);
  }

  open(onData: (chunk: Buffer) => void, onClose: () => void): void {
    this.onData = onData;
    this.onClose = onClose;
    for (const chunk of this.#early.splice(0)) onData(chunk);
  }

  close(): void {
    this.#relay.end(this.#peer);
  }
}

export class Relay {
  readonly #channels: Channels;
  readonly #self: number;
  readonly #arrived: (peer: number, transport: Transport) => void;
  /** At an end: the channels that go by way of the relay. */
  readonly #ends = new Map<number, RelayedTransport>();
  /** At the relay: worker -> the workers that it talks to through this one. */
  readonly #pairs = new Map<number, Set<number>>();
  #carrier: Connection | undefined;

  constructor(channels: Channels, self: number, arrived: (peer: number, transport: Transport) => void) {
    this.#channels = channels;
    this.#self = self;
    this.#arrived = arrived;
  }

  /** Whether frames to that worker can go by way of it. */
  serves(peer: number): boolean {
    return this.#self !== RELAY && peer !== RELAY && peer !== this.#self;
  }

  /** Whether relayed channels depend on the connection to that worker. */
  uses(peer: number): boolean {
    return this.#self === RELAY ? this.#pairs.has(peer) : peer === RELAY && this.#ends.size > 0;
  }

  async open(peer: number): Promise<Transport> {
    this.#carrier = await this.#channels.to(RELAY);
    return this.#end(peer);
  }

  #end(peer: number): RelayedTransport {
    let end = this.#ends.get(peer);
    if (end === undefined) {
      end = new RelayedTransport(this, peer);
      this.#ends.set(peer, end);
    }
    return end;
  }

  send(peer: number, bytes: Uint8Array): void {
    this.#carrier?.relay(peer, bytes);
  }

  end(peer: number): void {
    if (this.#ends.delete(peer)) this.#carrier?.relay(peer, null);
  }

  /** A frame, or the end of a channel, from or to another worker. */
  onMessage(connection: Connection, other: number, bytes: Uint8Array | null): void {
    if (this.#self === RELAY) {
      void this.#passOn(connection, other, bytes);
      return;
    }
    if (connection.peer !== RELAY) return;
    this.#carrier = connection;
    let end = this.#ends.get(other);
    if (bytes === null) {
      this.#ends.delete(other);
      end?.onClose?.();
      return;
    }
    if (end === undefined) {
      end = this.#end(other);
      this.#arrived(other, end);
    }
    end.receive(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  }

  async #passOn(from: Connection, to: number, bytes: Uint8Array | null): Promise<void> {
    let onward = this.#channels.existing(to);
    if (onward === undefined) {
      // Later frames to it must not overtake this one: `to` answers in the order in which it was asked.
      onward = await this.#channels.to(to).catch(() => undefined);
      if (onward === undefined) {
        from.relay(to, null);
        return;
      }
    }
    if (bytes !== null) this.#note(from.peer, to);
    else this.#forget(from.peer, to);
    onward.relay(from.peer, bytes);
  }

  #note(a: number, b: number): void {
    for (const [x, y] of [
      [a, b],
      [b, a],
    ] as const) {
      const others = this.#pairs.get(x);
      if (others === undefined) this.#pairs.set(x, new Set([y]));
      else others.add(y);
    }
  }

  #forget(a: number, b: number): void {
    for (const [x, y] of [
      [a, b],
      [b, a],
    ] as const) {
      const others = this.#pairs.get(x);
      others?.delete(y);
      if (others?.size === 0) this.#pairs.delete(x);
    }
  }

  connectionClosed(connection: Connection): void {
    if (this.#self === RELAY) {
      for (const other of [...(this.#pairs.get(connection.peer) ?? [])]) {
        this.#forget(connection.peer, other);
        this.#channels.existing(other)?.relay(connection.peer, null);
      }
    } else if (connection === this.#carrier) {
      this.#carrier = undefined;
      const ends = [...this.#ends.values()];
      this.#ends.clear();
      for (const end of ends) end.onClose?.();
    }
  }
}
