// What a driver knows of all actors of a head in another process: the head says every change.
import type { ActorInfo } from './types.ts';

const KEPT_DEAD = 1000;

export class ActorMirror {
  readonly #actors = new Map<number, ActorInfo>();
  readonly #dead = new Set<number>();
  readonly #listeners = new Set<(info: ActorInfo) => void>();

  changed(info: ActorInfo): void {
    this.#actors.set(info.id, info);
    if (info.state === 'dead') this.#dead.add(info.id);
    if (this.#dead.size > KEPT_DEAD) {
      const oldest = this.#dead.values().next().value!;
      this.#dead.delete(oldest);
      this.#actors.delete(oldest);
    }
    for (const listener of [...this.#listeners]) listener(info);
  }

  list(): ActorInfo[] {
    return [...this.#actors.values()];
  }

  onChange(listener: (info: ActorInfo) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
