// What people and programs are shown of a run. Plain data, the same as function results and as JSON of the commands.
import type { ActorInfo } from '../api/types.ts';
import type { GroupView, NodeView } from '../control/index.ts';
import type { CallState, LagCounts } from './questions.ts';

/** A worker whose part is missing in an answer. `starting`: it has not come so far. `silent`: nobody can tell why. */
export interface Silent {
  worker: number;
  name: string;
  pid: number | undefined;
  why: 'starting' | 'blocked' | 'stopped' | 'ended' | 'silent';
}

/** The first `items.length` of `total`; nothing is left out silently. */
export interface Listing<T> {
  items: T[];
  total: number;
  /** Workers that did not answer: what they have is not in here. */
  silent: Silent[];
}

export interface ListOptions {
  /** At most so many items; default all. */
  limit?: number;
  /** Only items of which each field, as text, is this value: `{ state: 'alive' }`. `!value`: is another. */
  where?: Record<string, string>;
  /** How long a worker may take to answer. Default 1000. */
  timeoutMs?: number;
}

export interface TaskInfo {
  /** ''; a task, which has no actor of its own. */
  actor: string;
  kind: string;
  method: string;
  state: CallState;
  /** Name of the worker that made the call: `driver`, an actor, or a shared worker. */
  caller: string;
  /** Number that the caller gave the call; 0: none yet. */
  call: number;
  worker: number;
  pid: number | undefined;
  /** Milliseconds since it arrived at the actor, or was made. */
  ageMs?: number;
  runningMs?: number;
  /** Until its deadline. */
  remainingMs?: number;
}

export interface ObjectInfo {
  /** `<worker>.<number>` */
  id: string;
  state: 'pending' | 'value' | 'failed' | 'released';
  owner: string;
  pid: number | undefined;
  bytes?: number;
  /** `heap`: in its owner. `shared`: shared memory. `spilled`: on disk. */
  place: 'heap' | 'shared' | 'spilled';
  /** Views of it that readers have mapped. */
  pins: number;
  /** The method whose answer it is; `put()` otherwise. */
  origin: string;
  /** Who holds it, and how many times. */
  holders: { name: string; times: number }[];
}

export interface WorkerInfo {
  worker: number;
  name: string;
  isolation: 'driver' | ActorInfo['isolation'];
  pid: number | undefined;
  state: 'ok' | Silent['why'];
  actors: number;
  running?: number;
  queued?: number;
  /** Delays of its event loop since its start, milliseconds. */
  lag?: { p50Ms: number; p99Ms: number; maxMs: number };
  memory?: { rss: number; heapUsed: number; external: number };
  /** Calls without an answer, and their bytes. */
  unanswered?: number;
  bytesInFlight?: number;
  channels?: number;
  uptimeMs?: number;
}

export type NodeInfo = NodeView;
export type GroupInfo = GroupView;

/** An actor with what its worker says of it. */
export interface ActorRow extends ActorInfo {
  running?: number;
  queued?: number;
}

export interface EventInfo {
  /** ISO 8601. */
  time: string;
  what: 'actor' | 'worker' | 'node' | 'group' | 'run';
  name: string;
  /** What has become of it: a state, `started`, `ended`. */
  change: string;
  /** Why, and what belongs to it. */
  details?: Record<string, unknown>;
}

export interface StatusInfo {
  folder: string;
  pid: number;
  /** ISO 8601. */
  startedAt: string;
  uptimeMs: number;
  node: string;
  actors: Record<string, number>;
  restarts: number;
  workers: Record<string, number>;
  calls: { running: number; queued: number; unanswered: number; bytesInFlight: number };
  lent: number;
  /** Of all processes of the run, bytes. */
  memory: { rss: number };
  /** The worker whose loop ran latest. */
  worstLag?: { name: string; p99Ms: number; maxMs: number };
  nodes: NodeInfo[];
  groups: Record<string, number>;
  /** Actors that wait for room, and why. */
  pending: Listing<{ actor: string; why: string }>;
  silent: Silent[];
  /** The last few, newest last. */
  events: EventInfo[];
}

export interface SummaryRow {
  kind: string;
  method: string;
  /** Calls that began and ended since the start of the workers that live. */
  started: number;
  failed: number;
  running: number;
  queued: number;
  /** Durations, milliseconds; only with init({ timeline: true }), of the calls that the recorders still hold. */
  recorded?: number;
  p50Ms?: number;
  p99Ms?: number;
  maxMs?: number;
}

export type { LagCounts };
