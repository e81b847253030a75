/** A task of the desk, drawn from a seed: rules, company data, and the caller's side of the world. Levels and knobs. */
import { ActorsError, didYouMean } from '../../errors.ts';
import { CounterRandom } from '../random.ts';
import {
  BIKE_NAMES,
  COLOURS,
  CONDITIONS,
  type Colour,
  type Condition,
  PARTS,
  RIDE_NAMES,
  STANDINGS,
  type Standing,
  TREATMENTS,
  type Treatment,
  USUAL_LIGHTS,
} from './words.ts';

export interface DeskSettings {
  level: 1 | 2 | 3 | 4;
  /** Riders in the company's books; the caller is one of them. */
  riders: number;
  docks: number;
  /** Probability that the caller's bluetooth is off. */
  bluetoothOff: number;
  /** Probability that the caller stands at a full dock. */
  dockFull: number;
  /** Whether the caller wants money back: then rules, light, flag and amount matter. */
  refund: boolean;
  /** Whether the rules say what the lights mean (anew in each task), or the usual meaning holds. */
  lightsTold: boolean;
  /** Weights of the caller's treatment, in the order of TREATMENTS. */
  treatments: readonly number[];
  /** Probability that the light shows no fault. */
  faultless: number;
  maxTurns: number;
  /** Refused calls that end the episode. */
  maxErrors: number;
  /** Turns that nobody understood that end the episode. */
  maxPardons: number;
}

const COMMON = { docks: 5, lightsTold: false, treatments: [24, 24, 24, 22, 6], faultless: 0.03, maxTurns: 24, maxErrors: 6, maxPardons: 3 };

export const LEVELS: Record<DeskSettings['level'], DeskSettings> = {
  1: { level: 1, riders: 2, bluetoothOff: 0, dockFull: 0, refund: false, ...COMMON },
  2: { level: 2, riders: 2, bluetoothOff: 0.6, dockFull: 0.6, refund: false, ...COMMON },
  3: { level: 3, riders: 3, bluetoothOff: 0.6, dockFull: 0.6, refund: true, ...COMMON },
  4: { level: 4, riders: 4, bluetoothOff: 0.7, dockFull: 0.7, refund: true, ...COMMON, lightsTold: true },
};
export const DEFAULT_LEVEL = 3;

export interface Rider {
  code: string;
  standing: Standing;
  ride: string;
}
export interface Ride {
  id: string;
  bike: string;
  cost: number;
}
export interface Bike {
  id: string;
  dock: number;
}

export interface DeskTask {
  seed: number;
  /** What each standing gets, in the order of STANDINGS. */
  treatments: Treatment[];
  /** The amount that `flat` stands for. */
  flat: number;
  /** Meaning of the lights, in the order of COLOURS, and whether the rules tell it. */
  lights: readonly Condition[];
  lightsTold: boolean;
  wantsRefund: boolean;
  /** The caller is riders[caller]; ride and bike i belong to rider i. */
  caller: number;
  riders: Rider[];
  rides: Ride[];
  bikes: Bike[];
  /** Free places; dock d is docks[d - 1]. */
  docks: number[];
  bluetooth: boolean;
  colour: Colour;
}

/** The rules as the agent reads them. */
export function rulesText(task: DeskTask): string {
  const words = ['rules'];
  STANDINGS.forEach((standing, i) => {
    const treatment = task.treatments[i]!;
    words.push(standing, treatment === 'flat' ? String(task.flat) : treatment);
  });
  if (task.lightsTold) words.push('lights', ...COLOURS.flatMap((colour, i) => [colour, task.lights[i]!]));
  return words.join(' ');
}

const TWO_DIGITS = Array.from({ length: 100 }, (_, i) => String(i).padStart(2, '0'));
const COSTS = [4, 6, 8];
const FLATS = [1, 2, 3, 5];

/** Costs are even. */
export const halfOf = (cost: number): number => cost / 2;

