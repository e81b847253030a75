/** Where the original is wrong: parity is the default, each of these corrects one thing. docs/tau2.md says what and why. */
import { ActorsError, didYouMean } from '../../errors.ts';

export const FIXES = {
  variants: 'retail: items modified together each get the price and options of their own variant, not of the last one',
  refunds: 'retail: cancelling an order refunds its payments, not its refunds',
  atomic: 'a call that fails changes nothing (airline bookings that list one certificate twice)',
  communicate: 'a number that has to be told must stand alone: "10" is not in "2010"',
  stop: 'a stop in exactly the last step counts as a stop, not as max_steps',
  assertions: 'an assertion that raises is not met, instead of ending the evaluation',
} as const;

export type Fix = keyof typeof FIXES;
export type Fixes = ReadonlySet<Fix>;

/** `true`: all of them; a list or comma-separated text: those. SINKFLEX_ENVIRONMENT_OPTION for what is none. */
export function readFixes(value: unknown, environment: string): Fixes {
  if (value === undefined || value === null || value === false || value === '' || value === 'none') return new Set();
  if (value === true || value === 'all') return new Set(Object.keys(FIXES) as Fix[]);
  const names = typeof value === 'string' ? value.split(',').map((name) => name.trim()) : value;
  if (!Array.isArray(names)) throw refused(environment, value, 'it is true, or a list of names');
  for (const name of names) {
    if (typeof name === 'string' && Object.hasOwn(FIXES, name)) continue;
    const near = typeof name === 'string' ? didYouMean(name, Object.keys(FIXES)) : undefined;
    throw refused(environment, name, near ? `did you mean "${near}"?` : `known: ${Object.keys(FIXES).join(', ')}`);
  }
  return new Set(names as Fix[]);
}

function refused(environment: string, value: unknown, why: string): ActorsError {
  return new ActorsError('SINKFLEX_ENVIRONMENT_OPTION', `${environment}: option fixes=${JSON.stringify(value)}: ${why}`, {
    details: { environment, option: 'fixes' },
  });
}
