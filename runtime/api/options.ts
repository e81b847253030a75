// Checks what a user passes, and fills in defaults. Wrong options fail where they were written, not in a worker.
import { availableParallelism } from 'node:os';
import type { ActorSpec } from '../control/index.ts';
import { RuntimeFailure } from './errors.ts';
import type { CallOptions, InitOptions, SpawnOptions } from './types.ts';

function bad(option: string, value: unknown, wanted: string): never {
  throw new RuntimeFailure(
    'SINKFLEX_BAD_OPTION',
    `${option} is ${typeof value === 'string' ? JSON.stringify(value) : String(value)}; it must be ${wanted}`,
  );
}

function count(option: string, value: number | undefined, fallback: number, least: number): number {
  if (value === undefined) return fallback;
  if (value === Number.POSITIVE_INFINITY) return Number.MAX_SAFE_INTEGER;
  if (!Number.isSafeInteger(value) || value < least) bad(option, value, `an integer of at least ${least}`);
  return value;
}

function ms(option: string, value: number | undefined, fallback: number): number {
  if (value === undefined) return fallback;
  if (typeof value !== 'number' || !(value >= 0) || value > 2 ** 31 - 1) bad(option, value, 'milliseconds from 0 to 2^31 - 1');
  return value;
}

type Checked = Omit<ActorSpec, 'actor' | 'kind' | 'definition' | 'module' | 'exportName' | 'methods' | 'args' | 'name'> & {
  name: string | undefined;
};

export function checkSpawn(options: SpawnOptions): Checked {
  const { name, isolation = 'process', env = {}, imports = [], args } = options;
  if (name !== undefined && !/^[A-Za-z0-9._:/-]{1,128}$/.test(name)) bad('name', name, '1 to 128 characters of A-Z a-z 0-9 . _ : / -');
  if (isolation !== 'process' && isolation !== 'thread' && isolation !== 'shared')
    bad('isolation', isolation, "'process', 'thread' or 'shared'");
  if (Object.keys(env).length > 0 && isolation !== 'process') bad('env', JSON.stringify(env), "left out unless isolation is 'process'");
  if (!Array.isArray(imports) || !imports.every((url) => URL.canParse(url)))
    bad('imports', imports, 'URLs of modules, such as import.meta.url');
  if (args !== undefined && !Array.isArray(args)) bad('args', args, 'an array of constructor arguments');
  return {
    name,
    isolation,
    env: { ...env },
    imports: [...imports],
    cpus: count('cpus', options.cpus, 1, 1),
    maxRestarts: count('maxRestarts', options.maxRestarts, 0, 0),
    restartWindowMs: ms('restartWindowMs', options.restartWindowMs, 60_000),
    restartBackoffMs: ms('restartBackoffMs', options.restartBackoffMs, 100),
    maxConcurrency: count('maxConcurrency', options.maxConcurrency, 1, 1),
    maxPending: count('maxPending', options.maxPending, Number.MAX_SAFE_INTEGER, 0),
  };
}

export function checkCall(options: CallOptions): CallOptions {
  if (options.timeoutMs !== undefined) ms('timeoutMs', options.timeoutMs, 0);
  if (options.signal !== undefined && !(options.signal instanceof AbortSignal)) bad('signal', options.signal, 'an AbortSignal');
  return options;
}

export function checkInit(options: InitOptions): Required<Omit<InitOptions, 'onOutput'>> {
  return {
    cpus: count('cpus', options.cpus, availableParallelism(), 1),
    sharedWorkers: count('sharedWorkers', options.sharedWorkers, 1, 1),
    maxInFlightBytes: count('maxInFlightBytes', options.maxInFlightBytes, 2 ** 30, 1),
  };
}
