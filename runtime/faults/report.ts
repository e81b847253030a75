// What a plan of faults has done to a run, and what came of it.
import type { Done } from '../links/emulation.ts';

export interface Injected {
  fault: string;
  target: string;
  /** Since the plan began. */
  atMs: number;
  /** Of the job, if it counts them. */
  step?: number;
  /** From the fault until all that it hit did what it should; absent: it did not, or the fault failed. */
  recoveredMs?: number;
  /** Why it could not be injected. */
  failed?: string;
}

export interface FaultReport {
  seed: number;
  tookMs: number;
  injected: Injected[];
  /** Messages between hosts, of all processes that could still be asked. */
  messages: Done;
  /** What there was when the plan began and is not there any more; of a job also what it counts itself. */
  lost: { actors: string[]; [what: string]: readonly string[] | number };
}

/** One fault a line, then what was lost. */
export function faultText({ seed, injected, messages, lost, tookMs }: FaultReport): string {
  const lines = injected.map(({ fault, target, atMs, step, recoveredMs, failed }) => {
    const when = `${seconds(atMs)}${step === undefined ? '' : `, step ${step}`}`;
    const how =
      failed !== undefined
        ? `not injected: ${failed}`
        : recoveredMs === undefined
          ? 'NOT RECOVERED'
          : `recovered after ${seconds(recoveredMs)}`;
    return `  ${fault} ${target} (${when}): ${how}`;
  });
  const touched = Object.entries(messages).filter(([what, count]) => count > 0 && what !== 'passed');
  const onLinks = touched.length === 0 ? [] : [`  messages: ${touched.map(([what, count]) => `${count} ${what}`).join(', ')}`];
  const losses = Object.entries(lost).flatMap(([what, value]) => {
    const count = typeof value === 'number' ? value : value.length;
    return count === 0 ? [] : [`${count} ${what}${typeof value === 'number' ? '' : ` (${value.join(', ')})`}`];
  });
  return [
    `faults (seed ${seed}): ${injected.length} in ${seconds(tookMs)}`,
    ...lines,
    ...onLinks,
    `  lost: ${losses.length === 0 ? 'nothing' : losses.join(', ')}`,
  ].join('\n');
}

const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;
