// What a worker counts of the calls that it runs, the recorder that a timeline attaches, and the warning about methods that keep the
// event loop. Counting costs an increment; without a recorder no clock is read for it.

export interface MethodCounts {
  started: number;
  finished: number;
  failed: number;
}

export interface ActorCounts {
  actor: number;
  name: string;
  kind: string;
  incarnation: number;
  /** Calls that wait to start, those whose refs are still being fetched included. */
  mailbox: number;
  /** Calls under way. */
  running: number;
  methods: Record<string, MethodCounts>;
}

/** By kind: what actors that have ended here had counted, so that sums over a worker never go back. */
const ended = new Map<string, Record<string, MethodCounts>>();

export function keepCounts({ kind, methods }: ActorCounts): void {
  const sums = ended.get(kind);
  if (sums === undefined) {
    ended.set(kind, methods);
    return;
  }
  for (const [name, counts] of Object.entries(methods)) {
    const sum = sums[name];
    if (sum === undefined) sums[name] = counts;
    else {
      sum.started += counts.started;
      sum.finished += counts.finished;
      sum.failed += counts.failed;
    }
  }
}

export function* endedCounts(): IterableIterator<Pick<ActorCounts, 'kind' | 'methods'>> {
  for (const [kind, methods] of ended) yield { kind, methods };
}

/** One call that has ended. Times are performance.now() of this worker. */
export interface CallRecord {
  actor: number;
  name: string;
  incarnation: number;
  method: string;
  /** Worker that made the call, and the number that it gave it. */
  caller: number;
  call: number;
  receivedAt: number;
  startedAt: number;
  durationMs: number;
  ok: boolean;
}

export type Recorder = (call: CallRecord) => void;

/** One call that was sent. */
export interface SentRecord {
  /** The actor whose code made it, as far as that is known; 0: none. */
  from: number;
  actor: number;
  method: string;
  worker: number;
  call: number;
  at: number;
}

let recorder: Recorder | undefined;
let sentRecorder: ((sent: SentRecord) => void) | undefined;

/** Calls back at every call that this worker sends; undefined: no more. */
export function setSentRecorder(next: ((sent: SentRecord) => void) | undefined): void {
  sentRecorder = next;
}

export function currentSentRecorder(): ((sent: SentRecord) => void) | undefined {
  return sentRecorder;
}

/** Calls back at the end of every call that this worker runs; undefined: no more. */
export function setRecorder(next: Recorder | undefined): void {
  recorder = next;
}

export function currentRecorder(): Recorder | undefined {
  return recorder;
}

/** A synchronous part of a method that takes longer keeps every other call of the worker waiting. */
const BLOCKED_MS = 1000;
const warned = new Set<string>();

/** Tells once a method, on stderr. */
export function checkBlocked(kind: string, method: string, ms: number): void {
  if (ms <= BLOCKED_MS) return;
  const key = `${kind}.${method}`;
  if (warned.has(key)) return;
  warned.add(key);
  process.stderr.write(
    `[sinkflex] ${key}() kept the event loop for ${Math.round(ms)} ms without a pause; nothing else of its worker ran meanwhile. Give it an await, a task or an actor of its own\n`,
  );
}
