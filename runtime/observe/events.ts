// What has happened in a run: every change of an actor, a worker, a node or a group, newest last, bounded by bytes. What had to make room
// is counted.
import type { EventInfo } from './facts.ts';

const DEFAULT_BYTES = 4 * 2 ** 20;

interface Entry {
  /** Epoch milliseconds; becomes text when somebody looks. */
  at: number;
  what: EventInfo['what'];
  name: string;
  change: string;
  details: Record<string, unknown> | undefined;
  bytes: number;
}

export class EventLog {
  readonly #limit: number;
  readonly #now: () => number;
  #entries: Entry[] = [];
  #head = 0;
  #bytes = 0;
  /** Events that were forgotten. */
  dropped = 0;

  constructor(limitBytes = DEFAULT_BYTES, now: () => number = Date.now) {
    this.#limit = limitBytes;
    this.#now = now;
  }

  add(what: EventInfo['what'], name: string, change: string, details?: Record<string, unknown>): void {
    const bytes = sizeOf(name, change, details);
    this.#entries.push({ at: this.#now(), what, name, change, details, bytes });
    this.#bytes += bytes;
    while (this.#bytes > this.#limit && this.#head < this.#entries.length - 1) {
      this.#bytes -= this.#entries[this.#head++]!.bytes;
      this.dropped++;
    }
    if (this.#head >= 1024 && this.#head * 2 > this.#entries.length) {
      this.#entries.splice(0, this.#head);
      this.#head = 0;
    }
  }

  /** Oldest first; the last `count`. */
  last(count = Number.POSITIVE_INFINITY): EventInfo[] {
    const from = Math.max(this.#head, this.#entries.length - count);
    return this.#entries.slice(from).map(({ at, what, name, change, details }) => ({
      time: new Date(at).toISOString(),
      what,
      name,
      change,
      ...(details === undefined ? {} : { details }),
    }));
  }

  get size(): number {
    return this.#entries.length - this.#head;
  }
}

/** About what it takes as text; thousands of actors may change in one turn of the event loop. */
function sizeOf(name: string, change: string, details: Record<string, unknown> | undefined): number {
  let bytes = 100 + name.length + change.length;
  for (const key in details) {
    const value = details[key];
    bytes += key.length + (typeof value === 'string' ? value.length + 6 : 20);
  }
  return bytes;
}
