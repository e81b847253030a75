// Rows idle.*: private memory of an actor that has answered once and then waits: what all processes of the run grew by, divided by the
// number of actors. Beside it, in the same run, a bare thread or process that only waits for messages.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as after } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { type Isolation, spawn } from '../../../runtime/index.ts';
import { judged, type SuiteContext } from '../rows.ts';
import { Peer } from './actors.ts';
import { alone } from './alone.ts';
import { rayOf } from './peers.ts';
import { mib, privateBytes } from './private-memory.ts';
import { withRuntime } from './run.ts';
import { round, SUITE } from './turns.ts';

const BARE = fileURLToPath(new URL('./bare-main.js', import.meta.url));
const ACTORS: Record<Isolation, number> = { shared: 5000, thread: 16, process: 4 };
/** Collections and page returns that an idle process does by itself. */
const SETTLE_MS = 1500;

export async function idle(context: SuiteContext, isolation: Isolation): Promise<void> {
  const row = `idle.${isolation}`;
  if (process.platform !== 'linux') return context.report({ suite: SUITE, row, skipped: 'private memory is read from /proc' });
  const one = await alone<{ actor: number; bare: number }>(import.meta.url, 'grown', { isolation }, 60_000);
  const details = { actors: ACTORS[isolation], bare_mib: mib(one.bare), actor_mib: mib(one.actor) };
  if (isolation === 'shared') {
    const kib = round(one.actor / 1024);
    return context.report(judged({ suite: SUITE, row, unit: 'KiB', ours: kib, details: { actors: ACTORS.shared } }, { most: 100 }));
  }
  if (isolation === 'thread') {
    const over = mib(one.actor - one.bare);
    return context.report(
      judged({ suite: SUITE, row, unit: 'MiB', ours: over, details: { ...details, over: 'a bare thread' } }, { most: 8 }),
    );
  }
  const ray = await rayOf(context);
  const peer = typeof ray === 'object' ? round(await ray.ask('idle_process')) : undefined;
  const ours = mib(one.actor);
  context.report(
    judged(
      { suite: SUITE, row, unit: 'MiB', ours, ...(peer === undefined ? {} : { peer, ratio: round(peer / ours) }), details },
      { most: 60 },
    ),
  );
}

/** Bytes that one actor, and one bare worker, add. Runs in a process of its own. */
export async function grown({ isolation }: { isolation: Isolation }): Promise<{ actor: number; bare: number }> {
  const count = ACTORS[isolation];
  const bare = isolation === 'shared' ? 0 : await bareWorkers(isolation, count);
  return withRuntime(async () => {
    const pids = new Set([process.pid]);
    const start = async (n: number) => {
      const peers = Array.from({ length: n }, () => spawn(Peer, { isolation }));
      for (const pid of await Promise.all(peers.map((peer) => peer.pid()))) pids.add(pid);
      return peers;
    };
    // The first brings up what all share: a worker for shared actors, code, the agent's own state.
    const first = await start(1);
    if (isolation === 'process') pids.delete(await first[0]!.pid());
    const before = await settled(pids);
    const peers = await start(count);
    const after = await settled(pids);
    if (peers.length + first.length !== count + 1) throw new Error('an actor is missing');
    return { actor: (after - before) / count, bare };
  });
}

async function bareWorkers(isolation: 'thread' | 'process', count: number): Promise<number> {
  const before = await settled(new Set([process.pid]));
  if (isolation === 'thread') {
    const workers = Array.from({ length: count }, () => new Worker(BARE));
    await Promise.all(workers.map((worker) => once(worker, 'message')));
    const bytes = ((await settled(new Set([process.pid]))) - before) / count;
    await Promise.all(workers.map((worker) => worker.terminate()));
    await settled(new Set([process.pid]));
    return bytes;
  }
  const children = Array.from({ length: count }, () => fork(BARE, { execArgv: [], stdio: ['ignore', 'ignore', 'ignore', 'ipc'] }));
  await Promise.all(children.map((child) => once(child, 'message')));
  const bytes = (await settled(new Set(children.map((child) => child.pid!)))) / count;
  for (const child of children) child.kill('SIGKILL');
  return bytes;
}

async function settled(pids: ReadonlySet<number>): Promise<number> {
  await after(SETTLE_MS / 2);
  globalThis.gc?.();
  await after(SETTLE_MS / 2);
  return privateBytes([...pids]);
}
