// Recorded calls as a Chrome trace that Perfetto and chrome://tracing open: a track an actor (more where its calls overlap), a slice a call,
// an arrow from where it was made.
import type { Silent } from './facts.ts';
import type { Recording } from './questions.ts';
import { RUN_FIELDS, SENT_FIELDS } from './recorder.ts';

/** What a run has recorded. */
export interface TimelineData {
  workers: { worker: number; name: string; pid: number; recording: Recording }[];
  actors: { id: number; name: string; kind: string }[];
  /** Workers whose part is missing. Calls of workers that have ended are gone as well. */
  silent: Silent[];
}

export interface TraceEvent {
  name: string;
  /** X: slice. s, f: both ends of an arrow. M: names of tracks. */
  ph: 'X' | 's' | 'f' | 'M';
  /** Microseconds. */
  ts: number;
  dur?: number;
  pid: number;
  tid: number;
  cat?: string;
  id?: string;
  bp?: 'e';
  args?: Record<string, unknown>;
}

export interface Timeline {
  traceEvents: TraceEvent[];
  displayTimeUnit: 'ms';
  otherData: {
    /** ISO 8601, of time 0. */
    startedAt: string;
    /** Slices of calls, and arrows between them. */
    calls: number;
    arrows: number;
    /** Calls that were recorded once and had to make room. */
    lost: number;
    silent: Silent[];
  };
}

interface Run {
  actor: number;
  incarnation: number;
  method: string;
  caller: number;
  call: number;
  receivedUs: number;
  startUs: number;
  endUs: number;
  ok: boolean;
  worker: number;
  tid: number;
}

interface Sent {
  from: number;
  actor: number;
  method: string;
  us: number;
}

/** Clocks of two processes of a host differ by less. */
const SKEW_US = 1000;
/** A mark on the track of who makes a call, for the arrow to start from. */
const MARK_US = 1;

export function buildTimeline({ workers, actors, silent }: TimelineData): Timeline {
  const names = new Map(actors.map((actor) => [actor.id, actor]));
  const runs: Run[] = [];
  const sent = new Map<string, Sent[]>();
  const origin = workers.reduce((first, { recording }) => Math.min(first, earliest(recording)), Number.POSITIVE_INFINITY);
  const start = Number.isFinite(origin) ? origin : Date.now();
  for (const { worker, recording } of workers) {
    const us = (ms: number): number => (recording.timeOrigin + ms - start) * 1000;
    each(recording.runs, RUN_FIELDS, ([actor, incarnation, method, caller, call, received, started, duration, ok]) =>
      runs.push({
        actor: actor!,
        incarnation: incarnation!,
        method: recording.methods[method!]!,
        caller: caller!,
        call: call!,
        receivedUs: us(received!),
        startUs: us(started!),
        endUs: us(started! + duration!),
        ok: ok === 1,
        worker,
        tid: 0,
      }),
    );
    each(recording.sent, SENT_FIELDS, ([from, actor, method, peer, call, at]) => {
      const key = `${worker}-${peer}-${call}`;
      const one = { from: from!, actor: actor!, method: recording.methods[method!]!, us: us(at!) };
      const list = sent.get(key);
      if (list === undefined) sent.set(key, [one]);
      else list.push(one);
    });
  }
  runs.sort((a, b) => a.startUs - b.startUs || b.endUs - a.endUs);
  const tracks = new Tracks(workers, names);
  const events: TraceEvent[] = [];
  for (const run of runs) {
    run.tid = tracks.place(run);
    events.push({
      name: run.method,
      cat: run.ok ? 'call' : 'call,failed',
      ph: 'X',
      ts: run.startUs,
      dur: run.endUs - run.startUs,
      pid: tracks.pidOf(run.worker),
      tid: run.tid,
      args: {
        actor: names.get(run.actor)?.name ?? String(run.actor),
        incarnation: run.incarnation,
        caller: tracks.nameOf(run.caller),
        call: run.call,
        waitedMs: Math.max(0, run.startUs - run.receivedUs) / 1000,
        ...(run.ok ? {} : { failed: true }),
      },
    });
  }
  const arrows = arrowsOf(runs, sent, tracks, names);
  return {
    traceEvents: [...tracks.metadata(), ...events, ...arrows],
    displayTimeUnit: 'ms',
    otherData: {
      startedAt: new Date(start).toISOString(),
      calls: runs.length,
      arrows: arrows.length / 3,
      lost: workers.reduce((sum, { recording }) => sum + recording.lost, 0),
      silent,
    },
  };
}

