/**
 * A scripted agent for the desk. Without slips and habits it is the expert; slips make it err as a weak policy would, habits make it
 * a fixed policy that ignores a rule. It sees what a policy sees (messages) and nothing else.
 */
import { CounterRandom } from '../random.ts';
import { amountOf } from './solution.ts';
import {
  BIKE_NAMES,
  CLOSING,
  COLOURS,
  type CONDITIONS,
  type Condition,
  PARTS,
  REQUESTS,
  RESULT,
  RIDE_NAMES,
  STANDINGS,
  type Standing,
  spoken,
  type Treatment,
  USER,
  USUAL_LIGHTS,
} from './words.ts';

/**
 * Mistakes with their rates at noise 1. Most are rare and some can be repaired, so the right choice is the more frequent one at nearly
 * every decision and the score of a policy that imitates all this is made of many small chances. `flagForgotten` is the exception: there
 * the favourite choice is wrong, so sharpening the policy is not enough and reinforcement learning has something to turn around.
 */
export const MISTAKES = {
  /** Another code, ride or bike than the one heard; mostly refused by the tool, then repeated. */
  wrongId: 0.03,
  /** A request in words that nobody understands; repeated. */
  garbled: 0.02,
  /** Locks before the latch is shut; refused, then done in order. */
  lockEarly: 0.08,
  /** Sends the caller to a dock that is not free; noticed at the latch. */
  wrongDock: 0.15,
  /** Sends the caller to another dock for no reason; stays. */
  needlessWalk: 0.04,
  /** Forgets to end the ride; noticed only if a refund is due. */
  endForgotten: 0.06,
  /** Transfers a caller who should be served, or serves one who should be transferred. */
  transferNeedless: 0.03,
  transferMissed: 0.15,
  /** Reads the treatment of another standing, says so and acts on it. */
  wrongRow: 0.12,
  /** Gives the full price back whatever the rules say: the kindness that weak agents are known for. */
  generous: 0.14,
  /** The right treatment, the wrong sum. */
  arithmetic: 0.08,
  /** Names another part. */
  wrongPart: 0.1,
  flagForgotten: 0.52,
  refundFirst: 0.06,
  /** Tells another amount than was paid. */
  toldWrong: 0.07,
} as const;
export type Mistake = keyof typeof MISTAKES;

/** Decides, draw by draw, whether a mistake happens. */
export interface Slips {
  happens(mistake: Mistake): boolean;
  random: CounterRandom;
}

export const NO_SLIPS: Slips = { happens: () => false, random: new CounterRandom(0, 0) };

/** Slips at `noise` times the usual rates, never above 0.95. */
export function slips(noiseSeed: number, taskSeed: number, noise: number): Slips {
  const random = new CounterRandom(noiseSeed, taskSeed);
  return { random, happens: (mistake) => random.chance(Math.min(0.95, MISTAKES[mistake] * noise)) };
}

/** What a fixed policy does in place of following a rule. */
export interface Habits {
  /** The same treatment for everybody. */
  treatment?: Treatment;
  /** Reads the rules as if everybody had this standing. */
  standing?: Standing;
  /** Flags the same part whatever the light. */
  part?: Condition;
  /** Never flags. */
  flag?: false;
  /** Knows ride and bike from elsewhere and does not look the caller up. */
  identify?: { standing: Standing; ride: string };
}

/** Yields what the agent says, takes what the answer was. Ends after the closing words or a transfer. */
export function* agent(rules: string, complaint: string, slip: Slips, habit: Habits = {}): Generator<string, void, string> {
  const table = readRules(rules);
  const { random } = slip;
  const wantsRefund = complaint.includes(USER.refund);

  let standing: Standing;
  let ride: string;
  if (habit.identify) ({ standing, ride } = habit.identify);
  else {
    const code = (yield* request(REQUESTS.code, slip)).split(' ').slice(-2).join('');
    const found = yield* lookUp('find_rider', code, slip);
    standing = found.split(' ')[0] as Standing;
    ride = found.split(' ').at(-1)!;
  }

  let treatment: Treatment = habit.treatment ?? table.treatments[STANDINGS.indexOf(habit.standing ?? standing)] ?? 'none';
  if (wantsRefund) {
    // A treatment that a habit fixes is given whatever the rules say.
    if (habit.treatment === undefined) {
      if (slip.happens('wrongRow')) treatment = random.pick(table.treatments.filter((t) => t !== treatment));
      if (slip.happens('generous')) treatment = 'full';
    }
    yield* request(`${REQUESTS.rule} ${standing} ${treatment === 'flat' ? table.flat : treatment}`, slip);
  }
  if (treatment === 'transfer' ? !slip.happens('transferMissed') : slip.happens('transferNeedless')) {
    yield 'call transfer';
    return;
  }

  const [, bike = '', , costText] = (yield* lookUp('get_ride', ride, slip)).split(' ');
  const cost = Number(costText);

  yield* park(bike, slip);
  if (!slip.happens('endForgotten')) yield* write('end_ride', ride, '', slip);

  let told = 0;
  if (wantsRefund) {
    const colour = (yield* request(REQUESTS.light, slip)).split(' ').at(-1);
    let condition = habit.part ?? table.lights[(COLOURS as readonly (string | undefined)[]).indexOf(colour)] ?? 'fine';
    if (slip.happens('wrongPart')) condition = random.pick(PARTS.filter((part) => part !== condition));
    const flags = condition !== 'fine' && habit.flag !== false && !slip.happens('flagForgotten');

    if (condition === 'fine' && habit.treatment === undefined) treatment = 'none';
    let amount = amountOf(treatment, cost, table.flat);
    if (amount > 0 && slip.happens('arithmetic')) amount = 1 + random.below(cost);

    const refundFirst = slip.happens('refundFirst');
    if (refundFirst) told = yield* refund(ride, amount, slip);
    if (flags) yield* write('flag', bike, condition, slip);
    if (!refundFirst) told = yield* refund(ride, amount, slip);
  }
  if (slip.happens('toldWrong')) told = random.below(10);
  yield `${CLOSING} ${told}`;
}

