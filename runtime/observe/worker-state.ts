// Inside a worker: answers what is asked about it, from its live structures. Reads only, and never more than the limit of the question
// (a mailbox may hold a million calls).
import { performance } from 'node:perf_hooks';
import type { ToAgent } from '../control/index.ts';
import { messagesDone } from '../links/emulation.ts';
import { FAILED, PENDING, type Ref, storedAs, VALUE } from '../objects/index.ts';
import { seenTasks, taskCounts } from '../tasks/seen.ts';
import { Encoded, encodeError } from '../wire/index.ts';
import type { ActorClient } from '../worker/client.ts';
import { type ActorCounts, endedCounts, setRecorder, setSentRecorder } from '../worker/counters.ts';
import type { InboundCall } from '../worker/inbound-call.ts';
import type { Session } from '../worker/session.ts';
import type { Terms } from '../worker/terms.ts';
import { LoopLag } from './loop-lag.ts';
import type { BusyActor, CallRow, ChannelState, Cut, MethodCounts, ObjectState, Question, Vitals } from './questions.ts';
import { CallRecorder } from './recorder.ts';

let lag: LoopLag | undefined;
let watchedSince = 0;
let recorder: CallRecorder | undefined;

/** Begins to measure how late this thread's event loop runs, and calls back at every turn of the timer. */
export function watchLoop(onTurn?: () => void): void {
  if (lag !== undefined) return;
  lag = new LoopLag(onTurn);
  watchedSince = performance.now();
}

/** Begins to record calls. */
export function record(): void {
  if (recorder !== undefined) return;
  recorder = new CallRecorder();
  setRecorder(recorder.ran);
  setSentRecorder(recorder.sent);
}

export function stopRecording(): void {
  recorder = undefined;
  setRecorder(undefined);
  setSentRecorder(undefined);
}

export function stopWatchingLoop(): void {
  lag?.stop();
  lag = undefined;
}

/** The message that carries an answer, or why there is none. */
export function replyTo(request: number, make: () => unknown): ToAgent & { t: 'reply' } {
  try {
    return { t: 'reply', request, answer: make() };
  } catch (error) {
    return { t: 'reply', request, error: encodeError(error) };
  }
}

export function answer(session: Session, question: Question): unknown {
  switch (question.ask) {
    case 'vitals':
      return vitals(session);
    case 'calls':
      return calls(session, question.limit, new Set(question.unanswered));
    case 'objects':
      return objects(session, question.limit);
    case 'timeline':
      return recorder?.read() ?? null;
    case 'messages':
      return messagesDone();
  }
}

function vitals(session: Session): Vitals {
  const busy: BusyActor[] = [];
  for (const host of session.hosts.values()) {
    const { id: actor, runningCount: running, queuedCount: queued } = host;
    if (running > 0 || queued > 0) busy.push({ actor, running, queued });
  }
  const channels: ChannelState[] = [];
  for (const { peer, unansweredCount, bytesInFlight } of session.connections())
    channels.push({ peer, unanswered: unansweredCount, bytesInFlight });
  const { user, system } = process.cpuUsage();
  return {
    worker: session.worker,
    pid: process.pid,
    uptimeMs: performance.now() - watchedSince,
    memory: { ...process.memoryUsage() },
    cpu: { userMs: user / 1000, systemMs: system / 1000 },
    lag: lag?.counts() ?? { buckets: [], count: 0, sumMs: 0, maxMs: 0 },
    actors: session.hosts.size,
    busy,
    channels,
    methods: methodCounts(session),
    lent: session.loans.size,
  };
}

function methodCounts(session: Session): MethodCounts[] {
  const sums = new Map<string, MethodCounts>();
  const add = ({ kind, methods }: Pick<ActorCounts, 'kind' | 'methods'>): void => {
    for (const [method, { started, finished, failed }] of Object.entries(methods)) {
      const key = `${kind}\0${method}`;
      const sum = sums.get(key);
      if (sum === undefined) sums.set(key, { kind, method, started, finished, failed });
      else {
        sum.started += started;
        sum.finished += finished;
        sum.failed += failed;
      }
    }
  };
  add({ kind: 'task', methods: taskCounts() });
  for (const ended of endedCounts()) add(ended);
  for (const host of session.hosts.values()) if (host.hasRun) add(host.counts());
  return [...sums.values()];
}

/** Collects up to a limit, and counts on. */
class Collector<T> implements Cut<T> {
  readonly items: T[] = [];
  total = 0;
  readonly #limit: number;

