// Who is connected to the head: agents with their nodes, and drivers. One that loses its connection while its process lives has its time to
// come back; one whose process is gone is gone at once.
import { RuntimeFailure } from '../api/errors.ts';
import type { NodeId, PeerLink } from '../control/index.ts';
import { Questions } from '../node/questions.ts';
import type { AgentQuestion, Question } from '../observe/questions.ts';
import type { HeadState, ProcessName } from './state.ts';
import type { Timers } from './timers.ts';

interface Ends {
  nodeGone(node: NodeId): void;
  driverGone(driver: string): void;
}

/** How often a process that is away is looked for. */
const LOOK_MS = 250;
/** An agent whose process lives may be away for so long; then its node is given up, and what it says is not heard. */
const AGENT_AWAY_MS = 10_000;
/** A driver is a user's script, which may compute for long without a turn of its event loop, and so without a sign of life to another host. */
const DRIVER_AWAY_MS = 60_000;

export class Peers {
  readonly #state: HeadState;
  readonly #runs: (pid: number, start: string) => boolean;
  readonly #timers: Timers;
  readonly #ends: Ends;
  readonly #nodes = new Map<NodeId, PeerLink>();
  readonly #nodeOf = new Map<PeerLink, NodeId>();
  readonly #driverOf = new Map<PeerLink, string>();
  readonly #subscriptions = new Map<PeerLink, Set<number>>();
  /** Those that hear of every change of every actor. */
  readonly watchers = new Set<PeerLink>();
  /** What observers want to know of workers. */
  readonly asked = new Questions();
  /** What actors of a draining node get to move. */
  readonly drainMs = new Map<NodeId, number>();

  constructor(state: HeadState, runs: (pid: number, start: string) => boolean, timers: Timers, ends: Ends) {
    this.#state = state;
    this.#runs = runs;
    this.#timers = timers;
    this.#ends = ends;
  }

  nodeOf(link: PeerLink): NodeId | undefined {
    return this.#nodeOf.get(link);
  }

  driverOf(link: PeerLink): string | undefined {
    return this.#driverOf.get(link);
  }

  toNode(node: NodeId, say: (link: PeerLink) => void): void {
    const link = this.#nodes.get(node);
    // One that is away hears it when it is back: what it should have is compared with what it has.
    if (link !== undefined) say(link);
  }

  nodeLink(node: NodeId): PeerLink | undefined {
    return this.#nodes.get(node);
  }

  /** Drivers that are attached now. */
  *drivers(): IterableIterator<{ worker: number; pid: number; link: PeerLink }> {
    for (const [link, driver] of this.#driverOf) {
      const known = this.#state.drivers.get(driver);
      if (known !== undefined) yield { worker: known.worker, pid: known.process.pid, link };
    }
  }

  driverLink(worker: number): PeerLink | undefined {
    for (const driver of this.drivers()) if (driver.worker === worker) return driver.link;
    return undefined;
  }

  isAttached(driver: string): boolean {
    return [...this.#driverOf.values()].includes(driver);
  }

  /** Asks a worker of a peer, or (-1) an agent itself. Rejects with SINKFLEX_NO_ANSWER. */
  query(link: PeerLink | undefined, worker: number, question: Question | AgentQuestion, timeoutMs: number): Promise<unknown> {
    if (link === undefined) return Promise.reject(new RuntimeFailure('SINKFLEX_NO_ANSWER', `nobody is connected who has worker ${worker}`));
    return this.asked.ask(worker, timeoutMs, (request) => link.send({ t: 'query', worker, request, question, timeoutMs }));
  }

  get links(): Iterable<PeerLink> {
    return new Set([...this.#nodeOf.keys(), ...this.#driverOf.keys()]);
  }

  joined(node: NodeId, link: PeerLink): void {
    const earlier = this.#nodes.get(node);
    if (earlier !== undefined) this.#nodeOf.delete(earlier);
    this.#nodes.set(node, link);
    this.#nodeOf.set(link, node);
    this.#timers.clear(`node ${node}`);
  }

  attached(driver: string, link: PeerLink): void {
    for (const [earlier, known] of this.#driverOf) if (known === driver) this.#driverOf.delete(earlier);
    this.#driverOf.set(link, driver);
    this.#timers.clear(`driver ${driver}`);
  }

  /** An agent says that it ends. */
  leave(link: PeerLink): void {
    const node = this.#nodeOf.get(link);
    if (node === undefined) return;
    this.#nodeOf.delete(link);
    this.#nodes.delete(node);
    this.drainMs.delete(node);
    this.#ends.nodeGone(node);
  }

  /** The head gives it up. Answers how to end its connection; if it is still there it joins anew. */
  drop(node: NodeId): (() => void) | undefined {
    const link = this.#nodes.get(node);
    this.#nodes.delete(node);
    this.drainMs.delete(node);
    this.#timers.clear(`node ${node}`);
    if (link === undefined) return undefined;
    this.#nodeOf.delete(link);
    return () => link.close?.();
  }

  subscribed(link: PeerLink, actor: number): void {
    const known = this.#subscriptions.get(link);
    if (known === undefined) this.#subscriptions.set(link, new Set([actor]));
    else known.add(actor);
  }

  unsubscribed(link: PeerLink, actor: number): void {
    this.#subscriptions.get(link)?.delete(actor);
  }

  /** Answers the actors that it had subscribed to. */
  disconnected(link: PeerLink): Iterable<number> {
    this.watchers.delete(link);
    const node = this.#nodeOf.get(link);
    this.#nodeOf.delete(link);
    if (node !== undefined && this.#nodes.get(node) === link) {
      this.#nodes.delete(node);
      this.#nodeAway(node);
    }
    const driver = this.#driverOf.get(link);
    this.#driverOf.delete(link);
    if (driver !== undefined) this.#driverAway(driver);
    const subscriptions = this.#subscriptions.get(link) ?? new Set<number>();
    this.#subscriptions.delete(link);
    return subscriptions;
  }

  /** Nobody is connected: the head was away itself. */
  allAway(): void {
    for (const { node } of [...this.#state.cluster.nodes()]) this.#nodeAway(node);
    for (const driver of [...this.#state.drivers.keys()]) this.#driverAway(driver);
  }

  #nodeAway(node: NodeId): void {
    this.#wait(`node ${node}`, this.#state.nodes.get(node), AGENT_AWAY_MS, () => this.#ends.nodeGone(node));
  }

  #driverAway(driver: string): void {
    this.#wait(`driver ${driver}`, this.#state.drivers.get(driver)?.process, DRIVER_AWAY_MS, () => this.#ends.driverGone(driver));
  }

  #wait(name: string, process: ProcessName | undefined, leftMs: number, gone: () => void): void {
    const dead = process !== undefined && process.remote !== true && !this.#runs(process.pid, process.start);
    // Not now: whoever is counting links must not find one gone under it.
    if (dead || leftMs <= 0) this.#timers.set(name, 0, gone);
    else this.#timers.set(name, Math.min(LOOK_MS, leftMs), () => this.#wait(name, process, leftMs - LOOK_MS, gone));
  }
}
