// The metrics page: Prometheus text, made anew for each reader from what the workers say. Counters of workers that have ended are kept, so
// that sums never go back.
import type { Metric } from 'prom-client';
import type { ActorInfo } from '../api/types.ts';
import type { GroupView, NodeView } from '../control/index.ts';
import type { Silent } from './facts.ts';
import type { ObservedWorker } from './observable.ts';
import { LAG_BUCKETS_MS, type LagCounts, type MethodCounts, type Vitals } from './questions.ts';

/** A line for each actor with waiting calls, the fullest mailboxes first; sums are over all. */
const MAILBOXES_SHOWN = 1000;

export interface MetricsInput {
  actors: ActorInfo[];
  workers: ObservedWorker[];
  said: { name: string; worker: ObservedWorker; answer: Vitals }[];
  silent: Silent[];
  nodes: NodeView[];
  groups: GroupView[];
  /** Events that were forgotten. */
  dropped: number;
}

type Labels = Record<string, string | number>;
interface Value {
  labels: Labels;
  value: number;
  metricName?: string;
}

export class MetricsPage {
  /** Worker -> what it said last; moved to the ended when the worker is gone. */
  readonly #last = new Map<number, { isolation: string; vitals: Vitals }>();
  readonly #endedMethods = new Map<string, MethodCounts>();
  readonly #endedLag = new Map<string, LagCounts>();

