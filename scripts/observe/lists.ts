// `sinkflex list` and `summary`: tables of what a run has and does.
import { Command } from 'commander';
import type { Listing, ObserverQuestions, RunObserver } from '../../runtime/index.ts';
import { CommandError } from '../errors.ts';
import { age, bytes, thousands } from '../text.ts';
import { attached, footer, type ListFlags, listOptions, rowsTable, withList } from './attach.ts';

type Kind = 'actors' | 'tasks' | 'objects' | 'workers' | 'nodes' | 'groups' | 'events';
type Item<K extends Kind> = ObserverQuestions[K]['items'][number];

interface Column<T> {
  title: string;
  cell: (item: T) => string;
  /** Numbers and amounts. */
  right?: boolean;
}

const optional = (value: number | undefined, show: (value: number) => string): string => (value === undefined ? '-' : show(value));
const amount = (resource: string, value: number): string => (resource === 'memory' ? bytes(value) : String(value));

function amounts(of: Record<string, number>): string {
  const text = Object.entries(of).map(([resource, value]) => `${resource} ${amount(resource, value)}`);
  return text.length === 0 ? '-' : text.join(', ');
}

const columns: { [K in Kind]: Column<Item<K>>[] } = {
  actors: [
    { title: 'name', cell: ({ name }) => name },
    { title: 'kind', cell: ({ kind }) => kind },
    { title: 'state', cell: ({ state }) => state },
    { title: 'health', cell: ({ health }) => health },
    { title: 'isolation', cell: ({ isolation }) => isolation },
    { title: 'node', cell: ({ node }) => node },
    { title: 'pid', cell: ({ pid }) => optional(pid, String), right: true },
    { title: 'incarnation', cell: ({ incarnation }) => String(incarnation), right: true },
    { title: 'restarts', cell: ({ restarts }) => String(restarts), right: true },
    { title: 'running', cell: ({ running }) => optional(running, thousands), right: true },
    { title: 'queued', cell: ({ queued }) => optional(queued, thousands), right: true },
    { title: 'last end', cell: ({ cause }) => cause?.split('\n', 1)[0] ?? '' },
  ],
  tasks: [
    { title: 'actor', cell: ({ actor }) => (actor === '' ? '(task)' : actor) },
    { title: 'method', cell: ({ method }) => `${method}()` },
    { title: 'state', cell: ({ state }) => state },
    { title: 'caller', cell: ({ caller }) => caller },
    { title: 'age', cell: ({ ageMs }) => optional(ageMs, age), right: true },
    { title: 'running', cell: ({ runningMs }) => optional(runningMs, age), right: true },
    { title: 'deadline in', cell: ({ remainingMs }) => optional(remainingMs, age), right: true },
    { title: 'pid', cell: ({ pid }) => optional(pid, String), right: true },
  ],
  objects: [
    { title: 'id', cell: ({ id }) => id },
    { title: 'state', cell: ({ state }) => state },
    { title: 'size', cell: (object) => optional(object.bytes, bytes), right: true },
    { title: 'place', cell: ({ place }) => place },
    { title: 'readers', cell: ({ pins }) => thousands(pins), right: true },
    { title: 'owner', cell: ({ owner }) => owner },
    { title: 'from', cell: ({ origin }) => origin },
    { title: 'held by', cell: ({ holders }) => holders.map(({ name, times }) => (times === 1 ? name : `${name} x${times}`)).join(', ') },
  ],
  workers: [
    { title: 'worker', cell: ({ name }) => name },
    { title: 'state', cell: ({ state }) => state },
    { title: 'isolation', cell: ({ isolation }) => isolation },
    { title: 'pid', cell: ({ pid }) => optional(pid, String), right: true },
    { title: 'actors', cell: ({ actors }) => thousands(actors), right: true },
    { title: 'running', cell: ({ running }) => optional(running, thousands), right: true },
    { title: 'queued', cell: ({ queued }) => optional(queued, thousands), right: true },
    { title: 'unanswered', cell: ({ unanswered }) => optional(unanswered, thousands), right: true },
    { title: 'in flight', cell: ({ bytesInFlight }) => optional(bytesInFlight, bytes), right: true },
    { title: 'lag p99', cell: ({ lag }) => optional(lag?.p99Ms, age), right: true },
    { title: 'lag max', cell: ({ lag }) => optional(lag?.maxMs, age), right: true },
    { title: 'heap', cell: ({ memory }) => optional(memory?.heapUsed, bytes), right: true },
    { title: 'rss', cell: ({ memory }) => optional(memory?.rss, bytes), right: true },
    { title: 'up', cell: ({ uptimeMs }) => optional(uptimeMs, age), right: true },
  ],
  nodes: [
    { title: 'node', cell: ({ node }) => node },
    { title: 'state', cell: ({ state }) => state },
    { title: 'actors', cell: ({ actors }) => thousands(actors), right: true },
    { title: 'leases', cell: ({ leases }) => thousands(leases), right: true },
    { title: 'free', cell: ({ free }) => amounts(free) },
    { title: 'of', cell: ({ total }) => amounts(total) },
    {
      title: 'labels',
      cell: ({ labels }) =>
        Object.entries(labels)
          .map(([key, value]) => `${key}=${value}`)
          .join(' '),
    },
    { title: 'why', cell: ({ because }) => because ?? '' },
  ],
  groups: [
    { title: 'group', cell: ({ name, group }) => name ?? group },
    { title: 'state', cell: ({ state }) => state },
    { title: 'strategy', cell: ({ strategy }) => strategy },
    {
      title: 'bundles',
      cell: ({ bundles }) => bundles.map((bundle) => `[${amounts(bundle.resources)} on ${bundle.node ?? '-'}]`).join(' '),
    },
    { title: 'why', cell: ({ because }) => because ?? '' },
  ],
  events: [
    { title: 'time', cell: ({ time }) => time },
    { title: 'what', cell: ({ what }) => what },
    { title: 'name', cell: ({ name }) => name },
    { title: 'change', cell: ({ change }) => change },
    {
      title: 'details',
      cell: ({ details }) =>
        Object.entries(details ?? {})
          .map(([key, value]) => `${key}=${text(value)}`)
          .join(' '),
    },
  ],
};

