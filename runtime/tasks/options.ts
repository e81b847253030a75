// Checks what a user passes with a task, and fills in defaults.
import { bad, checkKnown, type Known } from '../api/check.ts';
import { checkRequest } from '../api/options.ts';
import type { PlacementOptions } from '../api/types.ts';
import { UNIT } from './admission.ts';
import type { TaskOptions } from './types.ts';

export interface CheckedOptions {
  isolation: 'thread' | 'process';
  /** In units of 1/10000. */
  cpus: number;
  maxRetries: number;
  retryOn: ((error: Error) => boolean) | undefined;
  timeoutMs: number | undefined;
  signal: AbortSignal | undefined;
  cancelGraceMs: number;
  /** Tasks that wait for it, each called by the one before; 0: no task called it. */
  depth: number;
  /** What the head is asked for, if it places the task. */
  placement: PlacementOptions | undefined;
}

/** What the head alone can give. */
const PLACED = ['gpus', 'memory', 'resources', 'labels', 'strategy', 'placementGroup', 'bundle'] as const;

const TASK: Known<TaskOptions> = {
  isolation: true,
  cpus: true,
  gpus: true,
  memory: true,
  resources: true,
  labels: true,
  strategy: true,
  placementGroup: true,
  bundle: true,
  maxRetries: true,
  retryOn: true,
  timeoutMs: true,
  signal: true,
  cancelGraceMs: true,
};

export function checkTask(options: TaskOptions, depth = 0): CheckedOptions {
  checkKnown('task', options, TASK);
  const placement = placementOf(options);
  const {
    isolation = placement === undefined ? 'thread' : 'process',
    cpus = 1,
    maxRetries = 3,
    retryOn,
    timeoutMs,
    signal,
    cancelGraceMs = 1000,
  } = options;
  if (isolation !== 'thread' && isolation !== 'process') bad('isolation', isolation, "'thread' or 'process'");
  if (placement !== undefined && isolation === 'thread')
    bad('isolation', isolation, `'process', or nothing of ${PLACED.join(', ')}: the head places processes`);
  if (!(Number.isFinite(cpus) && cpus >= 0)) bad('cpus', cpus, 'a number of at least 0');
  if (maxRetries !== Number.POSITIVE_INFINITY && (!Number.isSafeInteger(maxRetries) || maxRetries < 0))
    bad('maxRetries', maxRetries, 'an integer of at least 0');
  if (retryOn !== undefined && typeof retryOn !== 'function') bad('retryOn', retryOn, 'a function of the error');
  if (timeoutMs !== undefined && !(timeoutMs >= 0 && timeoutMs < 2 ** 31)) bad('timeoutMs', timeoutMs, 'milliseconds from 0 to 2^31 - 1');
  if (signal !== undefined && !(signal instanceof AbortSignal)) bad('signal', signal, 'an AbortSignal');
  if (!(cancelGraceMs >= 0 && cancelGraceMs < 2 ** 31)) bad('cancelGraceMs', cancelGraceMs, 'milliseconds from 0 to 2^31 - 1');
  return { isolation, cpus: Math.round(cpus * UNIT), maxRetries, retryOn, timeoutMs, signal, cancelGraceMs, depth, placement };
}

function placementOf(options: TaskOptions): PlacementOptions | undefined {
  const asked = Object.fromEntries(PLACED.flatMap((key) => (options[key] === undefined ? [] : [[key, options[key]]])));
  if (Object.keys(asked).length === 0) return undefined;
  const placement: PlacementOptions = { cpus: options.cpus ?? 1, ...asked };
  checkRequest(placement);
  return placement;
}