  #remember(input: MetricsInput): void {
    for (const { worker, answer } of input.said) this.#last.set(worker.worker, { isolation: worker.isolation, vitals: answer });
    const living = new Set(input.workers.map(({ worker }) => worker));
    for (const [worker, { isolation, vitals }] of this.#last) {
      if (living.has(worker)) continue;
      this.#last.delete(worker);
      addMethods(this.#endedMethods, vitals.methods);
      addLag(this.#endedLag, isolation, vitals.lag);
    }
  }

  async render(input: MetricsInput): Promise<string> {
    this.#remember(input);
    const { Registry } = await import('prom-client');
    const registry = new Registry();
    const add = (type: 'gauge' | 'counter' | 'histogram', name: string, help: string, values: Value[]): void => {
      const full = `sinkflex_${name}`;
      const metric = { name: full, help, type, aggregator: 'sum', values };
      registry.registerMetric({ name: full, get: async () => metric } as unknown as Metric<string>);
    };
    const { said } = input;
    const lag = new Map<string, LagCounts>([...this.#endedLag].map(([key, value]) => [key, { ...value, buckets: [...value.buckets] }]));
    for (const { isolation, vitals } of this.#last.values()) addLag(lag, isolation, vitals.lag);
    add('histogram', 'event_loop_lag_seconds', 'How late event loops ran, by isolation of the worker.', [...lag].flatMap(histogram));
    add(
      'gauge',
      'event_loop_lag_max_seconds',
      'Longest delay of the event loop of a worker since its start.',
      said.map(({ name, worker, answer }) => ({ labels: { worker: name, number: worker.worker }, value: answer.lag.maxMs / 1000 })),
    );
    this.#mailboxes(input, add);
    this.#calls(add);
    this.#workers(input, add);
    this.#actors(input, add);
    return registry.metrics();
  }

  #mailboxes({ said, actors }: MetricsInput, add: (type: 'gauge', name: string, help: string, values: Value[]) => void): void {
    const byId = new Map(actors.map((actor) => [actor.id, actor]));
    const busy = said.flatMap(({ answer }) => answer.busy).sort((a, b) => b.queued - a.queued);
    const waiting = busy.filter(({ queued }) => queued > 0);
    add(
      'gauge',
      'mailbox_depth',
      `Calls that wait in an actor's mailbox; actors with none are left out, and all but the ${MAILBOXES_SHOWN} fullest.`,
      waiting.slice(0, MAILBOXES_SHOWN).map(({ actor, queued }) => ({
        labels: { actor: byId.get(actor)?.name ?? String(actor), kind: byId.get(actor)?.kind ?? '?' },
        value: queued,
      })),
    );
    add('gauge', 'mailboxes_left_out', 'Actors with waiting calls that sinkflex_mailbox_depth does not show.', [
      { labels: {}, value: Math.max(0, waiting.length - MAILBOXES_SHOWN) },
    ]);
    const byKind = new Map<string, { running: number; queued: number }>();
    for (const { kind } of actors) byKind.set(kind, { running: 0, queued: 0 });
    for (const { actor, running, queued } of busy) {
      const kind = byId.get(actor)?.kind ?? '?';
      const sum = byKind.get(kind) ?? { running: 0, queued: 0 };
      byKind.set(kind, { running: sum.running + running, queued: sum.queued + queued });
    }
    const kinds = [...byKind];
    add(
      'gauge',
      'calls_queued',
      'Calls that wait in mailboxes, by kind of actor.',
      kinds.map(([kind, { queued }]) => ({ labels: { kind }, value: queued })),
    );
    add(
      'gauge',
      'calls_running',
      'Calls under way, by kind of actor.',
      kinds.map(([kind, { running }]) => ({ labels: { kind }, value: running })),
    );
  }

  #calls(add: (type: 'counter', name: string, help: string, values: Value[]) => void): void {
    const sums = new Map<string, MethodCounts>();
    addMethods(sums, this.#endedMethods.values());
    for (const { vitals } of this.#last.values()) addMethods(sums, vitals.methods);
    const all = [...sums.values()];
    const values = (of: (counts: MethodCounts) => number): Value[] =>
      all.map((counts) => ({ labels: { kind: counts.kind, method: counts.method }, value: of(counts) }));
    add(
      'counter',
      'calls_started_total',
      'Calls whose method began.',
      values(({ started }) => started),
    );
    add(
      'counter',
      'calls_finished_total',
      'Calls that were answered.',
      values(({ finished }) => finished),
    );
    add(
      'counter',
      'calls_failed_total',
      'Calls whose method threw, or that could not be run.',
      values(({ failed }) => failed),
    );
  }

  #workers(
    { workers, said, silent }: MetricsInput,
    add: (type: 'gauge' | 'counter', name: string, help: string, values: Value[]) => void,
  ): void {
    const each = (of: (vitals: Vitals) => number): Value[] =>
      said.map(({ name, worker, answer }) => ({ labels: { worker: name, number: worker.worker }, value: of(answer) }));
    const counts = new Map<string, number>();
    const whys = new Map(silent.map(({ worker, why }) => [worker, why]));
    for (const { worker, isolation } of workers) {
      const key = `${isolation}\0${whys.get(worker) ?? 'ok'}`;
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    add(
      'gauge',
      'workers',
      'Workers by isolation and state (ok, blocked, stopped, ended).',
      [...counts].map(([key, value]) => ({ labels: { isolation: key.split('\0')[0]!, state: key.split('\0')[1]! }, value })),
    );
    add(
      'gauge',
      'worker_actors',
      'Actors in a worker.',
      each((vitals) => vitals.actors),
    );
    add(
      'gauge',
      'worker_heap_used_bytes',
      'JavaScript heap in use.',
      each(({ memory }) => memory.heapUsed),
    );
    add(
      'gauge',
      'worker_external_bytes',
      'Memory outside the heap that JavaScript holds.',
      each(({ memory }) => memory.external),
    );
    add(
      'gauge',
      'worker_bytes_in_flight',
      'Bytes of calls without an answer.',
      each(({ channels }) => channels.reduce((sum, each) => sum + each.bytesInFlight, 0)),
    );
    add(
      'gauge',
      'worker_unanswered',
      'Calls and fetches without an answer.',
      each(({ channels }) => channels.reduce((sum, each) => sum + each.unanswered, 0)),
    );
    add(
      'gauge',
      'worker_channels',
      'Open channels to other workers.',
      each(({ channels }) => channels.length),
    );
    add(
      'gauge',
      'worker_lent_values',
      'Values of a worker that others hold.',
      each((vitals) => vitals.lent),
    );
    const processes = new Map(said.map((each) => [each.answer.pid, each]));
    const perProcess = (of: (vitals: Vitals) => number): Value[] =>
      [...processes].map(([pid, { answer, worker, name }]) => ({
        labels: { pid, worker: pid === process.pid ? 'driver' : name, number: pid === process.pid ? 0 : worker.worker },
        value: of(answer),
      }));
    add(
      'gauge',
      'process_resident_bytes',
      'Resident memory of a process of the run.',
      perProcess(({ memory }) => memory.rss),
    );
    add(
      'counter',
      'process_cpu_seconds_total',
      'Processor time of a process of the run.',
      perProcess(({ cpu }) => (cpu.userMs + cpu.systemMs) / 1000),
    );
  }

  #actors(
    { actors, nodes, groups, dropped }: MetricsInput,
    add: (type: 'gauge' | 'counter', name: string, help: string, values: Value[]) => void,
  ): void {
    const states = new Map<string, number>();
    const restarts = new Map<string, number>();
    for (const { kind, state, restarts: times } of actors) {
      states.set(`${kind}\0${state}`, (states.get(`${kind}\0${state}`) ?? 0) + 1);
      restarts.set(kind, (restarts.get(kind) ?? 0) + times);
    }
    add(
      'gauge',
      'actors',
      'Actors by kind and state; of the dead, those that are remembered.',
      [...states].map(([key, value]) => ({ labels: { kind: key.split('\0')[0]!, state: key.split('\0')[1]! }, value })),
    );
    add(
      'gauge',
      'actor_restarts',
      'Restarts of the actors that are remembered, by kind.',
      [...restarts].map(([kind, value]) => ({ labels: { kind }, value })),
    );
    const resources = (of: (node: NodeView) => Record<string, number>): Value[] =>
      nodes.flatMap((node) => Object.entries(of(node)).map(([resource, value]) => ({ labels: { node: node.node, resource }, value })));
    add(
      'gauge',
      'node_resources_total',
      'What a node has.',
      resources(({ total }) => total),
    );
    add(
      'gauge',
      'node_resources_free',
      'What of it is not reserved.',
      resources(({ free }) => free),
    );
    const groupStates = new Map<string, number>();
    for (const { state } of groups) groupStates.set(state, (groupStates.get(state) ?? 0) + 1);
    add(
      'gauge',
      'placement_groups',
      'Placement groups by state.',
      [...groupStates].map(([state, value]) => ({ labels: { state }, value })),
    );
    add('counter', 'events_dropped_total', 'Events that the event log had to forget.', [{ labels: {}, value: dropped }]);
  }
}

function addMethods(into: Map<string, MethodCounts>, methods: Iterable<MethodCounts>): void {
  for (const { kind, method, started, finished, failed } of methods) {
    const key = `${kind}\0${method}`;
    const sum = into.get(key);
    if (sum === undefined) into.set(key, { kind, method, started, finished, failed });
    else {
      sum.started += started;
      sum.finished += finished;
      sum.failed += failed;
    }
  }
}

function addLag(into: Map<string, LagCounts>, key: string, lag: LagCounts): void {
  const sum = into.get(key);
  if (sum === undefined) {
    into.set(key, { ...lag, buckets: [...lag.buckets] });
    return;
  }
  lag.buckets.forEach((count, i) => {
    sum.buckets[i] = (sum.buckets[i] ?? 0) + count;
  });
  sum.count += lag.count;
  sum.sumMs += lag.sumMs;
  sum.maxMs = Math.max(sum.maxMs, lag.maxMs);
}

function histogram([isolation, lag]: [string, LagCounts]): Value[] {
  let below = 0;
  const buckets = LAG_BUCKETS_MS.map((bound, i) => {
    below += lag.buckets[i] ?? 0;
    return { metricName: 'sinkflex_event_loop_lag_seconds_bucket', labels: { le: bound / 1000, isolation }, value: below };
  });
  return [
    ...buckets,
    { metricName: 'sinkflex_event_loop_lag_seconds_bucket', labels: { le: '+Inf', isolation }, value: lag.count },
    { metricName: 'sinkflex_event_loop_lag_seconds_sum', labels: { isolation }, value: lag.sumMs / 1000 },
    { metricName: 'sinkflex_event_loop_lag_seconds_count', labels: { isolation }, value: lag.count },
  ];
}
