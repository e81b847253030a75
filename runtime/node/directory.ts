// What the workers of one place (a node, or a driver) want of the head: where actors are, spawns, kills, questions. One subscription an
// actor, however many workers ask; what the head has not answered is said again when it was away.
import type { FromAgent, HeadLink, Place, ToAgent, ToHead, ToWorkers } from '../control/index.ts';

/** A worker that asks. */
export interface Subscriber {
  readonly worker: number;
  send(message: FromAgent): void;
}

interface Watched {
  place: Place | undefined;
  readonly subscribers: Set<Subscriber>;
}

type Wanted = Extract<ToAgent, { t: 'spawn' | 'resolve' | 'kill' | 'ask' }>;

export class Directory {
  readonly #head: HeadLink;
  readonly #watched = new Map<number, Watched>();
  /** Worker -> who it is, and the actors that it watches. */
  readonly #workers = new Map<number, { subscriber: Subscriber; watches: Set<Watched> }>();
  /** Actor -> those that it answers for. */
  readonly #aliases = new Map<number, Set<number>>();
  /** Spawns that the head has not acknowledged, and requests that it has not answered. */
  readonly #open = new Map<string, ToHead>();

  constructor(head: HeadLink) {
    this.#head = head;
  }

  receive(message: Wanted, from: Subscriber): void {
    const { worker } = from;
    switch (message.t) {
      case 'spawn': {
        const { actor } = message.spec;
        this.#ask(`spawn ${actor}`, { t: 'spawn', spec: message.spec });
        if (message.watch) this.#watch(actor, from);
        return;
      }
      case 'resolve':
        this.#watch(message.actor, from);
        return;
      case 'kill':
        this.#known(from);
        this.#ask(`${worker} ${message.request}`, { ...message, worker });
        return;
      case 'ask':
        this.#known(from);
        this.#ask(`${worker} ${message.request}`, { ...message, worker });
        return;
    }
  }

  #ask(key: string, message: ToHead): void {
    this.#open.set(key, message);
    this.#head.send(message);
  }

  #known(subscriber: Subscriber): { watches: Set<Watched> } {
    let known = this.#workers.get(subscriber.worker);
    if (known === undefined) {
      known = { subscriber, watches: new Set() };
      this.#workers.set(subscriber.worker, known);
    }
    return known;
  }

  #watch(actor: number, from: Subscriber): void {
    let watched = this.#watched.get(actor);
    const fresh = watched === undefined;
    if (watched === undefined) {
      watched = { place: undefined, subscribers: new Set() };
      this.#watched.set(actor, watched);
    }
    watched.subscribers.add(from);
    this.#known(from).watches.add(watched);
    if (fresh) this.#head.send({ t: 'resolve', actor });
    else if (watched.place !== undefined) from.send({ t: 'place', place: watched.place });
  }

  onHead(message: ToWorkers): void {
    switch (message.t) {
      case 'spawned':
        this.#open.delete(`spawn ${message.actor}`);
        return;
      case 'place':
        this.#placed(message.place);
        return;
      case 'killed':
      case 'answer': {
        const { worker, ...rest } = message;
        if (this.#open.delete(`${worker} ${message.request}`)) this.#workers.get(worker)?.subscriber.send(rest);
        return;
      }
    }
  }

  #placed(place: Place): void {
    const { actor, target } = place;
    if (target !== undefined) {
      // Another actor answers for this one: whatever becomes of that, becomes of this.
      const others = this.#aliases.get(target);
      if (others === undefined) this.#aliases.set(target, new Set([actor]));
      else others.add(actor);
    }
    this.#deliver(place);
    const others = this.#aliases.get(actor);
    if (others === undefined) return;
    for (const other of others) this.#deliver({ ...place, actor: other, target: actor });
    if (place.status === 'dead') this.#aliases.delete(actor);
  }

  #deliver(place: Place): void {
    const watched = this.#watched.get(place.actor);
    if (watched === undefined) return;
    watched.place = place;
    for (const subscriber of watched.subscribers) subscriber.send({ t: 'place', place });
    if (place.status === 'dead') this.#forget(place.actor, watched);
  }

  /** Nothing more happens to the dead: whoever asks again, asks the head. */
  #forget(actor: number, watched: Watched): void {
    this.#watched.delete(actor);
    for (const { worker } of watched.subscribers) this.#workers.get(worker)?.watches.delete(watched);
  }

  /** The worker is gone: nobody is there to be told. */
  gone(worker: number): void {
    const known = this.#workers.get(worker);
    if (known === undefined) return;
    this.#workers.delete(worker);
    for (const watched of known.watches) watched.subscribers.delete(known.subscriber);
  }

  /** The head was away: it is asked everything again that it has not answered, and where the watched actors are. */
  again(): void {
    for (const message of this.#open.values()) this.#head.send(message);
    for (const actor of this.#watched.keys()) this.#head.send({ t: 'resolve', actor });
  }
}
