// The connections of a worker: one for each other worker that it talks to, opened on the first call, closed when nobody used it for a
// while and nothing is pending or lent in either direction. Two workers that open one at the same moment end up with one. Only so many
// stay open: the least recently used idle one makes room, and where none is idle the relay of the run carries the frames.
import { performance } from 'node:perf_hooks';
import { RuntimeFailure } from '../api/errors.ts';
import { type Admission, type Listener, loopback, type Network, type Transport } from '../wire/index.ts';
import { Connection } from './connection.ts';
import { Relay } from './relay.ts';
import type { Session } from './session.ts';

export interface ChannelOptions {
  /** A channel that was not used for so long is closed. */
  idleMs: number;
  /** Channels that may be open at once. */
  most: number;
}

export const channelDefaults: ChannelOptions = { idleMs: 60_000, most: 512 };

/** A peer that says that it is opening a channel is given so long, with questions in between. */
const MEET_MS = 2000;
const ASK_AGAIN_MS = 25;

export class Channels {
  readonly #session: Session;
  readonly #network: Network;
  readonly #options: ChannelOptions;
  readonly #relay: Relay;
  readonly #byPeer = new Map<number, Connection>();
  readonly #all = new Set<Connection>();
  readonly #opening = new Map<number, Promise<Connection>>();
  /** Told when a connection to that peer is there, or may be opened. */
  readonly #meeting = new Map<number, (() => void)[]>();
  /** Connections that are not relayed. */
  #direct = 0;
  #listener: Listener | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Advances with every look at who is idle: a coarse clock of use. */
  now = 1;

