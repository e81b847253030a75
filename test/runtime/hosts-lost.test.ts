// Hosts that are killed, cut off or stopped: their actors answer elsewhere in time, and never in two places at once.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { init, kill, listNodes, onActorChange, shutdown, spawn, withOptions } from '../../runtime/index.ts';
import { lookUntil, PATIENCE_MS } from '../until.ts';
import { Peer } from './fixtures/hosts.ts';
import { gone, runs } from './fixtures/processes.ts';
import { endHostProcesses, startHostProcess, type Wire, wireTo } from './fixtures/processes-of-hosts.ts';

t.setTimeout(600_000);
delete process.env.NODE_OPTIONS;
const base = mkdtempSync(join(tmpdir(), 'sf-lost-'));
const folder = join(base, 'cluster');
const tokenFile = join(folder, 'token');
let url = '';
let wire: Wire;
const agents = new Map<string, Awaited<ReturnType<typeof startHostProcess>>['child']>();

t.before(async () => {
  url = (await startHostProcess('head', folder, '127.0.0.1:0')).said.url as string;
  wire = await wireTo(url);
  const start = async (node: string, address: string): Promise<void> => {
    agents.set(node, (await startHostProcess('agent', address, node, tokenFile)).child);
  };
  await Promise.all([start('home', url), start('killed', url), start('cut', wire.url), start('stopped', url)]);
  await init({ address: url, tokenFile });
});
t.teardown(async () => {
  await shutdown();
  endHostProcesses();
  wire.close();
  rmSync(base, { recursive: true, force: true });
});

/** An actor on that node which may go elsewhere, and its process. */
async function settle(
  node: string,
): Promise<{ name: string; pid: number; again: () => Promise<{ pid: number; afterMs: number }>; now: () => Promise<number> }> {
  const handle = spawn(Peer, { name: `on-${node}`, maxRestarts: 3, restartBackoffMs: 0, strategy: { node, soft: true } });
  const pid = await handle.pid();
  return {
    name: `on-${node}`,
    pid,
    /** Answers once it runs in another process. */
    async again() {
      const from = performance.now();
      await new Promise<void>((resolve) => {
        const stop = onActorChange((info) => {
          if (info.name !== `on-${node}` || info.state !== 'alive' || info.pid === pid) return;
          stop();
          resolve();
        });
      });
      const next = await withOptions(handle, { maxRetries: 3, timeoutMs: 30_000 }).pid();
      return { pid: next, afterMs: performance.now() - from };
    },
    now: async () => await handle.pid(),
  };
}

t.test('killed; then others cut off and stopped at the same moment', async (t) => {
  const [killed, cut, stopped] = await Promise.all([settle('killed'), settle('cut'), settle('stopped')]);
  t.equal(new Set([killed.pid, cut.pid, stopped.pid]).size, 3);
  /** Whether the old process still ran when the head had the next one. */
  const overlaps: string[] = [];
  const unwatch = onActorChange((info) => {
    for (const old of [cut, stopped])
      if (info.name === old.name && info.state === 'alive' && info.pid !== undefined && info.pid !== old.pid && runs(old.pid))
        overlaps.push(old.name);
  });
  // First, and alone: what it had may go to any of the others.
  agents.get('killed')!.kill('SIGKILL');
  const first = await killed.again();
  agents.get('stopped')!.kill('SIGSTOP');
  wire.cut();
  const [second, third] = await Promise.all([cut.again(), stopped.again()]);
  t.not(first.pid, killed.pid);
  t.ok(first.afterMs < PATIENCE_MS, `after a kill it answers elsewhere in ${Math.round(first.afterMs)} ms`);
  t.not(second.pid, cut.pid);
  t.not(third.pid, stopped.pid);
  for (const { afterMs } of [second, third]) t.ok(afterMs < PATIENCE_MS, `after a cut in ${Math.round(afterMs)} ms`);
  t.same(overlaps, [], 'nobody acted in two places');
  t.same(await gone([killed.pid, cut.pid, stopped.pid]), [], 'what ran there has ended');
  t.same(
    (await listNodes()).map(({ node }) => node),
    ['home'],
  );
  unwatch();

  // They come back, with nothing of what they had.
  agents.get('stopped')!.kill('SIGCONT');
  wire.heal();
  const names = async () => (await listNodes()).map(({ node }) => node).sort();
  t.same(await lookUntil(names, ({ length }) => length === 3), ['cut', 'home', 'stopped']);
  const back = spawn(Peer, { strategy: { node: 'cut' } });
  t.equal(await back.add(20, 3), 23, 'and take others');
  t.equal(await cut.now(), second.pid, 'the one that went elsewhere stays there');
  await kill(back);
});
