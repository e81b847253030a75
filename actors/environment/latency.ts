/** How long an environment takes to answer: a distribution written as text, with keyed draws. Pure; who waits is the caller's business. */
import { ActorsError, didYouMean } from '../errors.ts';
import { threefry } from './random.ts';

export interface LatencyModel {
  /** As written, for configuration dumps. */
  readonly text: string;
  /** Milliseconds; the same key gives the same draw. Up to four uint32. */
  sample(key: readonly number[]): number;
}

type Draw = (u0: number, u1: number) => number;

const FORMS = {
  none: 'none',
  fixed: 'fixed(50ms)',
  uniform: 'uniform(10ms, 90ms)',
  lognormal: 'lognormal(mean=200ms, sigma=1.0)',
} as const;

/**
 * Reads `none`, `fixed(50ms)`, `uniform(a, b)` or `lognormal(mean=200ms, sigma=1.0)`. Times take `us`, `ms` (also the default) or `s`.
 * The lognormal's mean is the arithmetic mean of the draws; sigma belongs to the logarithm.
 *
 * @example parseLatency('lognormal(mean=200ms,sigma=1.0)').sample([1, 7, 0, 3])
 */
export function parseLatency(text: string): LatencyModel {
  const match = /^\s*([a-z]+)\s*(?:\(([^()]*)\))?\s*$/i.exec(text);
  const name = match?.[1]?.toLowerCase() ?? '';
  if (!match || !Object.hasOwn(FORMS, name)) {
    const near = didYouMean(name, Object.keys(FORMS));
    throw syntax(text, near ? `did you mean "${FORMS[near as keyof typeof FORMS]}"?` : `known forms: ${Object.values(FORMS).join(', ')}`);
  }
  const form = name as keyof typeof FORMS;
  const parts = (match[2] ?? '')
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
  const draw = build(form, text, (names) => readArguments(text, form, names, parts));
  const out = new Uint32Array(2);
  return {
    text: text.trim(),
    sample(key) {
      threefry(key[0] ?? 0, key[1] ?? 0, key[2] ?? 0, key[3] ?? 0, out);
      return draw(out[0]! / 2 ** 32, out[1]! / 2 ** 32);
    },
  };
}

function build(form: keyof typeof FORMS, text: string, read: (names: readonly string[]) => number[]): Draw {
  switch (form) {
    case 'none':
      read([]);
      return () => 0;
    case 'fixed': {
      const [value] = read(['value']) as [number];
      return () => value;
    }
    case 'uniform': {
      const [low, high] = read(['low', 'high']) as [number, number];
      if (high < low) throw syntax(text, 'the second bound is below the first');
      return (u0) => low + (high - low) * u0;
    }
    case 'lognormal': {
      const [mean, sigma] = read(['mean', 'sigma']) as [number, number];
      if (mean === 0) throw syntax(text, 'the mean must be above 0');
      const mu = Math.log(mean) - (sigma * sigma) / 2;
      // Box-Muller; 1 - u0 lies in (0, 1].
      return (u0, u1) => Math.exp(mu + sigma * Math.sqrt(-2 * Math.log(1 - u0)) * Math.cos(2 * Math.PI * u1));
    }
  }
}

/** Positional or named arguments, in the order of `names`; all are required, none may be negative. */
function readArguments(text: string, form: keyof typeof FORMS, names: readonly string[], parts: readonly string[]): number[] {
  if (parts.length !== names.length) throw syntax(text, `write it as ${FORMS[form]}`);
  const values = new Map<string, number>();
  parts.forEach((part, i) => {
    const equals = part.indexOf('=');
    const name = equals < 0 ? names[i]! : part.slice(0, equals).trim();
    if (!names.includes(name)) throw syntax(text, `"${name}" is not an argument of ${form}; write it as ${FORMS[form]}`);
    if (values.has(name)) throw syntax(text, `"${name}" is given twice`);
    values.set(name, readNumber(text, part.slice(equals + 1).trim(), name));
  });
  return names.map((name) => values.get(name)!);
}

const UNITS: Record<string, number> = { us: 1e-3, ms: 1, s: 1e3 };

function readNumber(text: string, written: string, name: string): number {
  const match = /^(\d+(?:\.\d+)?|\.\d+)\s*(us|ms|s)?$/.exec(written);
  if (!match && /^-\s*[\d.]/.test(written)) throw syntax(text, `"${written}" is below 0`);
  if (name === 'sigma' && (!match || match[2])) throw syntax(text, `"${written}" is not a sigma: a number without a unit, such as 1.0`);
  if (!match) throw syntax(text, `"${written}" is not a time: a number with us, ms or s, such as 50ms`);
  return Number(match[1]) * UNITS[match[2] ?? 'ms']!;
}

function syntax(text: string, why: string): ActorsError {
  return new ActorsError('SINKFLEX_LATENCY_SYNTAX', `cannot read the latency "${text}": ${why}`, { details: { text } });
}
