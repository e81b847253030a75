// What those who look at a worker see of its tasks: counts by name, and the calls that run or wait.
import type { MethodCounts } from '../worker/counters.ts';

/** A task's call, at its owner. */
export interface SeenTask {
  task: string;
  /** It was sent to what runs it; until then it waits for processors. */
  running: boolean;
  /** performance.now() of the call, of its sending, and of its deadline; 0: none. */
  since: number;
  sentAt: number;
  expiresAt: number;
}

const counts = new Map<string, MethodCounts>();

function countsOf(task: string): MethodCounts {
  let known = counts.get(task);
  if (known === undefined) {
    known = { started: 0, finished: 0, failed: 0 };
    counts.set(task, known);
  }
  return known;
}

export function countSent(task: string, calls: number): void {
  countsOf(task).started += calls;
}

export function countSettled(task: string, ok: boolean): void {
  countsOf(task)[ok ? 'finished' : 'failed']++;
}

let calls: (() => Iterable<SeenTask>) | undefined;

/** Says where the calls of this worker are. */
export function showTasks(of: (() => Iterable<SeenTask>) | undefined): void {
  calls = of;
}

export function seenTasks(): Iterable<SeenTask> {
  return calls?.() ?? [];
}

export function taskCounts(): Record<string, MethodCounts> {
  return Object.fromEntries(counts);
}