/** From the latch to the lock, past bluetooth and full docks. */
function* park(bike: string, slip: Slips): Generator<string, void, string> {
  if (slip.happens('lockEarly')) yield* write('lock', bike, '', slip);
  if (slip.happens('needlessWalk')) yield `${REQUESTS.walk} ${1 + slip.random.below(5)}`;
  let answer = yield* request(REQUESTS.latch, slip);
  for (let tries = 0; tries < 4 && answer !== USER.shut; tries++) {
    if (answer === USER.beeps) yield* request(REQUESTS.bluetooth, slip);
    else {
      const free = (yield 'call docks').split(' ').slice(2);
      const dock = slip.happens('wrongDock') || free.length === 0 ? String(1 + slip.random.below(5)) : free[0]!;
      yield* request(`${REQUESTS.walk} ${dock}`, slip);
    }
    answer = yield* request(REQUESTS.latch, slip);
  }
  yield* write('lock', bike, '', slip);
}

/** Pays and returns the amount; repairs a ride that was left open. */
function* refund(ride: string, amount: number, slip: Slips): Generator<string, number, string> {
  if (amount === 0) return 0;
  const answer = yield* write('refund', ride, String(amount), slip);
  if (answer === RESULT.rideOpen) {
    yield* write('end_ride', ride, '', slip);
    yield* write('refund', ride, String(amount), slip);
  }
  return amount;
}

function* request(text: string, slip: Slips): Generator<string, string, string> {
  if (slip.happens('garbled')) {
    const words = text.split(' ');
    words.splice(slip.random.below(words.length - 1), 1);
    yield words.join(' ');
  }
  return yield text;
}

function* lookUp(tool: string, id: string, slip: Slips): Generator<string, string, string> {
  const answer = yield `call ${tool} ${written(misread(id, slip))}`;
  return answer.startsWith('error') ? yield `call ${tool} ${written(id)}` : answer;
}

function* write(tool: string, id: string, rest: string, slip: Slips): Generator<string, string, string> {
  const tail = rest === '' ? '' : ` ${rest}`;
  const read = misread(id, slip);
  const answer = yield `call ${tool} ${written(read)}${tail}`;
  return read !== id && answer.startsWith('error') ? yield `call ${tool} ${written(id)}${tail}` : answer;
}

/** As an argument: digits apart, names as they are. */
const written = (id: string): string => (/^\d/.test(id) ? spoken(id) : id);

/** Another id of the same kind. */
function misread(id: string, slip: Slips): string {
  if (!slip.happens('wrongId')) return id;
  for (const names of [RIDE_NAMES, BIKE_NAMES] as const) {
    if ((names as readonly string[]).includes(id)) return slip.random.pick(names.filter((name) => name !== id));
  }
  const at = slip.random.below(id.length);
  return id.slice(0, at) + String((Number(id[at]) + 1 + slip.random.below(9)) % 10) + id.slice(at + 1);
}

interface Rules {
  treatments: Treatment[];
  flat: number;
  lights: readonly Condition[];
}

export function readRules(text: string): Rules {
  const words = text.split(' ');
  let flat = 0;
  const treatments = STANDINGS.map((standing): Treatment => {
    const word = words[words.indexOf(standing) + 1]!;
    if (!/^\d$/.test(word)) return word as Treatment;
    flat = Number(word);
    return 'flat';
  });
  const at = words.indexOf('lights');
  const lights = at < 0 ? USUAL_LIGHTS : COLOURS.map((colour) => words[words.indexOf(colour, at) + 1] as (typeof CONDITIONS)[number]);
  return { treatments, flat, lights };
}
