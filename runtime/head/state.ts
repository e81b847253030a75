// Everything of the head that survives it: the control plane's state, and what the shell keeps beside it. It changes by records only, and
// the same records make the same state: they are the journal.
import { RuntimeFailure } from '../api/errors.ts';
import {
  type ActorSpec,
  Cluster,
  type ClusterEffect,
  type ClusterEvent,
  type ClusterSnapshot,
  type DeathData,
  type EncodedValue,
  type OwnerId,
  ownerActor,
  type PeerLink,
} from '../control/index.ts';
import { encodeError } from '../wire/index.ts';
import { type ActorRecord, newRecord } from './records.ts';

const NO_ARGS = { header: new Uint8Array(), sections: new Uint8Array() };
/** Of actors that never lived, of names for others, of requests that were carried out: so many are remembered. */
const REMEMBERED = 10_000;
const REMEMBERED_DEAD = 1000;
/** Worker numbers of a node at a time. Actors are numbered in ranges of 2^24 for each worker, so workers end at 2^29. */
const BLOCK = 2 ** 14;
const LAST_WORKER = 2 ** 29 - 1;

export type HeadRecord =
  | {
      r: 'event';
      /** Milliseconds since 1970. */
      at: number;
      event: ClusterEvent;
      /** Of a spawn. */
      spec?: ActorSpec;
      /** Of a death. */
      death?: DeathData;
      /** Of a kill: the request. */
      by?: string;
    }
  | { r: 'checkpoint'; actor: number; state: EncodedValue }
  /** Worker numbers up to here are given out. */
  | { r: 'numbers'; next: number }
  | { r: 'node'; node: string; process: ProcessName }
  | { r: 'driver'; driver: string; process: ProcessName; worker: number }
  /** With all that it owns: one record, so that no crash falls between the two. */
  | { r: 'driver-gone'; driver: string; at: number };

/** A process: pids are used again, start times are not. */
export interface ProcessName {
  pid: number;
  start: string;
  /** It is not of this host: nothing can be said of it by its pid. */
  remote?: boolean;
}

export interface DriverRecord {
  worker: number;
  process: ProcessName;
}

export interface Refused {
  name: string;
  death: DeathData;
}

export class HeadState {
  cluster: Cluster;
  readonly actors = new Map<number, ActorRecord>();
  /** Of actors that were spawned with getIfExists while another lived: that one. */
  readonly aliases = new Map<number, number>();
  readonly refused = new Map<number, Refused>();
  /** Kills that were carried out, `<worker>:<request>`. */
  readonly killsDone = new Set<string>();
  readonly drivers = new Map<string, DriverRecord>();
  /** Processes of the agents. */
  readonly nodes = new Map<string, ProcessName>();
  /** Actors that are not dead. */
  living = 0;
  #nextWorker = 1; // 0 is the driver of a run without a head of its own

  constructor(seed: number) {
    this.cluster = new Cluster({ seed, remember: REMEMBERED_DEAD });
  }

  /** Effects are to be performed when the record is safe, or to be thrown away if it is an old one. */
  apply(record: HeadRecord): ClusterEffect[] {
    switch (record.r) {
      case 'event':
        return this.#event(record);
      case 'checkpoint': {
        const actor = this.actors.get(record.actor);
        if (actor !== undefined) actor.checkpoint = record.state;
        return [];
      }
      case 'numbers':
        this.#nextWorker = record.next;
        return [];
      case 'node':
        this.nodes.set(record.node, record.process);
        return [];
      case 'driver':
        this.drivers.set(record.driver, { worker: record.worker, process: record.process });
        return [];
      case 'driver-gone': {
        const known = this.drivers.get(record.driver);
        if (known === undefined) return [];
        this.drivers.delete(record.driver);
        return this.#advance({ type: 'owner-gone', owner: `driver/${known.worker}` }, record.at);
      }
    }
  }

