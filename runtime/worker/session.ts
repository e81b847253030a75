// What a worker is to the others: its listener, one connection to each worker that it talks to, the actors that it hosts, the actors
// that it calls, and the values that it owns. Exactly one in each process or thread that takes part in a run, the driver included.
import { performance } from 'node:perf_hooks';
import { ActorDiedError, type Death, RuntimeFailure } from '../api/errors.ts';
import type { Ask, FromAgent, ToAgent, WorkerBirth } from '../control/index.ts';
import { isPlaceOfValue, type Keeper, Loans, ObjectStore, Ref } from '../objects/index.ts';
import { type Broker, decodeError, LocalNetwork, type Network, registerWireClass } from '../wire/index.ts';
import { LazyAbroad } from './abroad.ts';
import { type ChannelOptions, Channels, channelDefaults } from './channels.ts';
import { ActorClient } from './client.ts';
import { Clients } from './clients.ts';
import type { Connection } from './connection.ts';
import { keepCounts } from './counters.ts';
import type { ActorHost } from './host.ts';
import { InboundCall } from './inbound-call.ts';
import { BORROW, GIVE_BACK } from './protocol.ts';
import { OutgoingStream } from './stream.ts';

/** The way to the agent: IPC from a process, a port from a thread, a plain call in the driver. */
export interface AgentLink {
  send(message: ToAgent): void;
}

export type SessionBirth = Pick<
  WorkerBirth,
  'worker' | 'folder' | 'token' | 'maxInFlightBytes' | 'channels' | 'noRelay' | 'store' | 'gateway' | 'direct'
>;

const KEPT_ENDS = 1000;
const WATCH_AGAIN_MS = 1000;

let current: Session | undefined;
let lent: Ref[] | undefined;

export function session(): Session {
  if (current === undefined) throw new RuntimeFailure('SINKFLEX_NOT_INITIALISED', 'the runtime is not running here: call init() first');
  return current;
}

/** What follows is done in the name of that session. Matters only where a thread has several of them (simulations). */
export function enter(session: Session): void {
  if (!session.closed) current = session;
}

export function hasSession(): boolean {
  return current !== undefined;
}

/** Refs that are encoded from now on are noted in `list`; answers the list before. */
export function collectRefs(list: Ref[] | undefined): Ref[] | undefined {
  const outer = lent;
  lent = list;
  return outer;
}

/** What is not the same in every program: where ports come from, and what tests replace. */
export interface SessionOptions extends Partial<ChannelOptions> {
  random?: () => number;
  broker?: Broker;
  network?: Network;
  /** Simulations only: one of several sessions in this thread. */
  several?: boolean;
}

export class Session implements Keeper {
  readonly worker: number;
  readonly #network: Network;
  readonly link: AgentLink;
  readonly maxInFlightBytes: number;
  /** What a thread of this worker needs to take part in the run itself. */
  readonly birth: SessionBirth;
  /** Threads of this worker that take part. */
  guests: { receive(message: Extract<FromAgent, { t: 'guest' | 'guest-joined' }>): void } | undefined = undefined;
  /** Called before anything is done for others: does not return when the host may not act any more. */
  guard: (() => void) | undefined = undefined;
  /** For what should not happen to many at the same moment. */
  readonly random: () => number;
  readonly loans = new Loans();
  /** Where large values are; undefined: in this process. */
  readonly store: ObjectStore | undefined;
  readonly hosts = new Map<number, ActorHost>();
  /** Looks for calls that wait for themselves. */
  circles: { onTrace(connection: Connection, call: number, about: unknown[]): void } | undefined = undefined;
  /** How actors that this worker hosted last ended, for calls that come too late. */
  readonly #ended = new Map<number, { name: string; death: Death }>();
  closed = false;
  readonly #clients = new Clients();
  readonly channels: Channels;
  /** Peer -> connections to it that broke: with each, both sides forgot what they had lent to the other. */
  readonly #losses = new Map<number, number>();
  /** Holders to which a connection is being opened. */
  readonly #watching = new Set<number>();
  /** What this worker asked of the head. */
  readonly #asked = new Map<number, { resolve: (value: unknown) => void; reject: (error: unknown) => void }>();
  #requests = 0;
  /** Actors whose spawner keeps something for them (refs among their arguments) until they are dead. */
  readonly keptFor = new Map<number, () => void>();

  constructor(
    birth: SessionBirth,
    link: AgentLink,
    {
      random = Math.random,
      broker,
      several = false,
      network = new LocalNetwork(birth.folder, birth.token, birth.worker, broker, LazyAbroad.of(birth)),
      ...channels
    }: SessionOptions = {},
  ) {
    if (current !== undefined && !several)
      throw new RuntimeFailure('SINKFLEX_ALREADY_INITIALISED', 'this thread already takes part in a run');
    this.birth = birth;
    this.#network = network;
    this.worker = birth.worker;
    this.link = link;
    this.random = random;
    this.maxInFlightBytes = birth.maxInFlightBytes;
    if (birth.store !== undefined) this.store = new ObjectStore(birth.store, birth.worker);
    const unbounded = birth.noRelay ? { most: Number.POSITIVE_INFINITY } : {};
    this.channels = new Channels(this, network, { ...channelDefaults, ...birth.channels, ...unbounded, ...channels });
    current = this;
  }

