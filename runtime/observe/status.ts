// A run at a glance, from what its control state and its workers say.
import type { ListOptions, StatusInfo } from './facts.ts';
import { listing } from './listing.ts';
import { lagQuantile } from './loop-lag.ts';
import type { Observable, ObservedWorker } from './observable.ts';
import type { Vitals } from './questions.ts';

/** What the head knows. */
export function controlStatus(
  source: Observable,
  options: ListOptions,
): Pick<StatusInfo, 'actors' | 'restarts' | 'nodes' | 'groups' | 'pending'> {
  const actors = source.actors();
  const pending = listing(
    'actors',
    actors.filter(({ state }) => state === 'pending'),
    options.limit === undefined ? {} : { limit: options.limit },
  );
  return {
    actors: countBy(actors, ({ state }) => state),
    restarts: sum(actors, ({ restarts }) => restarts),
    nodes: source.nodes(),
    groups: countBy(source.groups(), ({ state }) => state),
    pending: { ...pending, items: pending.items.map(({ id, name }) => ({ actor: name, why: source.why(id) ?? 'it waits for room' })) },
  };
}

/** What the workers say. */
export function workerStatus(
  workers: readonly ObservedWorker[],
  said: readonly { name: string; vitals: Vitals }[],
): Pick<StatusInfo, 'workers' | 'calls' | 'lent' | 'memory' | 'worstLag'> {
  let worst: NonNullable<StatusInfo['worstLag']> | undefined;
  for (const { name, vitals } of said) {
    const p99Ms = lagQuantile(vitals.lag, 0.99);
    if (worst === undefined || p99Ms > worst.p99Ms) worst = { name, p99Ms, maxMs: vitals.lag.maxMs };
  }
  const busy = said.flatMap(({ vitals }) => vitals.busy);
  const channels = said.flatMap(({ vitals }) => vitals.channels);
  /** Threads share the memory of their process. */
  const rss = new Map(said.map(({ vitals }) => [vitals.pid, vitals.memory.rss]));
  return {
    workers: countBy(workers, ({ isolation }) => isolation),
    calls: {
      running: sum(busy, ({ running }) => running),
      queued: sum(busy, ({ queued }) => queued),
      unanswered: sum(channels, ({ unanswered }) => unanswered),
      bytesInFlight: sum(channels, ({ bytesInFlight }) => bytesInFlight),
    },
    lent: sum(said, ({ vitals }) => vitals.lent),
    memory: { rss: sum([...rss.values()], (bytes) => bytes) },
    ...(worst === undefined ? {} : { worstLag: worst }),
  };
}

export function sum<T>(items: readonly T[], of: (item: T) => number): number {
  return items.reduce((total, item) => total + of(item), 0);
}

function countBy<T>(items: readonly T[], key: (item: T) => string): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const item of items) counts[key(item)] = (counts[key(item)] ?? 0) + 1;
  return counts;
}
