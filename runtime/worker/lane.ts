// One concurrency group of an actor: how many of its calls may be under way at once, and those that wait, in order of arrival.
import type { InboundCall } from './inbound-call.ts';

/** Taken calls are dropped from the front of the array in steps of at least so many. */
const COMPACT_AT = 1024;

export class Lane {
  readonly name: string;
  readonly maxConcurrency: number;
  running = 0;
  /** Made when the first call has to wait: most actors of many are idle. */
  #queue: InboundCall[] | undefined;
  #head = 0;

  constructor(name: string, maxConcurrency: number) {
    this.name = name;
    this.maxConcurrency = maxConcurrency;
  }

  get waiting(): number {
    return this.#queue === undefined ? 0 : this.#queue.length - this.#head;
  }

  push(call: InboundCall): void {
    if (this.#queue === undefined) this.#queue = [call];
    else this.#queue.push(call);
  }

  /** The next call, if there is one and it may start. */
  take(): InboundCall | undefined {
    const queue = this.#queue;
    if (queue === undefined || this.running >= this.maxConcurrency) return undefined;
    const call = queue[this.#head]!;
    this.#head++;
    if (this.#head === queue.length) {
      this.#queue = undefined;
      this.#head = 0;
    } else if (this.#head >= COMPACT_AT && this.#head * 2 > queue.length) {
      queue.splice(0, this.#head);
      this.#head = 0;
    }
    return call;
  }

  /** Those that wait, oldest first. */
  *[Symbol.iterator](): IterableIterator<InboundCall> {
    if (this.#queue !== undefined) for (let i = this.#head; i < this.#queue.length; i++) yield this.#queue[i]!;
  }

  takeAll(): InboundCall[] {
    const calls = this.#queue?.slice(this.#head) ?? [];
    this.#queue = undefined;
    this.#head = 0;
    return calls;
  }
}
