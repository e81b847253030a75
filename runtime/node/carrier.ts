// What carries a worker, as the agent sees it: a process or a thread. Both report messages, output and their end in the same way.
import type { FromAgent, ToAgent, WorkerBirth } from '../control/index.ts';

export interface WorkerEnd {
  exitCode?: number;
  signal?: string;
  lastStderr: string[];
  /** The error that ended it, where the carrier itself brings it (threads). */
  error?: unknown;
}

export interface CarrierEvents {
  onMessage(message: ToAgent): void;
  onLine(stream: 'stdout' | 'stderr', line: string): void;
  /** Once, within 50 ms of the end. */
  onEnd(end: WorkerEnd): void;
}

export interface WorkerCarrier {
  readonly pid: number | undefined;
  send(message: FromAgent): void;
  /** Ends it at once, with everything it started. */
  destroy(): void;
}

export interface CarrierOptions {
  birth: WorkerBirth;
  label: string;
  env: Record<string, string>;
  /** The module that its first actor comes from: if it needs a loader, so does the worker. */
  module: string;
}

/** Output that is still on its way when a worker ends is waited for this long. */
export const STDERR_GRACE_MS = 25;

/** Entry modules have the extension of this one: .js in dist, .ts under a loader. */
export function entryUrl(path: string): URL {
  return new URL(path + (import.meta.url.endsWith('.ts') ? '.ts' : '.js'), import.meta.url);
}
