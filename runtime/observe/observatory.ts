// Everything that can be seen of a run, gathered from its control state and from its workers. The functions of the driver and the commands
// that attach from outside are the same methods.
import { os } from '../../kernels/host.ts';
import { RuntimeFailure } from '../api/errors.ts';
import type { ActorInfo } from '../api/types.ts';
import type { Demand } from '../control/index.ts';
import { addDurations } from './durations.ts';
import type { EventLog } from './events.ts';
import type {
  ActorRow,
  EventInfo,
  GroupInfo,
  Listing,
  ListOptions,
  NodeInfo,
  ObjectInfo,
  Silent,
  StatusInfo,
  SummaryRow,
  TaskInfo,
  WorkerInfo,
} from './facts.ts';
import { listing } from './listing.ts';
import { LogReader } from './log-reader.ts';
import { type LogFile, type LogFolder, type LogTail, listLogs } from './logs.ts';
import { lagQuantile } from './loop-lag.ts';
import { MetricsPage } from './metrics.ts';
import type { Observable, ObservedWorker } from './observable.ts';
import type { CallRow, Cut, ObjectState, Question, Recording, Vitals } from './questions.ts';
import type { StackSample } from './stack-sample.ts';
import { controlStatus, sum, workerStatus } from './status.ts';
import type { TimelineData } from './timeline.ts';

/** For a worker that has nothing else to do this is ages. */
const ANSWER_MS = 1000;
/** A worker hands over megabytes. */
const TIMELINE_MS = 10_000;
const RECENT_EVENTS = 5;

export interface ObservatoryOptions {
  folder: string;
  source: Observable;
  events: EventLog;
  logs: LogFolder;
}

/** What the workers said to one question. */
interface Answers<T> {
  workers: ObservedWorker[];
  said: { worker: ObservedWorker; answer: T }[];
  silent: Silent[];
  nameOf: (worker: number) => string;
  actors: Map<number, ActorInfo>;
}

export class Observatory {
  readonly folder: string;
  readonly events: EventLog;
  readonly logs: LogFolder;
  readonly #source: Observable;
  readonly #startedAt = Date.now();
  readonly #metrics = new MetricsPage();

  constructor(options: ObservatoryOptions) {
    this.folder = options.folder;
    this.events = options.events;
    this.logs = options.logs;
    this.#source = options.source;
  }

