// The actors that a worker calls. Held while something may still come for them; those that were never called, and those of dead actors, are
// only known for as long as somebody has a handle, so that a program may go through any number of actors.
import type { ActorClient } from './client.ts';

export class Clients {
  readonly #held = new Map<number, ActorClient>();
  readonly #known = new Map<number, WeakRef<ActorClient>>();
  readonly #gone = new FinalizationRegistry<number>((actor) => {
    // A number may have got a new client since.
    if (this.#known.get(actor)?.deref() === undefined) this.#known.delete(actor);
  });

  get(actor: number): ActorClient | undefined {
    return this.#held.get(actor) ?? this.#known.get(actor)?.deref();
  }

  add(client: ActorClient): void {
    this.#known.set(client.id, new WeakRef(client));
    this.#gone.register(client, client.id);
  }

  /** It has asked where its actor is, so it must be there for the answer. */
  hold(client: ActorClient): void {
    this.#held.set(client.id, client);
  }

  /** Its actor is dead. */
  letGo(actor: number): void {
    this.#held.delete(actor);
  }

  held(): Iterable<ActorClient> {
    return this.#held.values();
  }
}