  constructor(session: Session, network: Network, options: ChannelOptions) {
    this.#session = session;
    this.#network = network;
    this.#options = options;
    this.#relay = new Relay(
      this,
      session.worker,
      (caller) => this.#admit(caller, false),
      (caller, transport) => void this.#add(caller, transport, false),
    );
  }

  get relay(): Relay {
    return this.#relay;
  }

  /** Every connection, also those that are closing. */
  all(): Iterable<Connection> {
    return this.#all;
  }

  async open(): Promise<void> {
    this.#listener = await this.#network.listen(
      (caller) => this.#admit(caller),
      (caller, transport) => void this.#add(caller, transport),
    );
  }

  close(): void {
    clearInterval(this.#timer);
    for (const connection of [...this.#all]) connection.channel.close();
    for (const peer of [...this.#meeting.keys()]) this.#met(peer);
    this.#listener?.close();
  }

  // --- opening

  /** The connection to that worker, if it is open. To itself a worker always has one. */
  existing(peer: number): Connection | undefined {
    const connection = this.#byPeer.get(peer);
    if (connection !== undefined) return connection.leaving ? undefined : connection;
    if (peer !== this.#session.worker) return undefined;
    const [here, there] = loopback();
    const other = new Connection(this.#session, peer, there);
    this.#all.add(other);
    other.channel.open();
    return this.#add(peer, here);
  }

  async to(peer: number): Promise<Connection> {
    const existing = this.existing(peer);
    if (existing !== undefined) return existing;
    let opening = this.#opening.get(peer);
    if (opening === undefined) {
      opening = this.#open(peer).finally(() => this.#opening.delete(peer));
      this.#opening.set(peer, opening);
    }
    return opening;
  }

  async #open(peer: number): Promise<Connection> {
    const end = performance.now() + MEET_MS;
    for (;;) {
      // One that is closing comes back, or makes room for the next.
      if (this.#byPeer.has(peer)) await this.#meet(peer, end);
      const existing = this.existing(peer);
      if (existing !== undefined) return existing;
      if (this.#session.closed) throw new RuntimeFailure('SINKFLEX_SHUT_DOWN', 'the runtime was shut down');
      if (this.#byPeer.has(peer)) throw new RuntimeFailure('SINKFLEX_PROTOCOL', `worker ${peer} did not say whether its channel may close`);
      let relayed = !(await this.#makeRoom()) && this.#relay.serves(peer);
      let answer = relayed ? 'full' : await this.#network.connect(peer);
      if (answer === 'full') {
        if (!this.#relay.serves(peer)) throw new RuntimeFailure('SINKFLEX_PROTOCOL', `worker ${peer} has no room for another channel`);
        relayed = true;
        answer = await this.#relay.open(peer);
      }
      if (typeof answer !== 'string') {
        if (!this.#session.closed) return this.#add(peer, answer, !relayed);
        answer.close();
        continue;
      }
      const met = this.existing(peer);
      if (met !== undefined) return met;
      if (performance.now() >= end)
        throw new RuntimeFailure('SINKFLEX_PROTOCOL', `worker ${peer} did not open the channel that it announced`);
      await this.#meet(peer, performance.now() + ASK_AGAIN_MS);
    }
  }

  #meet(peer: number, until: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, Math.max(1, until - performance.now()));
      const met = (): void => {
        clearTimeout(timer);
        resolve();
      };
      const others = this.#meeting.get(peer);
      if (others === undefined) this.#meeting.set(peer, [met]);
      else others.push(met);
    });
  }

  #met(peer: number): void {
    const waiting = this.#meeting.get(peer);
    this.#meeting.delete(peer);
    for (const met of waiting ?? []) met();
  }

  #admit(caller: number, direct = true): Admission {
    if (this.#session.closed) return 'full';
    const existing = this.#byPeer.get(caller);
    if (existing !== undefined) {
      // Whoever opens another has closed the one before. Only a higher number may have begun to open before it had this one.
      if (!existing.leaving && caller > this.#session.worker) return 'mine';
      // What the caller said last on one that is closing may still be on its way.
      if (existing.leaving) {
        existing.retired = true;
        this.#byPeer.delete(caller);
        this.#session.forget(caller);
      } else existing.channel.close();
    } else if (this.#opening.has(caller) && caller > this.#session.worker) return 'mine';
    if (direct && this.#direct >= this.#options.most && this.#relay.serves(caller)) {
      const idle = this.#leastUsed();
      if (idle === undefined) return 'full';
      this.#leave(idle);
    }
    return 'yes';
  }

  #add(peer: number, transport: Transport, direct = true): Connection {
    const connection = new Connection(this.#session, peer, transport);
    connection.direct = direct && peer !== this.#session.worker;
    if (connection.direct) this.#direct++;
    this.#all.add(connection);
    this.#byPeer.set(peer, connection);
    connection.usedAt = this.now;
    connection.channel.open();
    this.#timer ??= setInterval(() => this.#sweep(), Math.max(1, this.#options.idleMs / 2)).unref();
    this.#met(peer);
    return connection;
  }

  // --- closing

  #sweep(): void {
    const { now } = this;
    this.now++;
    for (const connection of this.#byPeer.values()) if (now - connection.usedAt >= 2 && this.#idle(connection)) this.#leave(connection);
  }

  /** Nothing of this worker's depends on it. The peer says the same for its side. */
  #idle(connection: Connection): boolean {
    const { peer } = connection;
    return (
      peer !== this.#session.worker &&
      !connection.leaving &&
      connection.unansweredCount === 0 &&
      !this.#session.loans.heldBy(peer) &&
      !this.#relay.uses(peer)
    );
  }

  #leastUsed(): Connection | undefined {
    let least: Connection | undefined;
    for (const connection of this.#byPeer.values())
      if (connection.direct && connection.usedAt < (least?.usedAt ?? Number.POSITIVE_INFINITY) && this.#idle(connection))
        least = connection;
    return least;
  }

  /** Answers false if there is none. */
  async #makeRoom(): Promise<boolean> {
    // One at a time, each with the peer's consent.
    for (let tries = 0; this.#direct >= this.#options.most; tries++) {
      const idle = this.#leastUsed();
      if (idle === undefined || tries > this.#options.most) return false;
      this.#leave(idle);
      await this.#meet(idle.peer, performance.now() + MEET_MS);
    }
    return true;
  }

  /** Asks the peer whether the channel may end; calls wait meanwhile. */
  #leave(connection: Connection): void {
    connection.leaving = true;
    for (const client of this.#session.clients()) client.connectionIdle(connection);
    connection.bye();
  }

  /** The peer would like to end the channel. */
  onBye(connection: Connection): void {
    // Both asked: both agree.
    if (connection.leaving) this.#retire(connection);
    else if (this.#idle(connection)) {
      for (const client of this.#session.clients()) client.connectionIdle(connection);
      connection.agree(true);
      this.#retire(connection);
    } else connection.agree(false);
  }

  onAgreed(connection: Connection, agreed: boolean): void {
    if (!connection.leaving) return;
    if (agreed) {
      this.#retire(connection);
      return;
    }
    connection.leaving = false;
    connection.usedAt = this.now;
    this.#met(connection.peer);
  }

  /** Ends a connection that both sides have done with. */
  #retire(connection: Connection): void {
    connection.retired = true;
    connection.channel.close();
  }

  closed(connection: Connection, error: Error | undefined): void {
    this.#all.delete(connection);
    if (connection.direct) this.#direct--;
    if (error !== undefined) process.stderr.write(`[sinkflex] connection to worker ${connection.peer} closed: ${error.message}\n`);
    this.#relay.connectionClosed(connection);
    const current = this.#byPeer.get(connection.peer) === connection;
    if (current) this.#byPeer.delete(connection.peer);
    if (!connection.retired) this.#session.peerLost(connection, current);
    if (current) this.#met(connection.peer);
  }
}
