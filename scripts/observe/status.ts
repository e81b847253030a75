// `sinkflex status` and `metrics`: a run at a glance, and all its numbers.
import { Command } from 'commander';
import type { StatusInfo } from '../../runtime/index.ts';
import { age, bytes, table, thousands } from '../text.ts';
import { type AttachOptions, attached, missing, timeout, withRun } from './attach.ts';

/** Actors that wait for room; --json has them all. */
const PENDING_SHOWN = 10;

export function statusCommand(): Command {
  return withRun(
    new Command('status')
      .summary('a living run at a glance: actors, workers, calls, memory, what waits and why')
      .description('Shows a living run at a glance. Its program needs no preparation: every run that init() has started can be looked at.'),
  )
    .option('--watch [seconds]', 'show it again and again, every 2 seconds unless told otherwise')
    .action(async (flags: AttachOptions & { watch?: string | true }) => {
      await attached(flags, async (run) => {
        const status = await run.ask('status', { timeoutMs: timeout(flags), ...(flags.json ? {} : { limit: PENDING_SHOWN }) });
        return flags.json ? JSON.stringify(status) : statusText(status, run.run.program);
      });
    });
}

function counts(of: Record<string, number>): string {
  const parts = Object.entries(of).map(([what, count]) => `${thousands(count)} ${what}`);
  return parts.length === 0 ? 'none' : parts.join(', ');
}

export function statusText(status: StatusInfo, program: string): string {
  const { calls, worstLag } = status;
  const resources = status.nodes.flatMap(({ node, total, free }) =>
    Object.entries(total).map(([resource, has]) => {
      const show = (value: number): string => (resource === 'memory' ? bytes(value) : String(value));
      return [`${resource} of ${node}`, `${show(free[resource] ?? 0)} free of ${show(has)}`];
    }),
  );
  const rows: string[][] = [
    ['run', status.folder],
    ['program', `${program} (pid ${status.pid}, Node ${status.node})`],
    ['up', age(status.uptimeMs)],
    ['actors', `${counts(status.actors)}${status.restarts > 0 ? `; ${thousands(status.restarts)} restarts` : ''}`],
    ['workers', counts(status.workers)],
    [
      'calls',
      `${thousands(calls.running)} running, ${thousands(calls.queued)} queued; ${thousands(calls.unanswered)} unanswered (${bytes(calls.bytesInFlight)})`,
    ],
    ['lent values', `${thousands(status.lent)} held by others than their owner`],
    ['memory', `${bytes(status.memory.rss)} resident in all processes`],
    ...(worstLag === undefined
      ? []
      : [['event loop lag', `worst in ${worstLag.name}: p99 ${age(worstLag.p99Ms)}, longest ${age(worstLag.maxMs)}`]]),
    ...resources,
    ...(Object.keys(status.groups).length === 0 ? [] : [['placement groups', counts(status.groups)]]),
  ];
  const lines = [table(rows)];
  const suspects = status.nodes.flatMap(({ node, because }) => (because === undefined ? [] : [`  ${node}: ${because}`]));
  if (suspects.length > 0) lines.push('', 'suspect nodes, where nothing is placed:', ...suspects);
  const { pending } = status;
  if (pending.total > 0) {
    const of = pending.items.length < pending.total ? `${pending.items.length} of ${thousands(pending.total)}` : String(pending.total);
    lines.push('', `waiting for room (${of}):`, ...pending.items.map(({ actor, why }) => `  ${actor}: ${why}`));
  }
  if (status.events.length > 0) {
    lines.push('', 'last events (sinkflex list events shows more):');
    lines.push(
      table(
        status.events.map(({ time, what, name, change }) => [time.slice(11, 23), what, name, change]),
        { indent: '  ' },
      ),
    );
  }
  const gone = missing(status.silent);
  if (gone.length > 0) lines.push('', ...gone);
  return lines.join('\n');
}

export function metricsCommand(): Command {
  return withRun(
    new Command('metrics')
      .summary('all metrics of a living run, as Prometheus text')
      .description(
        'Prints the metrics of all workers as Prometheus text; with --json as one JSON object { text }. init({ metricsPort }) serves the same to Prometheus.',
      ),
  ).action(async (flags: AttachOptions) => {
    await attached(flags, async (run) => {
      const text = await run.ask('metrics', { timeoutMs: timeout(flags) });
      return flags.json ? JSON.stringify({ text }) : text.trimEnd();
    });
  });
}
