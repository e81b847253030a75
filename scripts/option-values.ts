// Values of command-line options: what commander calls to read one. A wrong value is a usage error that says what it must be.
import { InvalidArgumentError, Option } from 'commander';
import { deviceChoice, isSinkflexError } from '../kernels/index.ts';

export function port(text: string): number {
  const value = wholeNumber(0)(text);
  if (value > 65_535) throw new InvalidArgumentError('it must be a port, 0 to 65535');
  return value;
}

export function wholeNumber(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!Number.isSafeInteger(value) || value < least) throw new InvalidArgumentError(`it must be an integer of at least ${least}`);
    return value;
  };
}

export function between(low: number, high: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!(value >= low && value <= high)) throw new InvalidArgumentError(`it must be a number from ${low} to ${high}`);
    return value;
  };
}

/** One of several `name=value`. */
export function pair(text: string, earlier: Record<string, string>): Record<string, string> {
  const at = text.indexOf('=');
  if (at < 1) throw new InvalidArgumentError('it must be name=value');
  return { ...earlier, [text.slice(0, at)]: text.slice(at + 1) };
}

/** --device of a command whose model runs in its own process. */
export function deviceOption(): Option {
  return new Option('--device <name>', 'what the model computes on: cpu, cuda (the first GPU), cuda:1')
    .default('cpu')
    .argParser((name: string) => {
      try {
        deviceChoice(name);
        return name;
      } catch (error) {
        throw isSinkflexError(error) ? new InvalidArgumentError(error.message) : error;
      }
    });
}

/** --device as settings of a run. */
export const deviceSettings = (device: string): Record<string, string> =>
  Object.fromEntries(['actor', 'rollout', 'reference'].map((role) => [`${role}.device`, device]));
