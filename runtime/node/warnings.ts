// What the agent says on stderr of workers that are not well. Once for each spell.
import type { WorkerRecord } from './records.ts';

const NAMED = 3;

function nameOf({ worker, hosted }: WorkerRecord): string {
  const names = [...hosted].map(({ spec }) => spec.name);
  const more = names.length > NAMED ? ` and ${names.length - NAMED} more` : '';
  return names.length === 0 ? `worker ${worker}` : `${names.slice(0, NAMED).join(', ')}${more}`;
}

/** `stack`: where its loop is, if that could be found out. */
export function warnOfHealth(worker: WorkerRecord, forMs: number, stack?: string): void {
  const { health, carrier, isolation } = worker;
  const where = isolation === 'thread' ? 'thread' : `process ${carrier.pid}`;
  if (health === 'blocked') {
    const since = `${(forMs / 1000).toFixed(1)} s`;
    process.stderr.write(
      `[sinkflex] ${nameOf(worker)} (${where}): its event loop has not turned for ${since}, calls to it wait${stack === undefined || stack === '' ? '' : `; it is at\n${stack}`}\n`,
    );
  } else if (health === 'stopped') {
    process.stderr.write(`[sinkflex] ${nameOf(worker)} (${where}) is stopped: calls to it wait until it is continued (kill -CONT)\n`);
  }
}
