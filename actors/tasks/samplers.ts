/**
 * Samplers: which arm (row of a file, or level of generated tasks) draw number `index` takes. A draw is a function of the run's seed, its
 * index and the sampler's state, which changes when a batch has been trained: synchronous runs draw the same tasks however fast who was.
 */
import { CounterRandom } from '../environment/random.ts';
import { ActorsError, didYouMean } from '../errors.ts';
import { type EstimateState, Estimates } from './estimates.ts';

export interface SamplerContext {
  /** Arms, from 0. */
  arms: number;
  /** Level of an arm; undefined where it has none. */
  levelOf: (arm: number) => number | undefined;
  seed: number;
  shuffle: boolean;
  /** Curriculum: pass rate at which the next level opens, groups that it must rest on, share of draws from earlier levels. */
  promoteAt: number;
  minGroups: number;
  review: number;
  /** Pass-rate band: [low, high], and the share of draws that look outside. */
  band: readonly [number, number];
  explore: number;
  decay: number;
}

/** JSON. */
export interface SamplerState {
  /** Of arms. */
  rates: EstimateState;
  /** Curriculum: of levels, and how many are open. */
  levels?: EstimateState;
  opened?: number;
}

export interface Sampler {
  draw(index: number): number;
  learn(arm: number, rewards: readonly number[]): void;
  rate(arm: number): number | undefined;
  /** For the metrics of a step. */
  metrics(): Record<string, number>;
  state(): SamplerState;
  restore(state: SamplerState): void;
}

/** First words of the random keys: apart from those of tasks and sampling. */
const ORDER = 0x6f726465; // 'orde'
const DRAW = 0x64726177; // 'draw'
const draws = (c: SamplerContext, index: number): CounterRandom => new CounterRandom(DRAW ^ c.seed, index);

/** Every arm once an epoch, in an order of its own each time. */
class Uniform implements Sampler {
  protected readonly c: SamplerContext;
  protected readonly rates: Estimates;
  #epoch = -1;
  #order: number[] = [];

  constructor(c: SamplerContext) {
    this.c = c;
    this.rates = new Estimates(c.decay);
  }

  draw(index: number): number {
    const { arms, seed, shuffle } = this.c;
    if (!shuffle || arms === 1) return index % arms;
    const epoch = Math.floor(index / arms);
    if (epoch !== this.#epoch) {
      this.#order = new CounterRandom(ORDER ^ seed, epoch).sample(
        Array.from({ length: arms }, (_, i) => i),
        arms,
      );
      this.#epoch = epoch;
    }
    return this.#order[index % arms]!;
  }

  learn(arm: number, rewards: readonly number[]): void {
    this.rates.add(arm, rewards);
  }

  rate(arm: number): number | undefined {
    return this.rates.rate(arm);
  }

  metrics(): Record<string, number> {
    return {};
  }

  state(): SamplerState {
    return { rates: this.rates.state() };
  }

  restore(s: SamplerState): void {
    this.rates.restore(s.rates);
  }
}

/** Levels open one after the other, each when the one before it is mastered; most draws are of the newest. */
class Curriculum extends Uniform {
  /** Arms by level, ascending. */
  readonly #levels: number[][];
  readonly #place = new Map<number, number>();
  readonly #byLevel: Estimates;
  #opened = 1;

