// Virtual time: one heap of events, ordered by time and by when they were asked for. The same seed gives the same run.
import { type Clock, nextState, unitOf } from '../../control/index.ts';

interface Event {
  at: number;
  seq: number;
  /** Undefined: cancelled. */
  action: (() => void) | undefined;
}

const before = (a: Event, b: Event): boolean => a.at < b.at || (a.at === b.at && a.seq < b.seq);

export class VirtualTime {
  /** Milliseconds since the beginning. */
  now = 0;
  /** Events that have run. */
  events = 0;
  readonly #heap: Event[] = [];
  #seq = 0;

  /** Answers what cancels it. */
  after(ms: number, action: () => void): () => void {
    const event: Event = { at: this.now + Math.max(0, ms), seq: this.#seq++, action };
    this.#push(event);
    return () => {
      event.action = undefined;
    };
  }

  /** Runs what is due until then. What promises lead to comes two steps after each event; more of it between the events that follow. */
  async runUntil(end: number): Promise<void> {
    for (let next = this.#heap[0]; next !== undefined && next.at <= end; next = this.#heap[0]) {
      this.#pop();
      this.now = next.at;
      if (next.action === undefined) continue;
      this.events++;
      next.action();
      await undefined;
      await undefined;
    }
    this.now = end;
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let i = heap.push(event) - 1;
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (!before(event, heap[parent]!)) break;
      heap[i] = heap[parent]!;
      i = parent;
    }
    heap[i] = event;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop()!;
    if (heap.length === 0) return;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && before(heap[child + 1]!, heap[child]!)) child++;
      if (!before(heap[child]!, last)) break;
      heap[i] = heap[child]!;
      i = child;
    }
    heap[i] = last;
  }
}

export class Dice {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** From 0 to below 1. */
  unit(): number {
    this.#state = nextState(this.#state);
    return unitOf(this.#state);
  }

  /** From low to below high. */
  between(low: number, high: number): number {
    return low + this.unit() * (high - low);
  }

  below(n: number): number {
    return Math.floor(this.unit() * n);
  }

  chance(p: number): boolean {
    return this.unit() < p;
  }

  pick<T>(of: readonly T[]): T | undefined {
    return of[this.below(of.length)];
  }

  /** Mostly short, sometimes very long, as delays are. */
  delay(typical: number): number {
    const u = this.unit();
    return typical * (u < 0.9 ? 0.5 + u : u < 0.99 ? 4 : 40) * this.between(0.5, 1.5);
  }
}

/** A process of the simulation: it can be stopped (what is due waits until it goes on) and killed (nothing of it runs any more). */
export class Process {
  readonly name: string;
  readonly pid: number;
  readonly #time: VirtualTime;
  alive = true;
  #stopped = false;
  readonly #late: (() => void)[] = [];
  readonly #onEnd: (() => void)[] = [];

  constructor(name: string, pid: number, time: VirtualTime) {
    this.name = name;
    this.pid = pid;
    this.#time = time;
  }

  get start(): string {
    return `${this.name}#${this.pid}`;
  }

  get stopped(): boolean {
    return this.#stopped;
  }

  /** Now, or when it goes on. */
  run(action: () => void): void {
    if (!this.alive) return;
    if (this.#stopped) this.#late.push(action);
    else action();
  }

  after(ms: number, action: () => void): () => void {
    return this.#time.after(ms, () => this.run(action));
  }

  /** Its own clock, which gains `drift` (1 ms a second: 0.001) on the true one. */
  clock(drift = 0): Clock {
    return {
      now: () => Math.floor(this.#time.now * (1 + drift)),
      after: (ms, action) => {
        let cancelled = false;
        const cancel = this.after(ms / (1 + drift), () => {
          if (!cancelled) action();
        });
        return () => {
          cancelled = true;
          cancel();
        };
      },
    };
  }

  stop(): void {
    this.#stopped = true;
  }

  goOn(): void {
    if (!this.#stopped || !this.alive) return;
    this.#stopped = false;
    for (const action of this.#late.splice(0)) this.run(action);
  }

  onEnd(action: () => void): void {
    this.#onEnd.push(action);
  }

  kill(): void {
    if (!this.alive) return;
    this.alive = false;
    this.#late.length = 0;
    for (const action of this.#onEnd.splice(0)) action();
  }
}
