/** Options of tau2-retail-generated. */
import { ActorsError, didYouMean } from '../../../errors.ts';
import { DATA_VARIABLE } from '../options.ts';

export interface GeneratedOptions {
  data: string;
  maxTurns: number;
  maxErrors: number;
}

const KNOWN = ['data', 'max_errors', 'maxTurns', 'level'];

export function readOptions(options: Record<string, unknown> = {}): GeneratedOptions {
  const refused = (key: string, why: string) =>
    new ActorsError('SINKFLEX_ENVIRONMENT_OPTION', `tau2-retail-generated: option ${key}=${JSON.stringify(options[key])}: ${why}`, {
      details: { environment: 'tau2-retail-generated', option: key },
    });
  for (const key of Object.keys(options)) {
    if (KNOWN.includes(key) || options[key] === undefined) continue;
    const near = didYouMean(key, KNOWN);
    throw refused(key, near ? `there is no such option; did you mean "${near}"?` : `known: ${KNOWN.join(', ')}`);
  }
  const whole = (key: string, fallback: number): number => {
    const value = options[key] ?? fallback;
    if (typeof value !== 'number' || !Number.isInteger(value) || value < 1) throw refused(key, 'it is a whole number from 1');
    return value;
  };
  const data = options.data ?? process.env[DATA_VARIABLE] ?? 'data/tau2/domains';
  if (typeof data !== 'string' || data === '') throw refused('data', 'it is a folder');
  return { data, maxTurns: whole('maxTurns', 24), maxErrors: whole('max_errors', 6) };
}