/** Each call is joined to where it was made: numbers are used again when a channel was opened anew, so the latest that fits. */
function arrowsOf(runs: Run[], sent: Map<string, Sent[]>, tracks: Tracks, names: ReadonlyMap<number, { name: string }>): TraceEvent[] {
  const arrows: TraceEvent[] = [];
  const marks: TraceEvent[] = [];
  for (const run of runs) {
    const made = sent
      .get(`${run.caller}-${run.worker}-${run.call}`)
      ?.findLast(({ us, actor }) => actor === run.actor && us <= run.receivedUs + SKEW_US);
    if (made === undefined) continue;
    const pid = tracks.pidOf(run.caller);
    const ts = Math.min(made.us, run.startUs);
    const { tid, until } = tracks.under(run.caller, made.from, ts);
    const id = `${run.caller}-${run.worker}-${run.call}-${arrows.length / 3}`;
    const name = `to ${names.get(run.actor)?.name ?? run.actor}.${run.method}`;
    const mark: TraceEvent = { name, cat: 'made', ph: 'X', ts, dur: Math.min(MARK_US, until - ts), pid, tid };
    marks.push(mark);
    arrows.push(
      mark,
      { name: 'call', cat: 'flow', ph: 's', ts, pid, tid, id },
      { name: 'call', cat: 'flow', ph: 'f', bp: 'e', ts: run.startUs, pid: tracks.pidOf(run.worker), tid: run.tid, id },
    );
  }
  // Slices of a track may lie in each other, but not overlap.
  marks.sort((a, b) => a.tid - b.tid || a.ts - b.ts);
  for (let i = 1; i < marks.length; i++) {
    const [mark, next] = [marks[i - 1]!, marks[i]!];
    if (mark.tid === next.tid) mark.dur = Math.min(mark.dur!, next.ts - mark.ts);
  }
  return arrows;
}

/** Which line of the picture belongs to whom. */
class Tracks {
  readonly #workers: ReadonlyMap<number, { name: string; pid: number }>;
  readonly #actors: ReadonlyMap<number, { name: string; kind: string }>;
  /** `<worker> <actor>` -> its lanes: number of the track, and the ends of the calls that lie open on it, outermost first. */
  readonly #lanes = new Map<string, { tid: number; spans: [start: number, end: number][]; until: number }[]>();
  #next = 1;

  constructor(workers: TimelineData['workers'], actors: ReadonlyMap<number, { name: string; kind: string }>) {
    this.#workers = new Map(workers.map((worker) => [worker.worker, worker]));
    this.#actors = actors;
  }

  pidOf(worker: number): number {
    return this.#workers.get(worker)?.pid ?? 0;
  }

  nameOf(worker: number): string {
    return this.#workers.get(worker)?.name ?? `worker ${worker}`;
  }

  #of(worker: number, actor: number): { tid: number; spans: [start: number, end: number][]; until: number }[] {
    const key = `${worker} ${actor}`;
    let lanes = this.#lanes.get(key);
    if (lanes === undefined) {
      lanes = [];
      this.#lanes.set(key, lanes);
    }
    return lanes;
  }

  /** Calls come in order of their start; one that overlaps another of its actor goes on a lane of its own. */
  place({ worker, actor, startUs, endUs }: Run): number {
    const lanes = this.#of(worker, actor);
    let lane = lanes.find(({ until }) => until <= startUs);
    if (lane === undefined) {
      lane = { tid: this.#next++, spans: [], until: 0 };
      lanes.push(lane);
    }
    lane.until = endUs;
    lane.spans.push([startUs, endUs]);
    return lane.tid;
  }

  /** The lane of the actor on which a call was under way at that time, or its first; and what it lies in there, or before. */
  under(worker: number, actor: number, us: number): { tid: number; until: number } {
    const lanes = this.#of(worker, actor);
    for (const { tid, spans } of lanes) {
      const span = spans[before(spans, us) - 1];
      if (span !== undefined && us <= span[1]) return { tid, until: span[1] };
    }
    if (lanes.length === 0) lanes.push({ tid: this.#next++, spans: [], until: 0 });
    const [{ tid, spans }] = lanes as [(typeof lanes)[number]];
    return { tid, until: spans[before(spans, us)]?.[0] ?? Number.POSITIVE_INFINITY };
  }

  *metadata(): IterableIterator<TraceEvent> {
    const pids = new Map<number, string>();
    for (const [number, { pid, name }] of this.#workers) if (number === 0 || !pids.has(pid)) pids.set(pid, name);
    for (const [pid, name] of pids) yield { name: 'process_name', ph: 'M', ts: 0, pid, tid: 0, args: { name } };
    for (const [key, lanes] of this.#lanes) {
      const [worker, actor] = key.split(' ').map(Number);
      const known = this.#actors.get(actor!);
      const name = actor === 0 ? this.nameOf(worker!) : known === undefined ? `actor ${actor}` : `${known.name} (${known.kind})`;
      for (const [i, { tid }] of lanes.entries())
        yield { name: 'thread_name', ph: 'M', ts: 0, pid: this.pidOf(worker!), tid, args: { name: i === 0 ? name : `${name} +${i}` } };
    }
  }
}

/** How many spans start at or before that time. */
function before(spans: readonly [number, number][], us: number): number {
  let low = 0;
  let high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle]![0] <= us) low = middle + 1;
    else high = middle;
  }
  return low;
}

function each(numbers: Float64Array, fields: number, visit: (entry: Float64Array) => void): void {
  for (let at = 0; at < numbers.length; at += fields) visit(numbers.subarray(at, at + fields));
}

/** Epoch milliseconds. */
function earliest({ timeOrigin, runs, sent }: Recording): number {
  let first = Number.POSITIVE_INFINITY;
  each(runs, RUN_FIELDS, (entry) => {
    first = Math.min(first, entry[5]! > 0 ? entry[5]! : entry[6]!);
  });
  each(sent, SENT_FIELDS, (entry) => {
    first = Math.min(first, entry[5]!);
  });
  return timeOrigin + first;
}
