/** Options of the environments `tau2-*`. SINKFLEX_ENVIRONMENT_OPTION for what they do not take. */
import { ActorsError, didYouMean } from '../../errors.ts';
import { SOLO, userKinds } from '../user/index.ts';
import type { Judge } from './evaluate.ts';
import { type Fixes, readFixes } from './settings.ts';

export interface Tau2Options {
  /** Folder of the benchmark's data. */
  data: string;
  /** Split that tasks are drawn from; `auto`: `train` for training seeds, `test` for validation seeds. */
  split: string;
  /** One task, whatever the seed. */
  task: string | undefined;
  /** Kind of user: `solo`, or a registered simulator. */
  user: string;
  maxSteps: number;
  maxErrors: number;
  fixes: Fixes;
  /** Telecom: `manual` or `workflow`, which technical policy the agent reads. */
  policy: string;
  /** For statements in natural language; a function, so only within one process. */
  judge: Judge | undefined;
  /** Settings of the user simulator. */
  userOptions: Record<string, unknown>;
}

/** Where the data are if nothing else says so. */
export const DATA_VARIABLE = 'TAU2_DATA';

const KNOWN = ['data', 'split', 'task', 'user', 'max_steps', 'max_errors', 'fixes', 'policy', 'judge', 'user_options'];

/** What a training run passes to every environment, and this one has no use for: its tasks have no level, its limits are steps. */
const GENERAL = ['level', 'maxTurns'];

export function readOptions(name: string, options: Record<string, unknown>): Tau2Options {
  for (const key of Object.keys(options)) {
    if (KNOWN.includes(key) || GENERAL.includes(key) || options[key] === undefined) continue;
    const near = didYouMean(key, KNOWN);
    throw refused(name, key, options[key], near ? `there is no such option; did you mean "${near}"?` : `known: ${KNOWN.join(', ')}`);
  }
  const text = <T extends string | undefined>(key: string, fallback: T): string | T => {
    const value = options[key] ?? fallback;
    // Ids are digits in some domains, which command lines read as numbers.
    if (typeof value === 'number') return String(value);
    if (value !== undefined && (typeof value !== 'string' || value === '')) throw refused(name, key, value, 'it is a text');
    return value as string | T;
  };
  const whole = (key: string, fallback: number): number => {
    const value = options[key] ?? fallback;
    if (typeof value !== 'number' || !Number.isInteger(value) || value < 1) throw refused(name, key, value, 'it is a whole number from 1');
    return value;
  };
  const user = text('user', SOLO);
  if (!userKinds().includes(user)) {
    const near = didYouMean(user, userKinds());
    throw refused(name, 'user', user, `there is no such user; ${near ? `did you mean "${near}"?` : `known: ${userKinds().join(', ')}`}`);
  }
  const policy = text('policy', 'manual');
  if (policy !== 'manual' && policy !== 'workflow') throw refused(name, 'policy', policy, 'it is manual or workflow');
  const { judge, user_options: userOptions = {} } = options;
  if (judge !== undefined && typeof judge !== 'function') throw refused(name, 'judge', judge, 'it is a function');
  if (typeof userOptions !== 'object' || userOptions === null) throw refused(name, 'user_options', userOptions, 'they are settings');
  return {
    data: text('data', process.env[DATA_VARIABLE]) ?? 'data/tau2/domains',
    split: text('split', 'auto'),
    task: text('task', undefined),
    user,
    maxSteps: whole('max_steps', 100),
    maxErrors: whole('max_errors', 10),
    fixes: readFixes(options.fixes, name),
    policy,
    judge: judge as Judge | undefined,
    userOptions: userOptions as Record<string, unknown>,
  };
}

function refused(environment: string, key: string, value: unknown, why: string): ActorsError {
  return new ActorsError('SINKFLEX_ENVIRONMENT_OPTION', `${environment}: option ${key}=${JSON.stringify(value)}: ${why}`, {
    details: { environment, option: key },
  });
}