export function generateTask(seed: number, s: DeskSettings): DeskTask {
  const random = new CounterRandom(seed, s.level);
  const codes = random.sample(TWO_DIGITS, s.riders);
  const rideNames = random.sample(RIDE_NAMES, s.riders);
  const bikeNames = random.sample(BIKE_NAMES, s.riders);
  const riders: Rider[] = [];
  const rides: Ride[] = [];
  const bikes: Bike[] = [];
  for (let i = 0; i < s.riders; i++) {
    const [code, ride, bike] = [codes[i]!, rideNames[i]!, bikeNames[i]!];
    riders.push({ code, standing: random.pick(STANDINGS), ride });
    rides.push({ id: ride, bike, cost: random.pick(COSTS) });
    bikes.push({ id: bike, dock: 1 + random.below(s.docks) });
  }
  const caller = random.below(s.riders);

  // The caller's treatment is drawn by weight; the other standings get the rest, so every table looks alike.
  const own = s.refund ? random.weighted(s.treatments) : random.below(4); // nobody is transferred where no refund is asked for
  const others = random.sample(
    TREATMENTS.filter((_, i) => i !== own),
    STANDINGS.length - 1,
  );
  const ownStanding = STANDINGS.indexOf(riders[caller]!.standing);
  const treatments = STANDINGS.map((_, i) => (i === ownStanding ? TREATMENTS[own]! : others[i < ownStanding ? i : i - 1]!));

  // A flat amount never equals the half or exceeds the cost, so no two treatments of the caller come to the same money.
  const cost = rides[caller]!.cost;
  const flat = random.pick(FLATS.filter((n) => n < cost && n !== halfOf(cost)));

  const lights = s.lightsTold ? random.sample(CONDITIONS, CONDITIONS.length) : USUAL_LIGHTS;
  const condition: Condition = !s.refund || random.chance(s.faultless) ? 'fine' : random.pick(PARTS);

  const at = bikes[caller]!.dock;
  const docks: number[] = Array.from({ length: s.docks }, () => random.below(3));
  if (random.chance(s.dockFull)) {
    // Exactly one other dock has room: the solution stays unique.
    const room = 1 + ((at - 1 + 1 + random.below(s.docks - 1)) % s.docks);
    docks.fill(0);
    docks[room - 1] = 1 + random.below(3);
  } else docks[at - 1] = 1 + random.below(3);

  return {
    seed,
    treatments,
    flat,
    lights,
    lightsTold: s.lightsTold,
    wantsRefund: s.refund,
    caller,
    riders,
    rides,
    bikes,
    docks,
    bluetooth: !random.chance(s.bluetoothOff),
    colour: COLOURS[lights.indexOf(condition)]!,
  };
}

const RANGES: Partial<Record<keyof DeskSettings, [number, number, 'integer' | 'number']>> = {
  riders: [1, 8, 'integer'],
  docks: [2, 9, 'integer'],
  bluetoothOff: [0, 1, 'number'],
  dockFull: [0, 1, 'number'],
  faultless: [0, 1, 'number'],
  maxTurns: [1, 1000, 'integer'],
  maxErrors: [1, 1000, 'integer'],
  maxPardons: [1, 1000, 'integer'],
};

/** The settings of a level with its knobs turned; SINKFLEX_ENVIRONMENT_OPTION for what the desk does not take. */
export function deskSettings(options: Record<string, unknown> = {}): DeskSettings {
  const level = options.level ?? DEFAULT_LEVEL;
  if (typeof level !== 'number' || !Object.hasOwn(LEVELS, level)) throw refused('level', level, 'it is 1, 2, 3 or 4');
  const settings: DeskSettings = { ...LEVELS[level as DeskSettings['level']] };
  for (const [key, value] of Object.entries(options)) {
    if (key === 'level' || value === undefined) continue;
    if (!Object.hasOwn(settings, key)) {
      const near = didYouMean(key, Object.keys(settings));
      throw refused(key, value, near ? `there is no such option; did you mean "${near}"?` : `known: ${Object.keys(settings).join(', ')}`);
    }
    check(key as keyof DeskSettings, value);
    Object.assign(settings, { [key]: value });
  }
  return settings;
}

function check(key: keyof DeskSettings, value: unknown): void {
  const range = RANGES[key];
  if (range) {
    const [low, high, kind] = range;
    const fits = typeof value === 'number' && value >= low && value <= high && (kind === 'number' || Number.isInteger(value));
    if (!fits) throw refused(key, value, `it is ${kind === 'integer' ? 'an integer' : 'a number'} from ${low} to ${high}`);
  } else if (key === 'treatments') {
    const fits = Array.isArray(value) && value.length === TREATMENTS.length && value.every((w) => typeof w === 'number' && w >= 0);
    if (!fits || value.every((w) => w === 0)) throw refused(key, value, `it is ${TREATMENTS.length} weights, for ${TREATMENTS.join(', ')}`);
  } else if (typeof value !== 'boolean') throw refused(key, value, 'it is true or false');
}

function refused(key: string, value: unknown, why: string): ActorsError {
  return new ActorsError('SINKFLEX_ENVIRONMENT_OPTION', `desk: option ${key}=${JSON.stringify(value)}: ${why}`, {
    details: { environment: 'desk', option: key, value },
  });
}