  async #ask<T>(question: (silent: number[]) => Question, timeoutMs = ANSWER_MS, known: Silent[] = []): Promise<Answers<T>> {
    const { workers, silent: unknown } = await this.#source.workers(timeoutMs);
    const actors = new Map(this.#source.actors().map((actor) => [actor.id, actor]));
    const names = new Map(workers.map(({ worker, name }) => [worker, name]));
    const nameOf = (worker: number): string => names.get(worker) ?? `worker ${worker} (ended)`;
    const said: Answers<T>['said'] = [];
    const silent: Silent[] = [...unknown];
    const skipped = new Set(known.map(({ worker }) => worker));
    const asked = question([...skipped]);
    await Promise.all(
      workers.map(async (worker) => {
        if (skipped.has(worker.worker)) return;
        try {
          said.push({ worker, answer: (await this.#source.ask(worker.worker, asked, timeoutMs)) as T });
        } catch {
          silent.push({ worker: worker.worker, name: nameOf(worker.worker), pid: worker.pid, why: whySilent(worker, actors) });
        }
      }),
    );
    said.sort((a, b) => a.worker.worker - b.worker.worker);
    silent.push(...known.filter(({ worker }) => worker >= 0));
    silent.sort((a, b) => a.worker - b.worker);
    return { workers, said, silent, nameOf, actors };
  }

  async vitals(timeoutMs?: number): Promise<Answers<Vitals>> {
    return this.#ask<Vitals>(() => ({ ask: 'vitals' }), timeoutMs);
  }

  async listActors(options: ListOptions = {}): Promise<Listing<ActorRow>> {
    const { said, silent } = await this.vitals(options.timeoutMs);
    const busy = new Map<number, { running: number; queued: number }>();
    for (const { answer } of said) for (const { actor, running, queued } of answer.busy) busy.set(actor, { running, queued });
    const answered = new Set(said.flatMap(({ worker }) => worker.actors));
    const rows = this.#source
      .actors()
      .map((actor): ActorRow => (answered.has(actor.id) ? { ...actor, ...(busy.get(actor.id) ?? { running: 0, queued: 0 }) } : actor));
    return listing('actors', rows, options, silent);
  }

  /** Calls under way and calls that wait, wherever they wait. */
  async listTasks(options: ListOptions = {}): Promise<Listing<TaskInfo>> {
    const limit = options.where === undefined ? (options.limit ?? Number.MAX_SAFE_INTEGER) : Number.MAX_SAFE_INTEGER;
    let answers = await this.#ask<Cut<CallRow>>(() => ({ ask: 'calls', limit, unanswered: [] }), options.timeoutMs);
    if (answers.silent.length > 0) {
      // What the silent ones have to do is known to those who called them.
      answers = await this.#ask<Cut<CallRow>>((unanswered) => ({ ask: 'calls', limit, unanswered }), options.timeoutMs, answers.silent);
    }
    const { said, silent, nameOf, actors, workers } = answers;
    const hosts = new Map(workers.flatMap((worker) => worker.actors.map((actor) => [actor, worker] as const)));
    const rows: TaskInfo[] = [];
    let total = 0;
    for (const { answer } of said) {
      total += answer.total;
      for (const call of answer.items) {
        const actor = actors.get(call.actor);
        const host = hosts.get(call.actor);
        rows.push({
          actor: call.actor === 0 ? '' : (actor?.name ?? String(call.actor)),
          kind: call.actor === 0 ? 'task' : (actor?.kind ?? '?'),
          method: call.method,
          state: call.state,
          caller: nameOf(call.caller),
          call: call.call,
          worker: host?.worker ?? -1,
          pid: host?.pid,
          ...(call.ageMs < 0 ? {} : { ageMs: call.ageMs }),
          ...(call.runningMs < 0 ? {} : { runningMs: call.runningMs }),
          ...(call.remainingMs < 0 ? {} : { remainingMs: call.remainingMs }),
        });
      }
    }
    return listing('tasks', rows, options, silent, total);
  }

  /** Values that others than their owner hold, and those in the object store. */
  async listObjects(options: ListOptions = {}): Promise<Listing<ObjectInfo>> {
    const limit = options.where === undefined ? (options.limit ?? Number.MAX_SAFE_INTEGER) : Number.MAX_SAFE_INTEGER;
    const { said, silent, nameOf } = await this.#ask<Cut<ObjectState>>(() => ({ ask: 'objects', limit }), options.timeoutMs);
    const rows: ObjectInfo[] = [];
    let total = 0;
    for (const { worker, answer } of said) {
      total += answer.total;
      for (const object of answer.items) {
        rows.push({
          id: `${worker.worker}.${object.id}`,
          state: object.state,
          owner: nameOf(worker.worker),
          pid: worker.pid,
          ...(object.bytes < 0 ? {} : { bytes: object.bytes }),
          place: object.place,
          pins: object.pins,
          origin: object.method === '' ? 'put()' : `${object.method}()`,
          holders: object.holders.map(([holder, times]) => ({ name: holder < 0 ? 'constructor arguments' : nameOf(holder), times })),
        });
      }
    }
    return listing('objects', rows, options, silent, total);
  }

  async listWorkers(options: ListOptions = {}): Promise<Listing<WorkerInfo>> {
    const { workers, said, silent, nameOf } = await this.vitals(options.timeoutMs);
    const answers = new Map(said.map(({ worker, answer }) => [worker.worker, answer]));
    const whys = new Map(silent.map(({ worker, why }) => [worker, why]));
    const rows = workers.map((worker): WorkerInfo => {
      const { isolation, pid } = worker;
      const vitals = answers.get(worker.worker);
      const base = {
        worker: worker.worker,
        name: nameOf(worker.worker),
        isolation,
        pid,
        state: whys.get(worker.worker) ?? ('ok' as const),
        actors: worker.actors.length,
      };
      if (vitals === undefined) return base;
      return {
        ...base,
        running: sum(vitals.busy, ({ running }) => running),
        queued: sum(vitals.busy, ({ queued }) => queued),
        lag: { p50Ms: lagQuantile(vitals.lag, 0.5), p99Ms: lagQuantile(vitals.lag, 0.99), maxMs: vitals.lag.maxMs },
        memory: { rss: vitals.memory.rss, heapUsed: vitals.memory.heapUsed, external: vitals.memory.external },
        unanswered: sum(vitals.channels, ({ unanswered }) => unanswered),
        bytesInFlight: sum(vitals.channels, ({ bytesInFlight }) => bytesInFlight),
        channels: vitals.channels.length,
        uptimeMs: vitals.uptimeMs,
      };
    });
    return listing('workers', rows, options, silent);
  }

  async listNodes(options: ListOptions = {}): Promise<Listing<NodeInfo>> {
    return listing('nodes', this.#source.nodes(), options);
  }

  async listGroups(options: ListOptions = {}): Promise<Listing<GroupInfo>> {
    return listing('groups', this.#source.groups(), options);
  }

  /** What waits for room. */
  demand(): Demand[] {
    return this.#source.demand();
  }

  /** The newest, in the order in which they happened. */
  async listEvents(options: ListOptions = {}): Promise<Listing<EventInfo> & { dropped: number }> {
    const newest = listing('events', this.events.last().reverse(), options);
    return { ...newest, items: newest.items.reverse(), dropped: this.events.dropped };
  }

  /** The run at a glance; `limit`: of the actors that wait for room. */
  async status(options: ListOptions = {}): Promise<StatusInfo> {
    const { workers, said, silent, nameOf } = await this.vitals(options.timeoutMs);
    return {
      folder: this.folder,
      pid: process.pid,
      startedAt: new Date(this.#startedAt).toISOString(),
      uptimeMs: Date.now() - this.#startedAt,
      node: process.version,
      ...controlStatus(this.#source, options),
      ...workerStatus(
        workers,
        said.map(({ worker, answer }) => ({ name: nameOf(worker.worker), vitals: answer })),
      ),
      silent,
      events: this.events.last(RECENT_EVENTS),
    };
  }

  /** Calls by kind of actor and method. */
  async summary(options: ListOptions = {}): Promise<Listing<SummaryRow>> {
    const [{ said }, recordings, tasks] = await Promise.all([
      this.vitals(options.timeoutMs),
      this.#ask<Recording | null>(() => ({ ask: 'timeline' }), options.timeoutMs),
      this.listTasks(options.timeoutMs === undefined ? {} : { timeoutMs: options.timeoutMs }),
    ]);
    const rows = new Map<string, SummaryRow>();
    const row = (kind: string, method: string): SummaryRow => {
      const key = `${kind}\0${method}`;
      let found = rows.get(key);
      if (found === undefined) {
        found = { kind, method, started: 0, failed: 0, running: 0, queued: 0 };
        rows.set(key, found);
      }
      return found;
    };
    for (const { answer } of said) {
      for (const { kind, method, started, failed } of answer.methods) {
        const found = row(kind, method);
        found.started += started;
        found.failed += failed;
      }
    }
    for (const { kind, method, state } of tasks.items) row(kind, method)[state === 'running' ? 'running' : 'queued']++;
    addDurations(
      recordings.said.map(({ answer }) => answer),
      recordings.actors,
      row,
    );
    const sorted = [...rows.values()].sort(
      (a, b) => b.started - a.started || b.queued - a.queued || compare(a.kind + a.method, b.kind + b.method),
    );
    return listing('summary', sorted, options, tasks.silent);
  }

  /** Where the event loop of an actor is, also of one that never turns. */
  async stack(name: string, options: { timeoutMs?: number } = {}): Promise<StackSample & { worker: string; pid: number | undefined }> {
    const timeoutMs = options.timeoutMs ?? ANSWER_MS;
    const actors = this.#source.actors();
    const actor = actors.findLast((each) => each.name === name && each.state !== 'dead') ?? actors.findLast((each) => each.name === name);
    const { workers } = await this.#source.workers(timeoutMs);
    const worker = workers.find((each) => (actor === undefined ? each.name === name : each.actors.includes(actor.id)));
    if (worker === undefined) {
      const why = actor === undefined ? 'no actor or worker has that name' : `it is ${actor.state} and has no worker`;
      throw new RuntimeFailure('SINKFLEX_UNKNOWN_ACTOR', `there is no stack of ${JSON.stringify(name)}: ${why}`);
    }
    return { ...(await this.#source.stack(worker.worker, timeoutMs)), worker: worker.name, pid: worker.pid };
  }

  /** What the workers have recorded of calls. Rejects with SINKFLEX_BAD_OPTION if nothing is recorded. */
  async timeline(options: { timeoutMs?: number } = {}): Promise<TimelineData> {
    const { said, silent, nameOf } = await this.#ask<Recording | null>(() => ({ ask: 'timeline' }), options.timeoutMs ?? TIMELINE_MS);
    const workers = said.flatMap(({ worker, answer }) =>
      answer === null ? [] : [{ worker: worker.worker, name: nameOf(worker.worker), pid: worker.pid ?? 0, recording: answer }],
    );
    if (workers.length === 0)
      throw new RuntimeFailure('SINKFLEX_BAD_OPTION', 'this run records no calls: start it with init({ timeline: true })');
    const actors = this.#source.actors().map(({ id, name, kind }) => ({ id, name, kind }));
    return { workers, actors, silent };
  }

  /** The last lines of an actor, or of a shared worker; `reader` goes on from there. */
  async openLog(name: string, count = Number.POSITIVE_INFINITY): Promise<{ tail: LogTail; reader: LogReader }> {
    const known = this.#source.actors().some((actor) => actor.name === name);
    const file = await this.#logName(name);
    this.logs.flush();
    const reader = new LogReader(this.logs.folder, file);
    const { files } = reader;
    if (files.length === 0 && !known) throw noLog(name, listLogs(this.logs.folder));
    const lines = reader.read();
    return {
      tail: {
        lines: count >= lines.length ? lines : lines.slice(lines.length - count),
        total: lines.length,
        lostBytes: sum(files, ({ lostBytes }) => lostBytes),
      },
      reader,
    };
  }

  async tail(name: string, count?: number): Promise<LogTail> {
    return (await this.openLog(name, count)).tail;
  }

  listLogs(): LogFile[] {
    this.logs.flush();
    return listLogs(this.logs.folder);
  }

  /** Lines of actors that share a worker go by the worker's name. */
  async #logName(name: string): Promise<string> {
    const actor = this.#source.actors().findLast((each) => each.name === name);
    if (actor?.isolation !== 'shared') return name;
    const { workers } = await this.#source.workers(ANSWER_MS);
    const worker = workers.find(({ actors }) => actors.includes(actor.id));
    return worker?.name ?? name;
  }

  /** Prometheus text. */
  async metrics(options: { timeoutMs?: number } = {}): Promise<string> {
    const { said, silent, nameOf, workers } = await this.vitals(options.timeoutMs);
    return this.#metrics.render({
      actors: this.#source.actors(),
      workers,
      said: said.map(({ worker, answer }) => ({ name: nameOf(worker.worker), worker, answer })),
      silent,
      nodes: this.#source.nodes(),
      groups: this.#source.groups(),
      dropped: this.events.dropped,
    });
  }
}

/** A worker that did not answer: the kernel knows whether it could have. */
function whySilent({ pid, health, actors }: ObservedWorker, known: ReadonlyMap<number, ActorInfo>): Silent['why'] {
  if (health !== 'ok') return health;
  if (pid === undefined) return 'silent';
  const state = os.processState(pid);
  if (state === undefined || state === 'Z' || state === 'X') return 'ended';
  if (state === 'T' || state === 't') return 'stopped';
  const starting = actors.length > 0 && actors.every((actor) => known.get(actor)?.state === 'starting');
  return starting ? 'starting' : 'blocked';
}

function noLog(name: string, files: LogFile[]): RuntimeFailure {
  const names = [...new Set(files.map((file) => file.name))];
  const more = names.length > 20 ? ` and ${names.length - 20} others` : '';
  const there = names.length === 0 ? 'nothing has been written yet' : `there are logs of ${names.slice(-20).join(', ')}${more}`;
  return new RuntimeFailure('SINKFLEX_NO_LOG', `nothing that goes by ${JSON.stringify(name)} was written; ${there}`);
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
