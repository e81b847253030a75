/** A scripted agent for generated tasks: it sees what a policy sees. Slips make it err as a weak policy would. */
import { CounterRandom } from '../../random.ts';
import { PRODUCTS, VALUES } from './words.ts';

/**
 * Mistakes with their rates at noise 1. As with the desk, most are rare; `insists` is the exception, where the favourite choice is wrong, so that
 * sharpening alone does not help.
 */
export const MISTAKES = {
  /** A digit of the zip code read wrongly; not found, then repeated. */
  misreadsZip: 0.04,
  /** Gives up the search before the last order. */
  stopsEarly: 0.12,
  /** The tool for the other state of an order; refused, then the right one. */
  wrongTool: 0.1,
  /** Looks for another thing. */
  wrongItem: 0.08,
  /** Looks for another variant. */
  wrongVariant: 0.1,
  /** Another way to pay. */
  wrongPayment: 0.15,
  wrongReason: 0.12,
  /** Says that it is done where nothing could be done. */
  insists: 0.6,
  /** Gives up on what could be done. */
  givesUp: 0.12,
} as const;
export type GeneratedMistake = keyof typeof MISTAKES;

export interface GeneratedSlips {
  happens(mistake: GeneratedMistake): boolean;
  random: CounterRandom;
}

export const NO_SLIPS: GeneratedSlips = { happens: () => false, random: new CounterRandom(0, 0) };

export function slips(noiseSeed: number, taskSeed: number, noise: number): GeneratedSlips {
  const random = new CounterRandom(noiseSeed, taskSeed);
  return { random, happens: (mistake) => random.chance(Math.min(0.95, MISTAKES[mistake] * noise)) };
}

interface Seen {
  alias: string;
  status: string;
  paid: string;
  item: string;
}

/** Says its turns and is told what comes back. */
export function* agent(wish: string, slip: GeneratedSlips): Generator<string, void, string> {
  const [who, what] = wish.split(' wants ') as [string, string?];
  if (what === undefined) {
    // A task of the benchmark's own: it cannot read that.
    yield 'denied';
    return;
  }
  const [first, last, , ...zip] = who.split(' ');
  yield* find(first!, last!, zip, slip);
  const account = (yield 'call user').split(' ');
  const pays = account.indexOf('pays');
  const orders = account.slice(1, pays);
  const sources = new Map<string, string>();
  for (let i = pays + 1; i < account.length; i += 2) sources.set(account[i]!, account[i + 1]!);

  // cancel|return|change|send|pay the <product> ...
  const [verb, , product, ...rest] = what.split(' ');
  const wanted = slip.happens('wrongItem') ? slip.random.pick(PRODUCTS) : product!;
  let seen: Seen | undefined;
  for (const alias of orders) {
    seen = readOrder(alias, yield `call order ${alias} ${wanted}`);
    if (seen.item !== 'nothing' || slip.happens('stopsEarly')) break;
  }
  const { alias, status, paid, item } = seen!;
  if (item === 'nothing') {
    yield slip.happens('insists') ? 'done' : 'denied';
    return;
  }

  const call = yield* plan({ verb: verb!, rest, alias, status, paid, item, sources }, slip);
  const gives = slip.happens('givesUp');
  if (call === undefined || gives) {
    yield call === undefined && slip.happens('insists') ? 'done' : 'denied';
    return;
  }
  if ((yield call) === 'error') {
    yield slip.happens('insists') ? 'done' : 'denied';
    return;
  }
  yield 'done';
}

interface Situation {
  verb: string;
  rest: readonly string[];
  alias: string;
  status: string;
  paid: string;
  item: string;
  sources: ReadonlyMap<string, string>;
}

/** The call that fulfils the wish; undefined where there is none. */
function* plan(s: Situation, slip: GeneratedSlips): Generator<string, string | undefined, string> {
  const pending = s.status === 'pending';
  const pay = (right: string) => {
    const others = [...s.sources.values()].filter((p) => p !== right);
    return others.length > 0 && slip.happens('wrongPayment') ? slip.random.pick(others) : right;
  };
  switch (s.verb) {
    case 'cancel': {
      const reason = s.rest.at(-1)!;
      const said = slip.happens('wrongReason') ? (reason === 'mistake' ? 'unneeded' : 'mistake') : reason;
      return pending ? `call cancel ${s.alias} ${said}` : undefined;
    }
    case 'send':
      return pending ? `call address ${s.alias}` : undefined;
    case 'pay':
      return pending ? `call pay ${s.alias} ${pay(s.sources.get(s.rest.at(-1)!) ?? s.paid)}` : undefined;
    case 'return':
      return s.status === 'delivered' ? `call return ${s.alias} ${s.item} ${pay(s.sources.get(s.rest.at(-1)!) ?? s.paid)}` : undefined;
    default: {
      if (!pending && s.status !== 'delivered') return undefined;
      const value = slip.happens('wrongVariant') ? slip.random.pick(VALUES) : s.rest.at(-1)!;
      const [chosen = 'nothing'] = (yield `call product ${s.item} ${value}`).split(' ');
      if (chosen === 'out' || chosen === 'nothing') return undefined;
      const tail = `${s.alias} ${s.item} ${chosen} ${s.paid}`;
      const [right, wrong] = pending ? ['modify', 'exchange'] : ['exchange', 'modify'];
      if (slip.happens('wrongTool')) yield `call ${wrong} ${tail}`;
      return `call ${right} ${tail}`;
    }
  }
}

function* find(first: string, last: string, zip: readonly string[], slip: GeneratedSlips): Generator<string, void, string> {
  if (slip.happens('misreadsZip')) {
    const at = slip.random.below(zip.length);
    const wrong = zip.map((digit, i) => (i === at ? String((Number(digit) + 1 + slip.random.below(9)) % 10) : digit));
    if ((yield `call find ${first} ${last} ${wrong.join(' ')}`) !== 'error') return;
  }
  yield `call find ${first} ${last} ${zip.join(' ')}`;
}

/** `delivered by p1 i2`, or `nothing` in the end. */
function readOrder(alias: string, text: string): Seen {
  const words = text.split(' ');
  return { alias, status: words[0] ?? '', paid: words[2] ?? '', item: words[3] ?? 'nothing' };
}
