// The head of a run: carries out what the control plane decides. Tells agents what to start and stop, and everyone who calls an actor
// where it is. Never on the path of a call; runs no user code; owns no process. What it says, it has written down first, if it has a journal.
import type { ActorInfo } from '../api/types.ts';
import {
  type Clock,
  type ClusterEffect,
  type ClusterEvent,
  deadline,
  type Join,
  type NodeId,
  type PeerLink,
  systemClock,
  type TerminateReason,
  type ToHead,
} from '../control/index.ts';
import { Actors } from './actors.ts';
import type { JobDesk } from './jobs.ts';
import type { RecordLog } from './journal.ts';
import { Peers } from './peers.ts';
import { Pulse, type PulseOptions } from './pulse.ts';
import { Questions } from './questions.ts';
import type { ActorRecord } from './records.ts';
import { Routes } from './routes.ts';
import { type HeadRecord, HeadState, ownedBy, processOf } from './state.ts';
import { Timers } from './timers.ts';

/** What an actor of a draining node gets, if the node did not say. */
const DRAIN_MS = 30_000;

export interface HeadOptions extends PulseOptions {
  seed: number;
  /** A process of its own: detached actors can live here. */
  lasting: boolean;
  journal?: RecordLog;
  /** From the journal. */
  state?: HeadState;
  /** Whether that process (of this host) still runs. */
  runs?: (pid: number, start: string) => boolean;
  jobs?: JobDesk;
  clock?: Clock;
}

/** A node or a placement group has become something else. */
export type OnClusterChange = (what: 'node' | 'group', name: string, change: string, details?: Record<string, unknown>) => void;

export class Head {
  readonly state: HeadState;
  readonly peers: Peers;
  readonly #options: HeadOptions;
  readonly #journal: RecordLog | undefined;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly #questions: Questions;
  readonly #pulse: Pulse;
  readonly actors = new Actors(this);
  readonly routes = new Routes((link, message) => this.send(link, message));
  readonly #changeListeners = new Set<OnClusterChange>();
  closing = false;
  readonly #inbox: { message: ToHead; from: PeerLink }[] = [];
  #busy = false;

  constructor(options: HeadOptions) {
    this.#options = options;
    this.clock = options.clock ?? systemClock;
    this.timers = new Timers(this.clock);
    this.#journal = options.journal;
    this.state = options.state ?? new HeadState(options.seed);
    if (this.#journal !== undefined) this.#journal.makeSnapshot = () => this.state.snapshot();
    this.peers = new Peers(this.state, options.runs ?? (() => true), this.timers, {
      nodeGone: (node) => this.#event({ type: 'node-down', node }),
      driverGone: (driver) => this.driverGone(driver),
    });
    this.#questions = new Questions(this, options.jobs);
    this.#pulse = new Pulse(this, options);
    if (options.state !== undefined) this.#resume();
  }

  /** After a restart: what was under way goes on; nodes and drivers have their time to come back. */
  #resume(): void {
    for (const effect of this.state.cluster.outstanding()) {
      if (effect.type === 'wait' || effect.type === 'wait-group') this.#perform(effect);
    }
    this.peers.allAway();
  }

