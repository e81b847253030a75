// What the checks of all options have in common: names that exist, numbers within bounds. Options fail where they were written.
import { didYouMean } from '../../kernels/host.ts';
import { RuntimeFailure } from './errors.ts';

/** Every name that an options object may have. */
export type Known<T> = Readonly<Record<keyof T, true>>;

export function bad(option: string, value: unknown, wanted: string): never {
  throw new RuntimeFailure(
    'SINKFLEX_BAD_OPTION',
    `${option} is ${typeof value === 'string' ? JSON.stringify(value) : String(value)}; it must be ${wanted}`,
  );
}

/** Misspelt options would otherwise be silently the default. `known` has every key of the options' type. */
export function checkKnown<T extends object>(what: string, options: T, known: Known<T>): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) bad(`options of ${what}`, options, 'an object');
  for (const key of Object.keys(options)) {
    if (Object.hasOwn(known, key)) continue;
    const names = Object.keys(known);
    const near = didYouMean(key, names);
    throw new RuntimeFailure(
      'SINKFLEX_BAD_OPTION',
      `${what} has no option ${JSON.stringify(key)}; ${near === undefined ? '' : `did you mean ${JSON.stringify(near)}? `}its options are ${names.join(', ')}`,
    );
  }
}

export function count(option: string, value: number | undefined, fallback: number, least: number): number {
  if (value === undefined) return fallback;
  if (value === Number.POSITIVE_INFINITY) return Number.MAX_SAFE_INTEGER;
  if (!Number.isSafeInteger(value) || value < least) bad(option, value, `an integer of at least ${least}`);
  return value;
}

/** No timer of Node is longer. */
export const LONGEST_MS = 2 ** 31 - 1;

export function ms(option: string, value: number | undefined, fallback: number): number {
  if (value === undefined) return fallback;
  if (typeof value !== 'number' || !(value >= 0) || value > LONGEST_MS) bad(option, value, 'milliseconds from 0 to 2^31 - 1');
  return value;
}

/** Of a function whose options are how long it may take, and nothing else. */
export function checkTimeout(what: string, options: { timeoutMs?: number }): number | undefined {
  checkKnown(what, options, { timeoutMs: true });
  const { timeoutMs } = options;
  return timeoutMs === undefined ? undefined : ms('timeoutMs', timeoutMs, 0);
}