  constructor(c: SamplerContext) {
    super(c);
    const byLevel = new Map<number, number[]>();
    for (let arm = 0; arm < c.arms; arm++) {
      const level = c.levelOf(arm);
      if (level === undefined)
        throw new ActorsError(
          'SINKFLEX_SAMPLER',
          `data.sampler.class_name=curriculum needs a level of every task, row ${arm + 1} has none`,
        );
      byLevel.set(level, [...(byLevel.get(level) ?? []), arm]);
    }
    this.#levels = [...byLevel].sort(([a], [b]) => a - b).map(([, arms]) => arms);
    for (const [i, arms] of this.#levels.entries()) for (const arm of arms) this.#place.set(arm, i);
    this.#byLevel = new Estimates(c.decay);
  }

  override draw(index: number): number {
    const random = draws(this.c, index);
    const newest = this.#opened - 1;
    const level = newest > 0 && random.chance(this.c.review) ? random.below(newest) : newest;
    return random.pick(this.#levels[level]!);
  }

  override learn(arm: number, rewards: readonly number[]): void {
    super.learn(arm, rewards);
    const level = this.#place.get(arm)!;
    this.#byLevel.add(level, rewards);
    const newest = this.#opened - 1;
    const mastered =
      level === newest && this.#byLevel.weight(newest) >= this.c.minGroups && this.#byLevel.rate(newest)! >= this.c.promoteAt;
    if (mastered && this.#opened < this.#levels.length) this.#opened++;
  }

  override metrics(): Record<string, number> {
    const newest = this.#opened - 1;
    return {
      'data/curriculum/opened': this.#opened,
      'data/curriculum/level': this.c.levelOf(this.#levels[newest]![0]!)!,
      'data/curriculum/pass_rate': this.#byLevel.rate(newest) ?? 0,
    };
  }

  override state(): SamplerState {
    return { ...super.state(), levels: this.#byLevel.state(), opened: this.#opened };
  }

  override restore(s: SamplerState): void {
    super.restore(s);
    this.#byLevel.restore(s.levels ?? {});
    this.#opened = s.opened ?? 1;
  }
}

/** Arms that are sometimes solved teach most: those whose pass rate is known and outside the band are passed over. */
class PassRate extends Uniform {
  #passedOver = 0;

  override draw(index: number): number {
    const { arms, band, explore } = this.c;
    const random = draws(this.c, index);
    if (random.chance(explore)) return random.below(arms);
    let nearest = 0;
    let least = Number.POSITIVE_INFINITY;
    // With few arms every one is looked at, with many as many as make a miss unlikely.
    const candidates = arms <= CANDIDATES ? random.sample(range(arms), arms) : Array.from({ length: CANDIDATES }, () => random.below(arms));
    for (const arm of candidates) {
      const rate = this.rates.rate(arm);
      const distance = rate === undefined ? 0 : Math.max(0, band[0] - rate, rate - band[1]);
      if (distance < least) {
        least = distance;
        nearest = arm;
      }
      if (distance === 0) break;
      this.#passedOver++;
    }
    return nearest;
  }

  override metrics(): Record<string, number> {
    const passedOver = this.#passedOver;
    this.#passedOver = 0;
    return { 'data/pass_rate/passed_over': passedOver };
  }
}
const CANDIDATES = 64;
const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);

const samplers: Record<string, new (c: SamplerContext) => Sampler> = { uniform: Uniform, curriculum: Curriculum, pass_rate: PassRate };
export const samplerNames: readonly string[] = Object.keys(samplers);

export function makeSampler(name: string, c: SamplerContext): Sampler {
  const Found = samplers[name];
  if (Found) return new Found(c);
  const near = didYouMean(name, samplerNames);
  throw new ActorsError(
    'SINKFLEX_SAMPLER',
    `there is no sampler ${name}: ${near ? `did you mean ${near}?` : `known: ${samplerNames.join(', ')}`}`,
  );
}

/**
 * Samples for a task that is solved with probability `rate`: the fewest with which the group has two different outcomes with probability
 * `target`, 1 - rate^n - (1 - rate)^n >= target, within [least, most]. A task that was never drawn gets the most.
 */
export function adaptiveGroupSize(rate: number | undefined, o: { least: number; most: number; target: number }): number {
  if (rate === undefined) return o.most;
  for (let n = o.least; n < o.most; n++) if (1 - rate ** n - (1 - rate) ** n >= o.target) return n;
  return o.most;
}