  /** Said when everything before it is on disk. */
  send(link: PeerLink, message: Parameters<PeerLink['send']>[0]): void {
    if (this.#journal === undefined) link.send(message);
    else this.#journal.whenDurable(() => link.send(message));
  }

  /** One after the other, also when what one leads to is answered at once. */
  receive(message: ToHead, from: PeerLink): void {
    this.#inbox.push({ message, from });
    if (this.#busy) return;
    this.#busy = true;
    try {
      for (let next = this.#inbox.shift(); next !== undefined; next = this.#inbox.shift()) this.#handle(next.message, next.from);
    } finally {
      this.#busy = false;
    }
  }

  #handle(message: ToHead, from: PeerLink): void {
    switch (message.t) {
      case 'join':
        this.#join(message, from);
        return;
      case 'attach':
        this.#attach(message, from);
        return;
      case 'numbers':
        this.#giveNumbers(from);
        return;
      case 'watch':
        this.peers.watchers.add(from);
        for (const info of this.actors.list()) this.send(from, { t: 'info', info });
        return;
      case 'spawn':
        this.actors.spawn(message.spec, from);
        this.send(from, { t: 'spawned', actor: message.spec.actor });
        return;
      case 'resolve':
        this.actors.resolve(message.actor, from);
        return;
      case 'kill':
        this.actors.kill(message, from);
        return;
      case 'ask':
        this.#questions.ask(message, from);
        return;
      case 'hosted':
        this.actors.hosted(message, from);
        return;
      case 'started':
        if (this.actors.hears(message.actor, message.incarnation, from)) this.#event({ ...message, type: 'started' });
        return;
      case 'checkpoint':
        if (this.actors.hears(message.actor, message.incarnation, from))
          this.record({ r: 'checkpoint', actor: message.actor, state: message.state });
        return;
      case 'died':
        this.actors.died(message, this.peers.nodeOf(from));
        this.send(from, { t: 'heard', actor: message.actor, incarnation: message.incarnation });
        return;
      case 'health': {
        const record = this.state.actors.get(message.actor);
        if (record?.seat?.incarnation !== message.incarnation || record.seat.health === message.health) return;
        record.seat.health = message.health;
        this.actors.tellWatchers(message.actor, record);
        return;
      }
      case 'prepared': {
        const node = this.peers.nodeOf(from);
        const { group, attempt, ok } = message;
        if (node !== undefined) this.#event({ type: 'prepared', group, attempt, node, ok });
        return;
      }
      case 'draining': {
        const node = this.peers.nodeOf(from);
        if (node === undefined) return;
        this.peers.drainMs.set(node, message.graceMs);
        this.#event({ type: 'node-drain', node });
        return;
      }
      case 'reply':
        this.peers.asked.reply(message, message.worker);
        return;
      case 'beat':
        this.#pulse.beat(message);
        return;
      case 'leaving':
        this.peers.leave(from);
        return;
    }
  }

  // --- peers

  #giveNumbers(to: PeerLink): void {
    const { first, last, record } = this.state.numbers();
    this.record(record);
    this.routes.gave(to, first, last);
    this.send(to, { t: 'numbers', first, last });
  }

  #join(message: Join, from: PeerLink): void {
    const { node, total, labels, hosted, ended, bundles } = message;
    this.routes.joined(`node ${node}`, from, message.host);
    if (message.needsNumbers) this.#giveNumbers(from);
    const process = processOf(message, from);
    if (this.state.nodes.get(node)?.start !== process.start) this.record({ r: 'node', node, process });
    this.peers.joined(node, from);
    for (const died of ended) {
      this.actors.died(died, node);
      this.send(from, { t: 'heard', actor: died.actor, incarnation: died.incarnation });
    }
    const actors = hosted.map(({ actor, incarnation, started }) => ({ actor, incarnation, started }));
    // Places first: whoever hears that an actor is alive wants to know where.
    for (const each of hosted) this.actors.seat(each, node);
    this.#event({ type: 'node-up', node, total, labels, running: { actors, bundles } });
    for (const { actor } of hosted) {
      const record = this.state.actors.get(actor);
      if (record !== undefined) this.actors.announce(actor, record);
    }
  }

