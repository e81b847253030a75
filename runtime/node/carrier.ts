// What carries a worker, as the agent sees it: a process or a thread. Both report messages, output, health and their end in the same way.
import type { Health } from '../api/types.ts';
import type { EnvironmentChange, FromAgent, ToAgent, WorkerBirth } from '../control/index.ts';

export type { EnvironmentChange, Health };

export interface WorkerEnd {
  exitCode?: number;
  signal?: string;
  lastStderr: string[];
  /** The error that ended it, where the carrier itself brings it: uncaught in a thread, over its memory limit, unresponsive. */
  error?: unknown;
  /** It ended for want of memory: its own limit, that of its JavaScript heap, or the machine's. */
  outOfMemory?: boolean;
}

export interface CarrierEvents {
  onMessage(message: ToAgent): void;
  onLine(stream: 'stdout' | 'stderr', line: string): void;
  /** Once, within 50 ms of the end. */
  onEnd(end: WorkerEnd): void;
  /** It had to wait for its start, and has a pid now. */
  onPid?(): void;
  /** `forMs`: how long it has been so, when it was noticed. */
  onHealth?(health: Health, forMs: number): void;
}

export interface WorkerCarrier {
  readonly pid: number | undefined;
  /** Of a thread of this process. */
  readonly threadId?: number;
  send(message: FromAgent): void;
  /** Ends it at once, with everything it started. */
  destroy(): void;
}

/** A worker as the agent asks for it. */
export interface WorkerRequest {
  birth: WorkerBirth;
  /** How it is called in lists of processes. */
  label: string;
  env: Record<string, string>;
  cwd?: string;
  execArgv: readonly string[];
  /** The module that its first actor comes from: if it needs a loader, so does the worker. */
  module: string;
  /** Bytes that its process may use; 0: no limit. */
  memory: number;
  /** Ends it when its loop was blocked, or its process stopped, for so long; 0: never. */
  unresponsiveMs: number;
}

/** What makes a started worker that of one actor. Environment and folder as they differ from those that it was started with. */
export interface Adoption {
  birth: WorkerBirth;
  label: string;
  environment: EnvironmentChange;
}

/** A worker that has been started and belongs to no actor yet. */
export interface Spare {
  readonly pid: number | undefined;
  /** Its modules are loaded. */
  readonly ready: boolean;
  /** Called once: when it is ready, or has ended before. */
  onReady: (() => void) | undefined;
  /** Called if it ends while it belongs to nobody. */
  onGone: (() => void) | undefined;
  /** It has time: to run once what its first call will need. */
  rehearse(folder: string): void;
  adopt(adoption: Adoption, events: CarrierEvents): WorkerCarrier;
  destroy(): void;
}

/** Output that is still on its way when a worker ends is waited for this long. */
export const STDERR_GRACE_MS = 25;

/** Entry modules have the extension of this one: .js in dist, .ts under a loader. */
export function entryUrl(path: string): URL {
  return new URL(path + (import.meta.url.endsWith('.ts') ? '.ts' : '.js'), import.meta.url);
}