  async open(): Promise<void> {
    await this.channels.open();
  }

  /** Ends every connection and rejects what still waits. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    const error = new RuntimeFailure('SINKFLEX_SHUT_DOWN', 'the runtime was shut down while the call was under way');
    for (const client of this.#clients.held()) client.shutDown(error);
    this.channels.close();
    for (const client of this.#clients.held()) client.shutDown(error);
    for (const { reject } of this.#asked.values()) reject(error);
    this.#asked.clear();
    this.store?.close();
    if (current === this) current = undefined;
  }

  /** Sends what this turn has written so far. */
  flush(): void {
    for (const connection of this.channels.all()) connection.channel.flush();
  }

  /** For those who look: never on the path of a call. */
  connections(): Iterable<Connection> {
    return this.channels.all();
  }

  clients(): Iterable<ActorClient> {
    return this.#clients.held();
  }

  existing(worker: number): Connection | undefined {
    return this.channels.existing(worker);
  }

  connectionTo(worker: number): Promise<Connection> {
    return this.channels.to(worker);
  }

  /** What this worker and that one had lent to each other is void. */
  forget(peer: number): void {
    this.loans.holderGone(peer);
    this.#losses.set(peer, this.epoch(peer) + 1);
  }

  /** The connection ended, and nobody meant it to. */
  peerLost(connection: Connection, last: boolean): void {
    const { peer } = connection;
    if (last) {
      this.forget(peer);
      for (const host of this.hosts.values()) host.callerLost(peer, () => this.existing(peer) === undefined);
    }
    for (const client of this.#clients.held()) client.connectionClosed(connection);
  }

  /** The host is no more; late calls are told why. */
  unhost(host: ActorHost, death: Death): void {
    this.hosts.delete(host.id);
    if (host.hasRun) keepCounts(host.counts());
    this.#ended.delete(host.id);
    this.#ended.set(host.id, { name: host.name, death });
    if (this.#ended.size > KEPT_ENDS) this.#ended.delete(this.#ended.keys().next().value!);
  }

  client(actor: number, name: string): ActorClient {
    let client = this.#clients.get(actor);
    if (client === undefined) {
      client = new ActorClient(this, actor, name);
      this.#clients.add(client);
    }
    return client;
  }

  /** Asks where the client's actor is, and to be told of every change. */
  resolve(client: ActorClient): void {
    this.#clients.hold(client);
    this.link.send({ t: 'resolve', actor: client.id });
  }

  /** Resolves when the incarnation has ended, with `restart` when the next one is alive. */
  kill(actor: number, options: { restart: boolean; drain: boolean; graceMs: number }): Promise<void> {
    // A run that ends meanwhile has ended the actor too.
    return this.#ask((request) => ({ t: 'kill', actor, ...options, request })).then(
      () => {},
      () => {},
    );
  }

  /** The head's answer. */
  ask(ask: Ask): Promise<unknown> {
    return this.#ask((request) => ({ t: 'ask', request, ask }));
  }

  #ask(message: (request: number) => ToAgent): Promise<unknown> {
    const request = ++this.#requests;
    return new Promise((resolve, reject) => {
      this.#asked.set(request, { resolve, reject });
      this.link.send(message(request));
    });
  }

  /** What the agent says that is no command. */
  onAgent(message: FromAgent): void {
    if (message.t === 'guest' || message.t === 'guest-joined') {
      this.guests?.receive(message);
      return;
    }
    if (message.t === 'place') {
      const { place } = message;
      this.#clients.get(place.actor)?.placed(place);
      if (place.status !== 'dead') return;
      this.#clients.letGo(place.actor);
      const letGo = this.keptFor.get(place.actor);
      this.keptFor.delete(place.actor);
      letGo?.();
      return;
    }
    if (message.t === 'host-gone') this.#network.hostGone?.(message.host);
    if (message.t !== 'killed' && message.t !== 'answer') return;
    const asked = this.#asked.get(message.request);
    this.#asked.delete(message.request);
    if (message.t === 'answer' && message.error !== undefined) asked?.reject(decodeError(message.error));
    else asked?.resolve(message.t === 'answer' ? message.value : undefined);
  }