  constructor(limit: number) {
    this.#limit = limit;
  }

  add(make: () => T): void {
    if (this.total++ < this.#limit) this.items.push(make());
  }

  /** Counts without looking at each. */
  skip(count: number): void {
    this.total += count;
  }

  get full(): boolean {
    return this.items.length >= this.#limit;
  }

  result(): Cut<T> {
    return { items: this.items, total: this.total };
  }
}

function calls(session: Session, limit: number, silent: ReadonlySet<number>): Cut<CallRow> {
  const now = performance.now();
  const found = new Collector<CallRow>(limit);
  const since = (at: number): number => (at > 0 ? now - at : -1);
  const remaining = (expiresAt: number): number => (expiresAt > 0 ? Math.max(0, expiresAt - now) : -1);
  const inbound = (state: CallRow['state'], task: InboundCall): CallRow => ({
    state,
    actor: task.host.id,
    method: task.method,
    caller: task.connection.peer,
    call: task.call,
    ageMs: since(task.receivedAt),
    runningMs: since(task.startedAt),
    remainingMs: remaining(task.expiresAt),
  });
  const outbound = (state: CallRow['state'], client: ActorClient, ref: Ref, made: number, expiresAt: number): CallRow => ({
    state,
    actor: client.id,
    method: ref.method,
    caller: session.worker,
    call: ref.callId,
    ageMs: since(made),
    runningMs: -1,
    remainingMs: remaining(expiresAt),
  });

  for (const host of session.hosts.values()) for (const task of host.running) found.add(() => inbound('running', task));
  const held = new Map<number, number>();
  for (const connection of session.connections()) {
    for (const tasks of connection.held.values())
      for (const task of tasks) {
        held.set(task.host.id, (held.get(task.host.id) ?? 0) + 1);
        found.add(() => inbound(task.waiting > 0 ? 'arguments' : 'queued', task));
      }
  }
  for (const host of session.hosts.values()) {
    let looked = held.get(host.id) ?? 0;
    for (const task of host.queued()) {
      if (found.full) break;
      looked++;
      found.add(() => inbound('queued', task));
    }
    found.skip(host.queuedCount - looked);
  }
  for (const client of session.clients())
    for (const ref of client.unsent())
      found.add(() => outbound('unsent', client, ref, ref.since, (ref.guard as Terms | undefined)?.expiresAt ?? 0));
  for (const { task, running, since: made, sentAt, expiresAt } of seenTasks())
    found.add(() => ({
      state: running ? 'running' : 'queued',
      actor: 0,
      method: task,
      caller: session.worker,
      call: 0,
      ageMs: since(made),
      runningMs: since(sentAt),
      remainingMs: remaining(expiresAt),
    }));
  if (silent.size > 0) {
    for (const connection of session.connections()) {
      if (!silent.has(connection.peer)) continue;
      for (const ref of connection.unanswered()) {
        const client = ref.client as ActorClient | undefined;
        if (client !== undefined) found.add(() => outbound('unanswered', client, ref, 0, 0));
      }
    }
  }
  return found.result();
}

const states: Record<number, ObjectState['state']> = { [PENDING]: 'pending', [VALUE]: 'value', [FAILED]: 'failed' };

function objects(session: Session, limit: number): Cut<ObjectState> {
  const found = new Collector<ObjectState>(limit);
  const row = (ref: Ref, holders: ObjectState['holders']): ObjectState => ({
    id: ref.id,
    state: states[ref.state] ?? 'released',
    ...placeOf(ref.value),
    method: ref.method,
    holders,
  });
  for (const { ref, holders } of session.loans.entries()) found.add(() => row(ref, [...holders]));
  // Values that were put and that nobody else holds.
  for (const ref of session.store?.refs() ?? []) if (!session.isLent(ref.id)) found.add(() => row(ref, []));
  return found.result();
}

const places = { memory: 'shared', disk: 'spilled', process: 'heap' } as const;

function placeOf(value: unknown): Pick<ObjectState, 'bytes' | 'place' | 'pins'> {
  if (!(value instanceof Encoded)) return { bytes: sizeOf(value), place: 'heap', pins: 0 };
  const { bytes, place, pins } = storedAs(value);
  return { bytes, place: places[place], pins };
}

function sizeOf(value: unknown): number {
  return ArrayBuffer.isView(value) || value instanceof ArrayBuffer ? value.byteLength : -1;
}
