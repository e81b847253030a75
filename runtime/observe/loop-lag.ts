// How late the event loop of this thread runs: a timer ten times a second, and a histogram of its delays. A few counters instead of
// perf_hooks.monitorEventLoopDelay, whose histogram takes 270 KiB a thread and cannot be summed over workers.
import { performance } from 'node:perf_hooks';
import { LAG_BUCKETS_MS, type LagCounts } from './questions.ts';

const PERIOD_MS = 100;

export class LoopLag {
  readonly #buckets = new Array<number>(LAG_BUCKETS_MS.length + 1).fill(0);
  #count = 0;
  #sumMs = 0;
  #maxMs = 0;
  #last = performance.now();
  readonly #timer: NodeJS.Timeout;

  constructor(onTurn?: () => void) {
    // Its name tells whoever looks at the stack that this loop was idle.
    const turnOfLoop = (): void => {
      const now = performance.now();
      this.add(now - this.#last - PERIOD_MS);
      this.#last = now;
      onTurn?.();
    };
    this.#timer = setInterval(turnOfLoop, PERIOD_MS).unref();
  }

  /** One delay, milliseconds. Timers are exact to a millisecond, so a delay may be a little below 0. */
  add(ms: number): void {
    const lag = Math.max(0, ms);
    let at = 0;
    while (at < LAG_BUCKETS_MS.length && lag > LAG_BUCKETS_MS[at]!) at++;
    this.#buckets[at]!++;
    this.#count++;
    this.#sumMs += lag;
    if (lag > this.#maxMs) this.#maxMs = lag;
  }

  counts(): LagCounts {
    return { buckets: [...this.#buckets], count: this.#count, sumMs: this.#sumMs, maxMs: this.#maxMs };
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}

/** The delay that a share of all stayed below: the upper bound of its bucket (the largest seen for the last), milliseconds. */
export function lagQuantile(lag: LagCounts, share: number): number {
  const wanted = lag.count * share;
  let sum = 0;
  for (let i = 0; i < LAG_BUCKETS_MS.length; i++) {
    sum += lag.buckets[i]!;
    if (sum >= wanted) return Math.min(LAG_BUCKETS_MS[i]!, lag.maxMs);
  }
  return lag.maxMs;
}
