// What has happened in a run: every change of an actor, a worker, a node or a group, newest last, bounded by bytes. What had to make room
// is counted.
import type { EventInfo } from './facts.ts';

const DEFAULT_BYTES = 4 * 2 ** 20;

export class EventLog {
  readonly #limit: number;
  readonly #now: () => number;
  #events: { event: EventInfo; bytes: number }[] = [];
  #head = 0;
  #bytes = 0;
  /** Events that were forgotten. */
  dropped = 0;
  readonly #listeners = new Set<(event: EventInfo) => void>();

  constructor(limitBytes = DEFAULT_BYTES, now: () => number = Date.now) {
    this.#limit = limitBytes;
    this.#now = now;
  }

  add(what: EventInfo['what'], name: string, change: string, details?: Record<string, unknown>): void {
    const event: EventInfo = {
      time: new Date(this.#now()).toISOString(),
      what,
      name,
      change,
      ...(details === undefined ? {} : { details }),
    };
    const bytes = JSON.stringify(event).length;
    this.#events.push({ event, bytes });
    this.#bytes += bytes;
    while (this.#bytes > this.#limit && this.#head < this.#events.length - 1) {
      this.#bytes -= this.#events[this.#head++]!.bytes;
      this.dropped++;
    }
    if (this.#head >= 1024 && this.#head * 2 > this.#events.length) {
      this.#events.splice(0, this.#head);
      this.#head = 0;
    }
    for (const listener of this.#listeners) listener(event);
  }

  /** Oldest first; the last `count`. */
  last(count = Number.POSITIVE_INFINITY): EventInfo[] {
    const from = Math.max(this.#head, this.#events.length - count);
    return this.#events.slice(from).map(({ event }) => event);
  }

  get size(): number {
    return this.#events.length - this.#head;
  }

  listen(listener: (event: EventInfo) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
