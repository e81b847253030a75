// What the agent says on stderr of workers that are not well. Once for each spell.
import { stackText } from '../observe/stack-sample.ts';
import type { WorkerRecord } from './records.ts';

const NAMED = 3;

function nameOf({ worker, hosted }: WorkerRecord): string {
  const names = [...hosted].map(({ spec }) => spec.name);
  const more = names.length > NAMED ? ` and ${names.length - NAMED} more` : '';
  return names.length === 0 ? `worker ${worker}` : `${names.slice(0, NAMED).join(', ')}${more}`;
}

/** A blocked loop is asked where it is: best at once, while it still is there. */
export async function warnOfHealth(worker: WorkerRecord, forMs: number): Promise<void> {
  const { health, carrier, isolation } = worker;
  const where = isolation === 'thread' ? 'thread' : `process ${carrier.pid}`;
  if (health === 'blocked') {
    const stack = stackText(await carrier.stack());
    if (worker.health !== 'blocked') return;
    const at = stack === '' ? '' : `; it is at\n${stack}`;
    const since = (forMs / 1000).toFixed(1);
    process.stderr.write(`[sinkflex] ${nameOf(worker)} (${where}): its event loop has not turned for ${since} s, calls to it wait${at}\n`);
  } else if (health === 'stopped') {
    process.stderr.write(`[sinkflex] ${nameOf(worker)} (${where}) is stopped: calls to it wait until it is continued (kill -CONT)\n`);
  }
}
