// What init({ timeline: true }) keeps in each worker: the last calls that it ran and the last that it made, in two rings of numbers. Nothing
// is allocated for a call but an entry for each new method name.
import type { CallRecord, SentRecord } from '../worker/counters.ts';
import type { Recording } from './questions.ts';

/** Calls that a ring holds; 5 and 3 MiB, of which only what was used is resident. */
const CAPACITY = 65_536;
export const RUN_FIELDS = 9;
export const SENT_FIELDS = 6;

class Ring {
  readonly #fields: number;
  readonly #capacity: number;
  readonly #numbers: Float64Array;
  /** Entries ever written. */
  count = 0;

  constructor(fields: number, capacity: number) {
    this.#fields = fields;
    this.#capacity = capacity;
    this.#numbers = new Float64Array(fields * capacity);
  }

  /** Where the next entry goes. */
  next(): number {
    return (this.count++ % this.#capacity) * this.#fields;
  }

  get numbers(): Float64Array {
    return this.#numbers;
  }

  /** Oldest first. */
  read(): Float64Array {
    const held = Math.min(this.count, this.#capacity);
    const split = (this.count % this.#capacity) * this.#fields;
    if (this.count <= this.#capacity) return this.#numbers.slice(0, held * this.#fields);
    const all = new Float64Array(held * this.#fields);
    all.set(this.#numbers.subarray(split));
    all.set(this.#numbers.subarray(0, split), all.length - split);
    return all;
  }

  get lost(): number {
    return Math.max(0, this.count - this.#capacity);
  }
}

export class CallRecorder {
  readonly #runs: Ring;
  readonly #sent: Ring;
  readonly #methods = new Map<string, number>();

  constructor(capacity = CAPACITY) {
    this.#runs = new Ring(RUN_FIELDS, capacity);
    this.#sent = new Ring(SENT_FIELDS, capacity);
  }

  #method(name: string): number {
    let number = this.#methods.get(name);
    if (number === undefined) {
      number = this.#methods.size;
      this.#methods.set(name, number);
    }
    return number;
  }

  readonly ran = (record: CallRecord): void => {
    const { numbers } = this.#runs;
    const at = this.#runs.next();
    numbers[at] = record.actor;
    numbers[at + 1] = record.incarnation;
    numbers[at + 2] = this.#method(record.method);
    numbers[at + 3] = record.caller;
    numbers[at + 4] = record.call;
    numbers[at + 5] = record.receivedAt;
    numbers[at + 6] = record.startedAt;
    numbers[at + 7] = record.durationMs;
    numbers[at + 8] = record.ok ? 1 : 0;
  };

  readonly sent = (record: SentRecord): void => {
    const { numbers } = this.#sent;
    const at = this.#sent.next();
    numbers[at] = record.from;
    numbers[at + 1] = record.actor;
    numbers[at + 2] = this.#method(record.method);
    numbers[at + 3] = record.worker;
    numbers[at + 4] = record.call;
    numbers[at + 5] = record.at;
  };

  read(): Recording {
    return {
      timeOrigin: performance.timeOrigin,
      methods: [...this.#methods.keys()],
      runs: this.#runs.read(),
      sent: this.#sent.read(),
      lost: this.#runs.lost,
      lostSent: this.#sent.lost,
    };
  }
}
