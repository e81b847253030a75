// What may be asked of a worker, and what it answers: plain data that crosses the link between agent and worker. Lists are cut to a limit
// and always say how long they really are.

import type { FaultOrder } from '../faults/orders.ts';

export type Question =
  | { ask: 'vitals' }
  /** `unanswered`: calls that this worker sent to one of these workers and that have no answer yet. */
  | { ask: 'calls'; limit: number; unanswered: number[] }
  | { ask: 'objects'; limit: number }
  | { ask: 'timeline' }
  /** What faults on order have done to what it says to other hosts. */
  | { ask: 'messages' };

/** What an agent answers itself. */
export type AgentQuestion = { ask: 'workers' } | { ask: 'stack'; worker: number } | { ask: 'fault'; order: FaultOrder };

/** Upper bounds of the lag histogram's buckets, milliseconds; one more bucket has everything above. */
export const LAG_BUCKETS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000] as const;

/** How late the event loop's timer ran, since the worker started. */
export interface LagCounts {
  buckets: number[];
  count: number;
  sumMs: number;
  maxMs: number;
}

/** Calls of one method of one kind of actor in a worker, since the worker started. */
export interface MethodCounts {
  kind: string;
  method: string;
  started: number;
  finished: number;
  failed: number;
}

/** An actor with something to do: calls under way, calls that wait. */
export interface BusyActor {
  actor: number;
  running: number;
  queued: number;
}

export interface Vitals {
  worker: number;
  pid: number;
  uptimeMs: number;
  /** Bytes; of the process (rss, external) or of this thread (heap). */
  memory: { rss: number; heapUsed: number; heapTotal: number; external: number; arrayBuffers: number };
  /** Processor time of the process, milliseconds. */
  cpu: { userMs: number; systemMs: number };
  lag: LagCounts;
  actors: number;
  busy: BusyActor[];
  channels: ChannelState[];
  methods: MethodCounts[];
  /** Values that others hold. */
  lent: number;
}

export interface ChannelState {
  peer: number;
  /** Calls and fetches without an answer, and the bytes of those calls. */
  unanswered: number;
  bytesInFlight: number;
}

/**
 * running: its method has begun. queued: in the actor's mailbox. arguments: in the mailbox, and a ref among its arguments has not arrived.
 * unsent: waits at its caller, since the actor is not there. unanswered: sent to a worker that does not say what it is doing.
 */
export type CallState = 'running' | 'queued' | 'arguments' | 'unsent' | 'unanswered';

export interface CallRow {
  state: CallState;
  /** 0: a task. */
  actor: number;
  method: string;
  /** Worker that made the call, and the number it gave it; 0: none yet. */
  caller: number;
  call: number;
  /** Since it arrived, or was made; -1: not known. */
  ageMs: number;
  /** Since its method began; -1: it has not, or not known. */
  runningMs: number;
  /** Until its deadline; -1: none. */
  remainingMs: number;
}

export interface ObjectState {
  id: number;
  state: 'pending' | 'value' | 'failed' | 'released';
  /** Encoded bytes where the value has been encoded; -1: not known. */
  bytes: number;
  /** Where the bytes are. */
  place: 'heap' | 'shared' | 'spilled';
  /** Views of it that readers have, and readers that are about to have one. */
  pins: number;
  /** The method whose answer it is; '': put(). */
  method: string;
  /** Worker -> times lent. -1: constructor arguments, kept for restarts. */
  holders: [worker: number, times: number][];
}

/** The first of a list, oldest first, and how many there are. */
export interface Cut<T> {
  items: T[];
  total: number;
}

/** What a worker has recorded of calls, oldest first; times are its performance.now(). null instead: it does not record. */
export interface Recording {
  /** performance.timeOrigin. */
  timeOrigin: number;
  methods: string[];
  /** Nine numbers a call that it ran: actor, incarnation, method, calling worker, call, received, started, duration (ms), ok. */
  runs: Float64Array;
  /** Six numbers a call that it made: calling actor (0: none), actor, method, worker of that, call, sent. */
  sent: Float64Array;
  /** Older ones that were overwritten. */
  lost: number;
  lostSent: number;
}
