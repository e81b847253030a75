// The head of a run: carries out what the control plane decides. Knows every actor's specification, tells agents what to start and stop,
// and everyone who calls an actor where it is. Never on the path of a call; runs no user code; owns no process.

import { RuntimeFailure } from '../api/errors.ts';
import type { ActorInfo } from '../api/types.ts';
import {
  type ActorEffect,
  type ActorEvent,
  type ActorSpec,
  type Ask,
  advance,
  born,
  type Found,
  type PeerLink,
  type Step,
  type ToHead,
} from '../control/index.ts';
import { encodeError } from '../wire/index.ts';
import { type ActorRecord, deathOf, infoOf, placeOf, unknownPlace } from './records.ts';

const BACKOFF_MAX_MS = 30_000;
/** What stop() gets at a kill. */
const GRACE_MS = 1000;
const KEPT_DEAD = 1000;
/** A spawn may still be on its way from another worker, whose handle was quicker. */
const EXPECTED_MS = 2000;
const NO_ARGS = { header: new Uint8Array(), sections: new Uint8Array() };

export class Head {
  readonly #actors = new Map<number, ActorRecord>();
  /** Names of actors that are not dead. */
  readonly #names = new Map<string, ActorRecord>();
  /** Oldest first. */
  readonly #dead = new Set<number>();
  readonly #expected = new Map<number, Set<PeerLink>>();
  readonly #listeners = new Set<(info: ActorInfo) => void>();
  #agent: PeerLink | undefined;
  #closing = false;
  #allDead: (() => void) | undefined;

  /** A node that actors can be placed on. */
  join(agent: PeerLink): void {
    this.#agent = agent;
  }