  /** A call of a peer. Throws SINKFLEX_PROTOCOL if it is not well formed. */
  deliver(connection: Connection, message: unknown[]): void {
    const [, call, actor, incarnation, method, args, remaining, abortable, group = '', window = 0, key = 0, lowestKey = 0] = message;
    if (
      typeof actor !== 'number' ||
      typeof method !== 'string' ||
      !Array.isArray(args) ||
      typeof remaining !== 'number' ||
      typeof group !== 'string' ||
      typeof window !== 'number' ||
      typeof key !== 'number'
    ) {
      throw new RuntimeFailure('SINKFLEX_PROTOCOL', 'the peer sent a call that is not well formed');
    }
    const host = this.hosts.get(actor);
    if (host === undefined || host.incarnation !== incarnation) {
      const name = host?.name ?? String(actor);
      letGo(args);
      connection.fail(
        call as number,
        new ActorDiedError(name, { incarnation: Number(incarnation), reason: 'exit', lastStderr: [] }, false),
      );
      return;
    }
    if (key !== 0 && host.answered.repeated(connection, call as number, key, Number(lowestKey))) {
      letGo(args);
      return;
    }
    const expiresAt = remaining > 0 ? performance.now() + remaining : 0;
    const inbound = new InboundCall(host, connection, call as number, method, args, expiresAt, abortable === 1, group);
    if (window > 0) inbound.stream = new OutgoingStream(window);
    if (key !== 0) host.answered.begun(inbound, key);
    host.deliver(inbound);
  }

  // --- refs

  lend(ref: Ref, holder: number): void {
    if (ref.borrowed === undefined) {
      this.loans.lend(ref, holder);
      this.#watch(holder);
    } else if (ref.borrowed.owner !== holder) this.#tell(ref.borrowed.owner, [BORROW, ref.borrowed.id, holder]);
  }

  /** A borrower has passed the ref on. */
  passedOn(id: number, holder: number): void {
    if (!this.loans.has(id)) return;
    this.loans.change(id, holder, 1);
    this.#watch(holder);
  }

  /** That a holder is gone is seen by the end of its connection, so it must have one, also if it never asks for what it was lent. */
  #watch(holder: number): void {
    // Numbers below 0 are no workers.
    if (holder < 0 || this.closed || this.#watching.has(holder) || this.existing(holder) !== undefined) return;
    this.#watching.add(holder);
    const over = (): void => void this.#watching.delete(holder);
    this.connectionTo(holder).then(over, (error: unknown) => {
      over();
      if (this.closed || !this.loans.heldBy(holder)) return;
      // Not to be reached is not gone.
      if ((error as { code?: unknown }).code === 'SINKFLEX_PROTOCOL') setTimeout(() => this.#watch(holder), WATCH_AGAIN_MS).unref();
      else this.forget(holder);
    });
  }

  isLent(id: number): boolean {
    return this.loans.has(id);
  }

  fetch(ref: Ref): void {
    const { owner, id } = ref.borrowed!;
    this.connectionTo(owner).then(
      (connection) => connection.fetch(ref, id),
      (error) =>
        ref.reject(new RuntimeFailure('SINKFLEX_OBJECT_LOST', `worker ${owner}, the owner of the value, is gone`, { cause: error })),
    );
  }

  epoch(owner: number): number {
    return this.#losses.get(owner) ?? 0;
  }

  peek(ref: Ref, settled: () => void): void {
    const { owner, id } = ref.borrowed!;
    // An owner that is gone will not settle it in any other way.
    this.connectionTo(owner).then((connection) => connection.peek(id, settled), settled);
  }

  giveBack(owner: number, id: number, epoch: number): void {
    if (epoch === this.epoch(owner)) this.#tell(owner, [GIVE_BACK, id]);
  }

  #tell(worker: number, message: unknown[]): void {
    if (this.closed) return;
    // An owner that is gone has nothing left to count.
    this.connectionTo(worker).then(
      (connection) => connection.send(message),
      () => {},
    );
  }
}

/** Refs among the arguments of a call that will not fetch them. */
export function letGo(args: readonly unknown[]): void {
  for (const arg of args) if (arg instanceof Ref && arg.borrowed !== undefined) arg.release();
}

registerWireClass(
  'ref',
  Ref,
  (ref) => {
    lent?.push(ref);
    const { borrowed, sharedAt } = ref;
    const name = borrowed === undefined ? [session().worker, session().loans.register(ref, session())] : [borrowed.owner, borrowed.id];
    return sharedAt === undefined ? name : [...name, sharedAt.headerBytes, sharedAt.descriptor];
  },
  (data) => {
    const [owner, id, headerBytes, descriptor] = Array.isArray(data) ? (data as unknown[]) : [];
    if (typeof owner !== 'number' || typeof id !== 'number')
      throw new RuntimeFailure('SINKFLEX_PROTOCOL', 'the peer sent a ref that is none');
    const here = session();
    if (owner === here.worker) {
      const own = here.loans.get(id);
      if (own !== undefined) return own;
    }
    const place = { headerBytes, descriptor };
    return new Ref({
      keeper: here,
      owner,
      id,
      epoch: here.epoch(owner),
      ...(isPlaceOfValue(place) ? { sharedAt: { ...place, descriptor: place.descriptor.slice() } } : {}),
    });
  },
);