  #attach(message: ToHead & { t: 'attach' }, from: PeerLink): void {
    const { driver } = message;
    let known = this.state.drivers.get(driver);
    if (known === undefined) {
      const { first, record } = this.state.numbers(1);
      this.record(record);
      known = { worker: first, process: processOf(message, from) };
      this.record({ r: 'driver', driver, ...known });
    }
    this.peers.attached(driver, from);
    this.routes.joined(`driver ${driver}`, from, message.host);
    this.routes.gave(from, known.worker, known.worker);
    this.send(from, { t: 'attached', worker: known.worker });
  }

  /** With all that it owned. */
  driverGone(driver: string): void {
    const known = this.state.drivers.get(driver);
    if (known === undefined) return;
    this.routes.gone(`driver ${driver}`);
    this.record({ r: 'driver-gone', driver, at: this.clock.now() });
  }

  /** The connection ended; `closed`: by the other end, without a word. */
  disconnected(link: PeerLink, closed = false): void {
    this.#pulse.disconnected(link, closed);
    this.actors.disconnected(link, this.peers.disconnected(link));
    this.#questions.disconnected(link);
  }

  // --- carrying out

  /** An event that needs no record of its own beside it. */
  #event(event: ClusterEvent): void {
    this.record({ r: 'event', at: this.clock.now(), event });
  }

  apply(event: ClusterEvent): void {
    this.#event(event);
  }

  record(record: HeadRecord): void {
    const effects = this.state.apply(record);
    this.#journal?.append(record);
    for (const effect of effects) this.#perform(effect);
    if (record.r === 'event' && 'node' in record.event && record.event.type.startsWith('node-')) {
      const { type, node } = record.event;
      if (type === 'node-down') this.#pulse.gone(node);
      this.#changed('node', node, type.slice('node-'.length), 'because' in record.event ? { because: record.event.because } : undefined);
    }
  }

  #changed(...change: Parameters<OnClusterChange>): void {
    for (const listener of this.#changeListeners) listener(...change);
  }

  #perform(effect: ClusterEffect): void {
    switch (effect.type) {
      case 'start': {
        const { actor, incarnation, gpus, node } = effect;
        const record = this.state.actors.get(actor);
        if (record === undefined) return;
        const { spec, checkpoint } = record;
        const saved = checkpoint === undefined ? {} : { checkpoint };
        this.peers.toNode(node, (link) => this.send(link, { t: 'start', spec, incarnation, gpus, ...saved }));
        return;
      }
      case 'terminate': {
        const { actor, incarnation, node, why } = effect;
        const how = this.#howToStop(actor, node, why);
        this.peers.toNode(node, (link) => this.send(link, { t: 'stop', actor, incarnation, ...how }));
        return;
      }
      case 'wait':
        this.timers.set(`actor ${effect.actor}`, effect.delayMs, () =>
          this.#event({ type: 'backoff-elapsed', actor: effect.actor, incarnation: effect.incarnation }),
        );
        return;
      case 'wait-group':
        this.timers.set(`group ${effect.group}`, effect.delayMs, () =>
          this.#event({ type: 'group-retry', group: effect.group, attempt: effect.attempt }),
        );
        return;
      case 'announce': {
        const record = this.state.actors.get(effect.actor);
        if (record !== undefined) this.actors.announce(effect.actor, record);
        return;
      }
      case 'prepare': {
        const { group, attempt, node, bundles } = effect;
        this.peers.toNode(node, (link) => this.send(link, { t: 'prepare', group, attempt, bundles }));
        return;
      }
      case 'commit':
      case 'release': {
        const { group, attempt, node, bundles } = effect;
        this.peers.toNode(node, (link) => this.send(link, { t: effect.type, group, attempt, bundles }));
        return;
      }
      case 'announce-group': {
        this.#questions.changed(effect);
        const { group, state, because } = effect;
        const name = this.state.cluster.group(group)?.name ?? group;
        this.#changed('group', name, state, because === undefined ? undefined : { because });
        return;
      }
      case 'leased':
      case 'lease-lost':
        this.#questions.changed(effect);
        return;
      case 'forget':
        this.timers.clear(`actor ${effect.actor}`);
        return;
    }
  }

  #howToStop(actor: number, node: NodeId, why: TerminateReason): ActorRecord['stop'] {
    if (why === 'stale') return { mode: 'kill', graceMs: 0 };
    if (why === 'drain') return { mode: 'drain', graceMs: this.peers.drainMs.get(node) ?? DRAIN_MS };
    return this.state.actors.get(actor)?.stop ?? { mode: 'kill', graceMs: 0 };
  }

  // --- what a driver in this process sees

  nameTaken(name: string): boolean {
    const holder = this.state.cluster.named(name);
    // One that is being killed makes room for the next of its name.
    return holder !== undefined && this.state.cluster.actor(holder)?.state !== 'stopping';
  }

  /** Calls back at every change of a node or a placement group. */
  onClusterChange(listener: OnClusterChange): () => void {
    this.#changeListeners.add(listener);
    return () => this.#changeListeners.delete(listener);
  }

  list(): ActorInfo[] {
    return this.actors.list();
  }

  onActorChange(listener: (info: ActorInfo) => void): () => void {
    return this.actors.onChange(listener);
  }

  /** Ends every actor: stop() hooks get the time. Resolves when all are dead, or the time is up. Nothing is spawned any more. */
  async close(timeoutMs: number, graceMs: number): Promise<void> {
    this.closing = true;
    const all = [...this.state.actors.keys()];
    for (const actor of all) {
      const record = this.state.actors.get(actor);
      if (record === undefined || record.dead) continue;
      record.stop = { mode: 'shutdown', graceMs };
      this.#event({ type: 'kill', actor, restart: false });
    }
    await this.#atMost(timeoutMs, this.actors.allDead(all));
  }

  get lasting(): boolean {
    return this.#options.lasting;
  }

  /** A driver goes in order: its actors end (and theirs), and then it is forgotten. Resolves when they have, or the time is up. */
  async leave(driver: string, timeoutMs: number): Promise<void> {
    const worker = this.state.drivers.get(driver)?.worker;
    if (worker === undefined) return;
    const ended = this.actors.allDead(ownedBy(this.state, `driver/${worker}`));
    this.driverGone(driver);
    await this.#atMost(timeoutMs, ended);
  }

  async #atMost(ms: number, event: Promise<void>): Promise<void> {
    const { over, clear } = deadline(this.clock, ms);
    await Promise.race([event, over]);
    clear();
  }

  /** The end of the cluster: agents and drivers are told. Resolves when they have gone, or the time is up. */
  async shutdownPeers(timeoutMs: number): Promise<void> {
    for (const link of this.peers.links) this.send(link, { t: 'shutdown' });
    const end = this.clock.now() + timeoutMs;
    while ([...this.peers.links].length > 0 && this.clock.now() < end) await deadline(this.clock, 10).over;
  }

  /** After close: nothing of it is left waiting. */
  stop(): void {
    this.timers.clearAll();
    this.actors.stop();
  }
}