  receive(message: ToHead, from: PeerLink): void {
    switch (message.t) {
      case 'spawn':
        this.#spawn(message.spec);
        from.send({ t: 'spawned', actor: message.spec.actor });
        return;
      case 'resolve': {
        const actor = this.#actors.get(message.actor);
        if (actor === undefined) this.#expect(message.actor, from);
        else {
          actor.subscribers.add(from);
          from.send({ t: 'place', place: placeOf(actor) });
        }
        return;
      }
      case 'kill': {
        const { worker, request } = message;
        const actor = this.#actors.get(message.actor);
        if (actor === undefined || actor.life.status === 'dead') from.send({ t: 'killed', worker, request });
        else {
          actor.killRequests.push({ peer: from, worker, request });
          if (actor.life.intent === undefined)
            actor.stop = { mode: message.drain ? 'drain' : 'kill', graceMs: message.graceMs || GRACE_MS };
          this.#event(actor, { type: 'kill', restart: message.restart });
        }
        return;
      }
      case 'ask': {
        const { worker, request } = message;
        try {
          from.send({ t: 'answer', worker, request, value: this.#answer(message.ask) });
        } catch (error) {
          from.send({ t: 'answer', worker, request, error: encodeError(error) });
        }
        return;
      }
      case 'hosted': {
        const { worker, pid } = message;
        this.#fromHost(message.actor, message.incarnation, from, (actor) => {
          actor.seat = { peer: from, worker, pid, health: actor.seat?.health ?? 'ok' };
        });
        return;
      }
      case 'started':
        this.#fromHost(message.actor, message.incarnation, from, (actor) =>
          this.#event(actor, { type: 'started', incarnation: message.incarnation }),
        );
        return;
      case 'checkpoint':
        this.#fromHost(message.actor, message.incarnation, from, (actor) => {
          actor.checkpoint = message.state;
        });
        return;
      case 'health':
        this.#fromHost(message.actor, message.incarnation, from, (actor) => {
          actor.seat!.health = message.health;
          this.#tellListeners(actor);
        });
        return;
      case 'died':
        this.#fromHost(message.actor, message.incarnation, from, (actor) => {
          const { life } = actor;
          actor.death = deathOf(life.incarnation, message.end, life.intent !== undefined, this.#closing);
          actor.seat = undefined;
          this.#event(actor, { type: 'died', incarnation: life.incarnation });
        });
        return;
    }
  }

  #expect(id: number, from: PeerLink): void {
    const waiting = this.#expected.get(id);
    if (waiting !== undefined) {
      waiting.add(from);
      return;
    }
    const peers = new Set([from]);
    this.#expected.set(id, peers);
    setTimeout(() => {
      if (this.#expected.get(id) !== peers) return;
      this.#expected.delete(id);
      for (const peer of peers) peer.send({ t: 'place', place: unknownPlace(id) });
    }, EXPECTED_MS).unref();
  }

  /** Late words of an incarnation that is over, or of a node that does not host it, are not heard. */
  #fromHost(id: number, incarnation: number, from: PeerLink, act: (actor: ActorRecord) => void): void {
    const actor = this.#actors.get(id);
    if (actor?.life.incarnation === incarnation && actor.seat?.peer === from) act(actor);
  }

  #spawn(spec: ActorSpec): void {
    if (this.#actors.has(spec.actor)) return;
    const step = born({
      maxRestarts: spec.maxRestarts,
      windowMs: spec.restartWindowMs,
      backoffMs: spec.restartBackoffMs,
      backoffMaxMs: BACKOFF_MAX_MS,
    });
    const actor: ActorRecord = {
      spec,
      life: step.life,
      seat: undefined,
      death: undefined,
      subscribers: this.#expected.get(spec.actor) ?? new Set(),
      killRequests: [],
      timer: undefined,
      stop: { mode: 'kill', graceMs: GRACE_MS },
      checkpoint: undefined,
    };
    this.#expected.delete(spec.actor);
    this.#actors.set(spec.actor, actor);
    this.#names.set(spec.name, actor);
    if (this.#closing) {
      actor.death = { incarnation: 1, reason: 'shutdown', lastStderr: [] };
      const now = Date.now();
      const killed = advance(step.life, { type: 'kill', restart: false }, now).life;
      actor.life = advance(killed, { type: 'died', incarnation: 1 }, now).life;
      this.#announce(actor);
      return;
    }
    this.#apply(actor, step);
  }

  #answer(ask: Ask): Found {
    const actor = this.#names.get(ask.name);
    if (actor === undefined) throw new RuntimeFailure('SINKFLEX_UNKNOWN_ACTOR', `no living actor is named ${ask.name}`);
    const { name, kind, methods, streams } = actor.spec;
    return { actor: actor.spec.actor, name, kind, methods, streams };
  }

  // --- running the state machine

  #event(actor: ActorRecord, event: ActorEvent): void {
    this.#apply(actor, advance(actor.life, event, Date.now()));
  }

  #apply(actor: ActorRecord, step: Step): void {
    actor.life = step.life;
    for (const effect of step.effects) this.#perform(actor, effect);
    const { status } = actor.life;
    if (actor.killRequests.length > 0 && (status === 'dead' || status === 'alive')) {
      for (const { peer, worker, request } of actor.killRequests.splice(0)) peer.send({ t: 'killed', worker, request });
    }
    if (this.#dead.size === this.#actors.size) this.#allDead?.();
  }

  #perform(actor: ActorRecord, effect: ActorEffect): void {
    const { spec } = actor;
    switch (effect.type) {
      case 'announce':
        this.#announce(actor);
        return;
      case 'start':
        clearTimeout(actor.timer);
        actor.seat = { peer: this.#agent!, worker: -1, pid: undefined, health: 'ok' };
        this.#agent!.send({
          t: 'start',
          spec,
          incarnation: effect.incarnation,
          ...(actor.checkpoint === undefined ? {} : { checkpoint: actor.checkpoint }),
        });
        return;
      case 'wait':
        clearTimeout(actor.timer);
        actor.timer = setTimeout(() => this.#event(actor, { type: 'backoff-elapsed', incarnation: effect.incarnation }), effect.delayMs);
        return;
      case 'terminate':
        actor.seat?.peer.send({ t: 'stop', actor: spec.actor, incarnation: effect.incarnation, ...actor.stop });
        return;
    }
  }

  #announce(actor: ActorRecord): void {
    const place = placeOf(actor);
    for (const subscriber of actor.subscribers) subscriber.send({ t: 'place', place });
    if (actor.life.status === 'dead') this.#retire(actor);
    this.#tellListeners(actor);
  }

  #tellListeners(actor: ActorRecord): void {
    if (this.#listeners.size === 0) return;
    const info = infoOf(actor);
    for (const listener of [...this.#listeners]) listener(info);
  }

  /** The dead are remembered for a while, without what they needed to live. */
  #retire(actor: ActorRecord): void {
    clearTimeout(actor.timer);
    actor.spec = { ...actor.spec, args: NO_ARGS };
    actor.checkpoint = undefined;
    actor.subscribers.clear();
    if (this.#names.get(actor.spec.name) === actor) this.#names.delete(actor.spec.name);
    this.#dead.add(actor.spec.actor);
    while (this.#dead.size > KEPT_DEAD) {
      const oldest = this.#dead.values().next().value!;
      this.#dead.delete(oldest);
      this.#actors.delete(oldest);
    }
  }

  // --- what the driver sees

  list(): ActorInfo[] {
    return [...this.#actors.values()].map(infoOf);
  }

  nameTaken(name: string): boolean {
    return this.#names.has(name);
  }

  onActorChange(listener: (info: ActorInfo) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Ends every actor: stop() hooks get the time. Resolves when all are dead, or the time is up. */
  async close(timeoutMs: number, graceMs: number): Promise<void> {
    this.#closing = true;
    for (const actor of [...this.#actors.values()]) {
      actor.stop = { mode: 'shutdown', graceMs };
      this.#event(actor, { type: 'kill', restart: false });
    }
    if (this.#dead.size === this.#actors.size) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, timeoutMs);
      this.#allDead = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#allDead = undefined;
  }
}
