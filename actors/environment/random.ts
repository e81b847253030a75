/**
 * Counter-based random numbers (Threefry-2x32 with 20 rounds, Salmon et al. 2011): a draw is a pure function of a key and a
 * counter, so that tasks, mistakes and latencies do not depend on who draws first. Adds, rotations and xors only: exact in JavaScript.
 */

const ROTATIONS = [13, 15, 26, 6, 17, 29, 16, 24] as const;
const PARITY = 0x1bd11bda;

/** One block: two uint32 of (key, counter), written to `out`. */
export function threefry(key0: number, key1: number, counter0: number, counter1: number, out: Uint32Array): void {
  const key2 = PARITY ^ key0 ^ key1;
  let x0 = (counter0 + key0) | 0;
  let x1 = (counter1 + key1) | 0;
  for (let group = 0; group < 5; group++) {
    const base = (group & 1) * 4;
    for (let r = 0; r < 4; r++) {
      const by = ROTATIONS[base + r]!;
      x0 = (x0 + x1) | 0;
      x1 = ((x1 << by) | (x1 >>> (32 - by))) ^ x0;
    }
    const at = group % 3;
    x0 = (x0 + (at === 0 ? key1 : at === 1 ? key2 : key0)) | 0;
    x1 = (x1 + (at === 0 ? key2 : at === 1 ? key0 : key1) + group + 1) | 0;
  }
  out[0] = x0;
  out[1] = x1;
}

/** A stream of draws under one key. Two streams with the same key give the same draws. */
export class CounterRandom {
  readonly #key0: number;
  readonly #key1: number;
  readonly #block = new Uint32Array(2);
  #drawn = 0;

  constructor(key0: number, key1: number) {
    this.#key0 = key0 >>> 0;
    this.#key1 = key1 >>> 0;
  }

  uint32(): number {
    const second = this.#drawn & 1;
    if (second === 0) threefry(this.#key0, this.#key1, this.#drawn >>> 1, 0, this.#block);
    this.#drawn++;
    return this.#block[second]!;
  }

  /** In [0, 1). */
  unit(): number {
    return this.uint32() / 2 ** 32;
  }

  /** An integer in [0, n). */
  below(n: number): number {
    return Math.floor(this.unit() * n);
  }

  chance(p: number): boolean {
    return this.unit() < p;
  }

  pick<T>(from: readonly T[]): T {
    return from[this.below(from.length)]!;
  }

  /** An index drawn in proportion to the weights. */
  weighted(weights: readonly number[]): number {
    let left = this.unit() * weights.reduce((a, b) => a + b, 0);
    for (let i = 0; i < weights.length; i++) {
      left -= weights[i]!;
      if (left < 0) return i;
    }
    return weights.length - 1;
  }

  /** The first `count` of a random order. */
  sample<T>(from: readonly T[], count: number): T[] {
    const pool = from.slice();
    for (let i = 0; i < count; i++) {
      const j = i + this.below(pool.length - i);
      const taken = pool[j]!;
      pool[j] = pool[i]!;
      pool[i] = taken;
    }
    pool.length = count;
    return pool;
  }
}
