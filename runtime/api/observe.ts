// Seeing a run from the program that drives it; the commands of the same names show the same from outside.
import type { Questions, RunObserver as RunObserverType } from '../observe/client.ts';
import type {
  ActorRow,
  EventInfo,
  GroupInfo,
  Listing,
  ListOptions,
  ObjectInfo,
  StatusInfo,
  SummaryRow,
  TaskInfo,
  WorkerInfo,
} from '../observe/facts.ts';
import type { LogTail } from '../observe/logs.ts';
import { chooseRun, type FoundRun } from '../observe/runs.ts';
import type { Timeline } from '../observe/timeline.ts';
import { checkKnown, checkTimeout, count, ms } from './check.ts';
import { clientOf } from './handle.ts';
import { driver } from './run.ts';
import type { AnyHandle } from './types.ts';

/** Attached to a run of another process: asks it, and follows what its actors write. */
export type RunObserver = RunObserverType;
export const RunObserver = {
  /** Rejects with SINKFLEX_NO_ANSWER if nobody answers, SINKFLEX_AUTHENTICATION_FAILED if the token is not the run's. */
  async attach(run: FoundRun): Promise<RunObserver> {
    return (await import('../observe/client.ts')).RunObserver.attach(run);
  },
};

type Options = ListOptions & { name?: string; count?: number };

function checkList(what: string, options: ListOptions): ListOptions {
  checkKnown(what, options, { limit: true, where: true, timeoutMs: true });
  ms('timeoutMs', options.timeoutMs, 0);
  return options;
}

/** From this process's own run, or from the head that it is attached to. */
async function ask<Q extends keyof Questions>(question: Q, options: Options = {}): Promise<Questions[Q]> {
  const { observing, folder } = driver();
  if (observing !== undefined) return (await observing.ask(question, options)) as Questions[Q];
  const observer = await RunObserver.attach(chooseRun(folder));
  try {
    return await observer.ask(question, options);
  } finally {
    observer.close();
  }
}

/**
 * The run at a glance: actors, workers, calls, memory, what waits and why. Workers that do not answer within `timeoutMs` (1000) are named.
 *
 * @example
 * const { actors, calls, silent } = await status();
 */
export async function status(options: { timeoutMs?: number } = {}): Promise<StatusInfo> {
  checkTimeout('status', options);
  return ask('status', options);
}

/**
 * Calls under way and calls that wait: in mailboxes, for their arguments, or at their caller.
 *
 * @example
 * const { items, total } = await listTasks({ where: { state: 'queued' }, limit: 20 });
 */
export async function listTasks(options: ListOptions = {}): Promise<Listing<TaskInfo>> {
  return ask('tasks', checkList('listTasks', options));
}

/** Actors with what they have to do: calls under way and in the mailbox. listActors() answers at once, without those. */
export async function listActorLoad(options: ListOptions = {}): Promise<Listing<ActorRow>> {
  return ask('actors', checkList('listActorLoad', options));
}

/** Values that others than their owner hold, with their sizes and holders. */
export async function listObjects(options: ListOptions = {}): Promise<Listing<ObjectInfo>> {
  return ask('objects', checkList('listObjects', options));
}

/** Workers: the driver, threads, processes; whether they answer, how late their event loops run, memory. */
export async function listWorkers(options: ListOptions = {}): Promise<Listing<WorkerInfo>> {
  return ask('workers', checkList('listWorkers', options));
}

/** Placement groups, with their bundles. */
export async function listGroups(options: ListOptions = {}): Promise<Listing<GroupInfo>> {
  return ask('groups', checkList('listGroups', options));
}

/** What has happened, oldest first; `dropped`: older events that had to make room. */
export async function listEvents(options: ListOptions = {}): Promise<Listing<EventInfo> & { dropped: number }> {
  return ask('events', checkList('listEvents', options));
}

/** Calls by kind of actor and method. Durations only with `init({ timeline: true })`. */
export async function summary(options: ListOptions = {}): Promise<Listing<SummaryRow>> {
  return ask('summary', checkList('summary', options));
}

/**
 * The last lines that an actor (its name, or a handle) wrote, each with its time and stream; of all its incarnations.
 *
 * @example
 * const { lines, total } = await logs('trainer', { tail: 50 });
 */
export async function logs(actor: string | AnyHandle, options: { tail?: number } = {}): Promise<LogTail> {
  checkKnown('logs', options, { tail: true });
  count('tail', options.tail, 0, 0);
  return ask('tail', {
    name: typeof actor === 'string' ? actor : clientOf(actor).name,
    ...(options.tail === undefined ? {} : { count: options.tail }),
  });
}

/**
 * Calls of this run as a Chrome trace: write it as JSON and open it at ui.perfetto.dev. Needs `init({ timeline: true })`; each worker holds
 * its last 65,536 calls, until it ends.
 *
 * @example
 * writeFileSync('timeline.json', JSON.stringify(await timeline()));
 */
export async function timeline(options: { timeoutMs?: number } = {}): Promise<Timeline> {
  checkTimeout('timeline', options);
  const data = await ask('timeline', options);
  return (await import('../observe/timeline.ts')).buildTimeline(data);
}

/** Metrics of all workers as Prometheus text. */
export async function metrics(options: { timeoutMs?: number } = {}): Promise<string> {
  checkTimeout('metrics', options);
  return ask('metrics', options);
}

/** Where `init({ metricsPort })` listens; undefined: nowhere. */
export function metricsPort(): number | undefined {
  return driver().observing?.metricsPort;
}

/** The folder of this run: what `sinkflex status --run` takes; its `observe.token` opens the metrics listener. */
export function runFolder(): string {
  return driver().folder;
}
