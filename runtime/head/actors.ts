// The actors of a head as its peers know them: who spawned, watches and kills them, where they run, how they ended.
import { RuntimeFailure } from '../api/errors.ts';
import type { ActorInfo } from '../api/types.ts';
import type { ActorSpec, DeathData, Died, Hosted, NodeId, PeerLink, ToHead } from '../control/index.ts';
import type { Head } from './head.ts';
import { isHopeless } from './hopeless.ts';
import { noHead } from './questions.ts';
import { type ActorRecord, deathOf, infoOf, placeOf, refusedPlace, unknownPlace } from './records.ts';

const BACKOFF_MAX_MS = 30_000;
/** A spawn may still be on its way from another worker, whose handle was quicker. */
const EXPECTED_MS = 2000;

export class Actors {
  readonly #head: Head;
  /** Asked for before they were spawned. */
  readonly #expected = new Map<number, Set<PeerLink>>();
  readonly #listeners = new Set<(info: ActorInfo) => void>();
  /** Told at every death. */
  readonly #onDeath = new Set<(actor: number) => void>();

  constructor(head: Head) {
    this.#head = head;
  }

  spawn(spec: ActorSpec, from: PeerLink): void {
    const { actor, name, request, lifetime } = spec;
    const { state } = this.#head;
    if (state.actors.has(actor) || state.aliases.has(actor) || state.refused.has(actor)) return;
    const near = this.#head.peers.nodeOf(from);
    const refusal = this.#head.closing ? 'shutdown' : lifetime === 'detached' && !this.#head.lasting ? 'refused' : undefined;
    if (refusal !== undefined) {
      state.refuse(actor, name, refusal, refusal === 'refused' ? noHead() : new RuntimeFailure('SINKFLEX_SHUT_DOWN', 'the run is ending'));
      this.#settleExpected(actor);
      return;
    }
    this.#head.record({
      r: 'event',
      at: this.#head.clock.now(),
      spec,
      event: {
        type: 'spawn',
        actor,
        name,
        definition: spec.definition,
        request,
        policy: {
          maxRestarts: spec.maxRestarts,
          windowMs: spec.restartWindowMs,
          backoffMs: spec.restartBackoffMs,
          backoffMaxMs: BACKOFF_MAX_MS,
        },
        lifetime,
        ...(spec.owner === undefined ? {} : { owner: spec.owner }),
        ...(near === undefined ? {} : { near }),
        getIfExists: spec.getIfExists,
      },
    });
    this.#settleExpected(actor);
  }

  #settleExpected(actor: number): void {
    const waiting = this.#expected.get(actor);
    if (waiting === undefined) return;
    this.#expected.delete(actor);
    for (const link of waiting) this.resolve(actor, link);
  }

  resolve(actor: number, link: PeerLink): void {
    const { state } = this.#head;
    const refused = state.refused.get(actor);
    if (refused !== undefined) {
      this.#head.send(link, { t: 'place', place: refusedPlace(actor, refused.name, refused.death) });
      return;
    }
    const real = state.aliases.get(actor) ?? actor;
    const record = state.actors.get(real);
    const view = state.cluster.actor(real);
    if (record === undefined || view === undefined) {
      this.#expect(actor, link);
      return;
    }
    record.subscribers.add(link);
    this.#head.peers.subscribed(link, real);
    const place = placeOf(record, view);
    if (place !== undefined) this.#head.send(link, { t: 'place', place: real === actor ? place : { ...place, actor, target: real } });
  }

  #expect(id: number, link: PeerLink): void {
    const waiting = this.#expected.get(id);
    if (waiting !== undefined) {
      waiting.add(link);
      return;
    }
    const links = new Set([link]);
    this.#expected.set(id, links);
    this.#head.timers.set(
      `expected ${id}`,
      EXPECTED_MS,
      () => {
        if (this.#expected.get(id) !== links) return;
        this.#expected.delete(id);
        for (const each of links) this.#head.send(each, { t: 'place', place: unknownPlace(id) });
      },
      true,
    );
  }

  kill(message: ToHead & { t: 'kill' }, from: PeerLink): void {
    const { worker, request, restart, drain, graceMs } = message;
    const actor = this.#head.state.aliases.get(message.actor) ?? message.actor;
    const record = this.#head.state.actors.get(actor);
    if (record === undefined || record.dead) {
      this.#head.send(from, { t: 'killed', worker, request });
      return;
    }
    record.kills.push({ link: from, worker, request });
    if (this.#head.state.cluster.actor(actor)?.state !== 'stopping')
      record.stop = { mode: drain ? 'drain' : 'kill', graceMs: graceMs || record.stop.graceMs };
    const by = `${worker}:${request}`;
    if (!this.#head.state.killsDone.has(by))
      this.#head.record({ r: 'event', at: this.#head.clock.now(), by, event: { type: 'kill', actor, restart } });
    this.#answerKills(actor, record);
  }

  #answerKills(actor: number, record: ActorRecord): void {
    if (record.kills.length === 0) return;
    const state = this.#head.state.cluster.actor(actor)?.state;
    if (state === 'alive' && record.seat === undefined) return;
    if (state !== undefined && state !== 'dead' && state !== 'alive') return;
    for (const { link, worker, request } of record.kills.splice(0)) this.#head.send(link, { t: 'killed', worker, request });
  }

  /** Late words of an incarnation that is over, or of a node that does not host it, are not heard. */
  hears(actor: number, incarnation: number, from: PeerLink): boolean {
    const view = this.#head.state.cluster.actor(actor);
    return view?.incarnation === incarnation && view.node !== undefined && view.node === this.#head.peers.nodeOf(from);
  }

  hosted(message: Hosted, from: PeerLink): void {
    if (this.hears(message.actor, message.incarnation, from)) this.seat(message, this.#head.peers.nodeOf(from));
  }

  seat({ actor, incarnation, worker, pid }: Hosted, node: NodeId | undefined): void {
    const record = this.#head.state.actors.get(actor);
    const view = this.#head.state.cluster.actor(actor);
    if (record === undefined || view?.incarnation !== incarnation || view.node !== node) return;
    const health = record.seat?.incarnation === incarnation ? record.seat.health : 'ok';
    record.seat = { incarnation, worker, pid, health };
  }

  died({ actor, incarnation, end }: Died, node: NodeId | undefined): void {
    const record = this.#head.state.actors.get(actor);
    const view = this.#head.state.cluster.actor(actor);
    if (record === undefined || view === undefined || record.dead || view.incarnation !== incarnation || view.node !== node) return;
    const death: DeathData = deathOf(incarnation, end, view.state === 'stopping', this.#head.closing, view.because);
    record.seat = undefined;
    const hopeless = isHopeless(record.death, death);
    if (hopeless) death.because = 'the same mistake twice in a row, which no restart mends';
    const event = { type: 'died', actor, incarnation, ...(hopeless ? { hopeless } : {}) } as const;
    this.#head.record({ r: 'event', at: this.#head.clock.now(), death, event });
  }

  announce(actor: number, record: ActorRecord): void {
    const view = this.#head.state.cluster.actor(actor);
    if (view === undefined) return;
    if (record.subscribers.size > 0) {
      const place = placeOf(record, view);
      if (place !== undefined) for (const link of record.subscribers) this.#head.send(link, { t: 'place', place });
    }
    this.#answerKills(actor, record);
    if (this.#listeners.size > 0 || this.#head.peers.watchers.size > 0) this.tellWatchers(actor, record);
    if (!record.dead) return;
    this.#head.timers.clear(`actor ${actor}`);
    record.seat = undefined;
    for (const link of record.subscribers) this.#head.peers.unsubscribed(link, actor);
    record.subscribers.clear();
    for (const listener of [...this.#onDeath]) listener(actor);
  }

  tellWatchers(actor: number, record: ActorRecord): void {
    const view = this.#head.state.cluster.actor(actor);
    if (view === undefined) return;
    const info = infoOf(record, view);
    for (const listener of [...this.#listeners]) listener(info);
    for (const link of this.#head.peers.watchers) this.#head.send(link, { t: 'info', info });
  }

  list(): ActorInfo[] {
    const infos: ActorInfo[] = [];
    for (const view of this.#head.state.cluster.actors()) {
      const record = this.#head.state.actors.get(view.actor);
      if (record !== undefined) infos.push(infoOf(record, view));
    }
    return infos;
  }

  onChange(listener: (info: ActorInfo) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Resolves when none of them lives. */
  async allDead(actors: Iterable<number>): Promise<void> {
    const left = new Set<number>();
    for (const actor of actors) if (this.#head.state.actors.get(actor)?.dead === false) left.add(actor);
    if (left.size === 0) return;
    await new Promise<void>((resolve) => {
      const listener = (actor: number): void => {
        left.delete(actor);
        if (left.size > 0) return;
        this.#onDeath.delete(listener);
        resolve();
      };
      this.#onDeath.add(listener);
    });
  }

  /** The connection ended: nobody is there to be told. */
  disconnected(link: PeerLink, subscriptions: Iterable<number>): void {
    for (const id of subscriptions) this.#head.state.actors.get(id)?.subscribers.delete(link);
    for (const waiting of this.#expected.values()) waiting.delete(link);
  }

  stop(): void {
    this.#listeners.clear();
  }
}
