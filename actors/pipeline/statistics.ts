// Scores with their uncertainty: means, 95% intervals, mean@k, pass@k and pass^k. All in float64.

/** An estimate with its 95% interval. */
export interface Interval {
  mean: number;
  low: number;
  high: number;
  /** Independent observations (tasks) behind it. */
  n: number;
}

/** Two-sided 95% quantile of the standard normal distribution. */
const Z95 = 1.959963984540054;

export function mean(values: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i]!;
  return values.length === 0 ? Number.NaN : sum / values.length;
}

/** Standard deviation over n-1; 0 below two values. */
export function sampleStd(values: ArrayLike<number>): number {
  if (values.length < 2) return 0;
  const m = mean(values);
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += (values[i]! - m) ** 2;
  return Math.sqrt(sum / (values.length - 1));
}

export function median(values: ArrayLike<number>): number {
  const sorted = Float64Array.from(values).sort();
  const half = sorted.length >> 1;
  return sorted.length === 0 ? Number.NaN : sorted.length % 2 === 1 ? sorted[half]! : (sorted[half - 1]! + sorted[half]!) / 2;
}

/** Wilson's score interval for `successes` out of `n`: right also at 0 and 1, where the normal one has no width. */
export function wilson(successes: number, n: number): Interval {
  if (n === 0) return { mean: Number.NaN, low: 0, high: 1, n: 0 };
  const p = successes / n;
  const z2 = Z95 * Z95;
  const centre = (p + z2 / (2 * n)) / (1 + z2 / n);
  const half = (Z95 / (1 + z2 / n)) * Math.sqrt((p * (1 - p)) / n + z2 / (4 * n * n));
  return { mean: p, low: p === 0 ? 0 : Math.max(0, centre - half), high: p === 1 ? 1 : Math.min(1, centre + half), n };
}

/** Percentile bootstrap of the mean. The same values and seed give the same interval. */
export function bootstrap(values: ArrayLike<number>, o: { resamples?: number; seed?: number } = {}): Interval {
  const { resamples = 1000, seed = 42 } = o;
  const n = values.length;
  if (n === 0) return { mean: Number.NaN, low: Number.NaN, high: Number.NaN, n };
  const next = mulberry32(seed);
  const means = new Float64Array(resamples);
  for (let r = 0; r < resamples; r++) {
    let sum = 0;
    for (let i = 0; i < n; i++) sum += values[Math.floor(next() * n)]!;
    means[r] = sum / n;
  }
  means.sort();
  const at = (q: number) => means[Math.min(resamples - 1, Math.max(0, Math.round(q * (resamples - 1))))]!;
  return { mean: mean(values), low: at(0.025), high: at(0.975), n };
}

/** mean@k with its interval; `groups[i]` are the scores of the samples of task i. One 0/1 sample a task: Wilson; else a bootstrap over tasks. */
export function scoreInterval(groups: readonly ArrayLike<number>[]): Interval {
  const filled = groups.filter((g) => g.length > 0);
  const perTask = filled.map((g) => mean(g));
  const binary = filled.every((g) => g.length === 1 && (g[0] === 0 || g[0] === 1));
  return binary
    ? wilson(
        perTask.reduce((a, b) => a + b, 0),
        perTask.length,
      )
    : bootstrap(perTask);
}

/** Chance that at least one of k samples drawn from n with c successes is a success; unbiased. */
export function passAtK(n: number, c: number, k: number): number {
  if (k > n) return Number.NaN;
  let allFail = 1;
  for (let i = 0; i < k; i++) allFail *= Math.max(0, n - c - i) / (n - i);
  return 1 - allFail;
}

/** Chance that all k samples drawn from n with c successes are successes (tau-bench's pass^k); unbiased. */
export function passHatK(n: number, c: number, k: number): number {
  if (k > n) return Number.NaN;
  let allPass = 1;
  for (let i = 0; i < k; i++) allPass *= Math.max(0, c - i) / (n - i);
  return allPass;
}

/** 1, 2, 4, ... and n itself. */
export function sampleCounts(n: number): number[] {
  const counts: number[] = [];
  for (let k = 1; k < n; k *= 2) counts.push(k);
  return [...counts, n];
}

/** pass@k and pass^k of a task set: each the mean over the tasks that have k samples; `groups[i]` are the rewards of task i, a success from 1 on. */
export function passRates(groups: readonly ArrayLike<number>[], n: number): { k: number; passAtK: Interval; passHatK: Interval }[] {
  return sampleCounts(n).map((k) => {
    const enough = groups.filter((g) => g.length >= k);
    const rate = (f: typeof passAtK) => bootstrap(enough.map((g) => f(g.length, Array.from(g).filter((r) => r >= 1).length, k)));
    return { k, passAtK: rate(passAtK), passHatK: rate(passHatK) };
  });
}

/** Two policies on the same tasks. */
export interface PairedComparison {
  /** Mean of b - a over the tasks that both have, with a bootstrap interval over tasks. */
  difference: Interval;
  /** Tasks where b is better, worse, equal. */
  better: number;
  worse: number;
  equal: number;
  /** Two-sided p of a sign-flip permutation test: how often chance alone gives a mean difference at least as large. */
  p: number;
}

/** `a[i]` and `b[i]` are the scores (means over samples) of one task. Exact for up to 16 tasks that differ, else 20,000 random sign flips. */
export function pairedComparison(a: ArrayLike<number>, b: ArrayLike<number>, o: { seed?: number } = {}): PairedComparison {
  const d = Float64Array.from(a, (x, i) => b[i]! - x);
  const moved = d.filter((x) => x !== 0);
  const observed = Math.abs(moved.reduce((s, x) => s + x, 0)) * (1 - 1e-12);
  const next = mulberry32(o.seed ?? 42);
  const exact = moved.length <= 16;
  const flips = exact ? 2 ** moved.length : 20_000;
  let extreme = 0;
  for (let f = 0; f < flips; f++) {
    let sum = 0;
    for (let i = 0; i < moved.length; i++) sum += (exact ? (f >> i) & 1 : next() < 0.5) ? moved[i]! : -moved[i]!;
    if (Math.abs(sum) >= observed) extreme++;
  }
  return {
    difference: bootstrap(d),
    better: d.filter((x) => x > 0).length,
    worse: d.filter((x) => x < 0).length,
    equal: d.length - moved.length,
    p: exact ? extreme / flips : (extreme + 1) / (flips + 1),
  };
}

/** Mean of the last `window` values, one value at a time. */
export class Rolling {
  readonly #window: number;
  readonly #values: number[] = [];
  constructor(window: number) {
    this.#window = window;
  }
  push(value: number): number {
    this.#values.push(value);
    if (this.#values.length > this.#window) this.#values.shift();
    return mean(this.#values);
  }
  /** The values inside the window, oldest first: what a checkpoint keeps. */
  snapshot(): number[] {
    return [...this.#values];
  }
  restore(values: readonly number[]): void {
    this.#values.splice(0, this.#values.length, ...values.slice(-this.#window));
  }
}

function mulberry32(seed: number): () => number {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