function text(value: unknown): string {
  return (typeof value === 'string' ? value : JSON.stringify(value)).split('\n', 1)[0]!;
}

function tableOf<T>(of: readonly Column<T>[], items: readonly T[]): string {
  const right = of.flatMap((column, i) => (column.right ? [i] : []));
  return rowsTable(
    of.map(({ title }) => title),
    items.map((item) => of.map(({ cell }) => cell(item))),
    right,
  );
}

async function show<K extends Kind>(run: RunObserver, kind: K, flags: ListFlags): Promise<string> {
  const answer = await run.ask(kind, listOptions(flags));
  if (flags.json) return JSON.stringify(answer);
  const { items } = answer as Listing<Item<K>>;
  const dropped = 'dropped' in answer && answer.dropped > 0 ? `\n${thousands(answer.dropped)} older events had to make room` : '';
  return `${items.length === 0 ? '' : `${tableOf(columns[kind], items)}\n`}${footer(kind, answer)}${dropped}`;
}

export function listCommand(): Command {
  const kinds = Object.keys(columns);
  return withList(
    new Command('list')
      .summary('list what a run has: actors, tasks, objects, workers, nodes, groups, events')
      .description(
        'Lists what a living run has. Tasks are calls under way and calls that wait; objects are values that others than their owner hold.\nA worker that does not answer is named, and what it alone knows is missing.',
      )
      .argument('<what>', `one of: ${kinds.join(', ')}`),
  )
    .addHelpText(
      'after',
      `
Examples
  sinkflex list actors
  sinkflex list tasks --where state=queued --limit 20
  sinkflex list workers --watch
  sinkflex list events --json | jq '.items[] | select(.what == "actor")'
`,
    )
    .action(async (what: string, flags: ListFlags) => {
      if (!Object.hasOwn(columns, what))
        throw new CommandError('SINKFLEX_USAGE', `there is no list of "${what}"; one of: ${kinds.join(', ')}`);
      await attached(flags, (run) => show(run, what as Kind, flags));
    });
}

export function summaryCommand(): Command {
  return withList(
    new Command('summary')
      .summary('calls of a run by kind of actor and method: counts, failures, what waits')
      .description(
        'Calls by kind of actor and method, of the workers that live. Durations only of runs with init({ timeline: true }), over the calls that the recorders hold.',
      ),
  ).action(async (flags: ListFlags) => {
    await attached(flags, async (run) => {
      const answer = await run.ask('summary', listOptions(flags));
      if (flags.json) return JSON.stringify(answer);
      const methods: Column<(typeof answer.items)[number]>[] = [
        { title: 'kind', cell: ({ kind }) => kind },
        { title: 'method', cell: ({ method }) => `${method}()` },
        { title: 'started', cell: ({ started }) => thousands(started), right: true },
        { title: 'failed', cell: ({ failed }) => thousands(failed), right: true },
        { title: 'running', cell: ({ running }) => thousands(running), right: true },
        { title: 'queued', cell: ({ queued }) => thousands(queued), right: true },
        { title: 'p50', cell: ({ p50Ms }) => optional(p50Ms, age), right: true },
        { title: 'p99', cell: ({ p99Ms }) => optional(p99Ms, age), right: true },
        { title: 'max', cell: ({ maxMs }) => optional(maxMs, age), right: true },
        { title: 'recorded', cell: ({ recorded }) => optional(recorded, thousands), right: true },
      ];
      return `${answer.items.length === 0 ? '' : `${tableOf(methods, answer.items)}\n`}${footer('methods', answer)}`;
    });
  });
}