  #event(record: HeadRecord & { r: 'event' }): ClusterEffect[] {
    const { event, spec, death, by } = record;
    if (event.type === 'spawn' && spec !== undefined) {
      this.actors.set(event.actor, newRecord(spec));
      this.living++;
    }
    if (event.type === 'died' && death !== undefined) {
      const actor = this.actors.get(event.actor);
      if (actor !== undefined) actor.death = death;
    }
    if (event.type === 'node-down') this.nodes.delete(event.node);
    if (by !== undefined) remember(this.killsDone, by);
    return this.#advance(event, record.at);
  }

  #advance(event: ClusterEvent, at: number): ClusterEffect[] {
    const effects = this.cluster.apply(event, at);
    for (const effect of effects) this.#book(effect);
    return effects;
  }

  #book(effect: ClusterEffect): void {
    switch (effect.type) {
      case 'announce':
        this.#announced(effect.actor);
        return;
      case 'exists':
        this.#unborn(effect.actor);
        rememberFor(this.aliases, effect.actor, effect.existing);
        return;
      case 'refused': {
        const record = this.#unborn(effect.actor);
        if (record === undefined) return;
        const { name } = record.spec;
        const text =
          effect.why === 'name'
            ? `an actor named ${name} is alive: names are unique in a run`
            : `the living actor named ${name} is of another definition`;
        const cause = encodeError(new RuntimeFailure('SINKFLEX_NAME_TAKEN', text));
        rememberFor(this.refused, effect.actor, { name, death: { incarnation: 1, reason: 'refused', lastStderr: [], cause } });
        return;
      }
      case 'forget':
        this.actors.delete(effect.actor);
        return;
    }
  }

  /** An actor that comes to nothing. */
  #unborn(actor: number): ActorRecord | undefined {
    const record = this.actors.get(actor);
    if (record === undefined) return undefined;
    this.actors.delete(actor);
    this.living--;
    return record;
  }

  #announced(id: number): void {
    const record = this.actors.get(id);
    const view = this.cluster.actor(id);
    if (record === undefined || view === undefined) return;
    const dead = view.state === 'dead';
    // Ended without a word of its agent: that is gone too, or there never was an incarnation.
    const ended = dead ? view.incarnation : view.incarnation - 1;
    if ((record.death?.incarnation ?? 0) < ended && (dead || ended > 0)) {
      record.death = {
        incarnation: ended,
        reason: dead && !view.failed ? 'killed' : 'lost',
        lastStderr: [],
        ...(view.because === undefined ? {} : { because: view.because }),
      };
    }
    if (!dead || record.dead) return;
    record.dead = true;
    record.checkpoint = undefined;
    record.spec = { ...record.spec, args: NO_ARGS };
    this.living--;
  }

  /** An actor that this head will not have: it never lived. Not written down: it would be refused again. */
  refuse(actor: number, name: string, reason: 'shutdown' | 'refused', error: RuntimeFailure): void {
    rememberFor(this.refused, actor, { name, death: { incarnation: 1, reason, lastStderr: [], cause: encodeError(error) } });
  }

  /** Numbers for workers of one node or driver; the record is to be applied (and journalled). */
  numbers(count = BLOCK): { first: number; last: number; record: HeadRecord } {
    const first = this.#nextWorker;
    const last = first + count - 1;
    if (last > LAST_WORKER)
      throw new RuntimeFailure('SINKFLEX_BAD_OPTION', 'this cluster has used up its numbers for workers: start a new one');
    return { first, last, record: { r: 'numbers', next: last + 1 } };
  }

  snapshot(): unknown {
    return {
      version: 1,
      cluster: this.cluster.snapshot(),
      actors: [...this.actors].map(([, { spec, death, dead, checkpoint }]) => ({ spec, death, dead, checkpoint })),
      aliases: [...this.aliases],
      refused: [...this.refused],
      killsDone: [...this.killsDone],
      drivers: [...this.drivers],
      nodes: [...this.nodes],
      nextWorker: this.#nextWorker,
    };
  }

  /** What a journal holds. */
  static restore(seed: number, snapshot: unknown, records: readonly unknown[]): HeadState {
    const state = new HeadState(seed);
    if (snapshot !== undefined) state.#load(snapshot as Saved);
    for (const record of records) state.apply(record as HeadRecord);
    return state;
  }

  #load(saved: Saved): void {
    if (saved.version !== 1)
      throw new RuntimeFailure('SINKFLEX_JOURNAL_DAMAGED', `the journal is of version ${saved.version}; this program reads 1`);
    this.cluster = Cluster.restore(saved.cluster);
    for (const { spec, ...rest } of saved.actors) {
      this.actors.set(spec.actor, { ...newRecord(spec), ...rest });
      if (!rest.dead) this.living++;
    }
    for (const [actor, existing] of saved.aliases) this.aliases.set(actor, existing);
    for (const [actor, refused] of saved.refused) this.refused.set(actor, refused);
    for (const request of saved.killsDone) this.killsDone.add(request);
    for (const [driver, record] of saved.drivers) this.drivers.set(driver, record);
    for (const [node, process] of saved.nodes) this.nodes.set(node, process);
    this.#nextWorker = saved.nextWorker;
  }
}

interface Saved {
  version: number;
  cluster: ClusterSnapshot;
  actors: { spec: ActorSpec; death: DeathData | undefined; dead: boolean; checkpoint: EncodedValue | undefined }[];
  aliases: [number, number][];
  refused: [number, Refused][];
  killsDone: string[];
  drivers: [string, DriverRecord][];
  nodes: [string, ProcessName][];
  nextWorker: number;
}

function remember(set: Set<string>, value: string): void {
  set.add(value);
  if (set.size > REMEMBERED) set.delete(set.values().next().value!);
}

function rememberFor<T>(map: Map<number, T>, key: number, value: T): void {
  map.set(key, value);
  if (map.size > REMEMBERED) map.delete(map.keys().next().value!);
}

export function processOf({ pid, processStart }: { pid: number; processStart: string }, from: PeerLink): ProcessName {
  return { pid, start: processStart, ...(from.remote === true ? { remote: true } : {}) };
}

/** Living actors that end with that owner: its own, theirs, and so on. */
export function ownedBy(state: HeadState, owner: OwnerId): number[] {
  const owners = new Set<string>([owner]);
  const owned: number[] = [];
  // Owners are numbered before what they own only within a worker, so until nothing is found any more.
  for (let found = -1; found !== owned.length; ) {
    found = owned.length;
    for (const [actor, { spec, dead }] of state.actors) {
      if (dead || spec.owner === undefined || !owners.has(spec.owner) || owners.has(`actor ${actor}`)) continue;
      owned.push(actor);
      owners.add(`actor ${actor}`);
      owners.add(ownerActor(actor, state.cluster.actor(actor)?.incarnation ?? 0));
    }
  }
  return owned;
}
