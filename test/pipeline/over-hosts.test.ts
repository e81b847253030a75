// The whole job over several hosts: rollouts and environments elsewhere, with copies of the weights; the same bits as on one host, and no host
// but that of the trainer is needed.
import { join } from 'node:path';
import t from 'tap';
import { chooseRun, listActors, RunObserver } from '../../runtime/index.ts';
import { endHostProcesses, startHostProcess } from '../runtime/fixtures/processes-of-hosts.ts';
import { until } from '../until.ts';
import { balanced, essence, ledger, root, start } from './tiny-run.ts';

t.setTimeout(600_000);
const folder = join(root, 'cluster');
const agents = new Map<string, Awaited<ReturnType<typeof startHostProcess>>['child']>();
const LATEST_MS = 60_000;
let url = '';
async function joinCluster(node: string, address: string, ...more: string[]): Promise<void> {
  agents.set(node, (await startHostProcess('agent', address, node, ...more)).child);
}
t.before(async () => {
  url = (await startHostProcess('head', folder, '127.0.0.1:0')).said.url as string;
  const others = ['east', 'west'].map((node) => joinCluster(node, url, `${folder}/token`));
  await Promise.all([joinCluster('home', folder), ...others]);
});
t.teardown(endHostProcesses);

t.test('a synchronous run over three hosts has the bits of one on a single host', async (t) => {
  await start('one', { mode: 'sync' });
  const nodes = new Map<string, string>();
  await start(
    'three',
    { mode: 'sync', 'cluster.address': folder },
    {
      on: (event) => {
        if (event.kind !== 'advance') return;
        for (const { name, node } of listActors()) nodes.set(name, node);
      },
    },
  );
  t.strictSame(await essence('three'), await essence('one'));
  t.equal(nodes.get('trainer'), 'home');
  t.same(
    [...nodes].flatMap(([name, node]) => (name.startsWith('weights-') ? [node] : [])).sort(),
    ['east', 'west'],
    'each other host has a copy',
  );
  // A host that is suspect for a moment is passed over.
  for (const kind of ['rollout', 'environment'])
    t.ok(
      [0, 1].some((i) => nodes.get(`${kind}-${i}`) !== 'home'),
      `${kind}s are on other hosts`,
    );
});

t.test('an asynchronous run goes on when a host is killed', async (t) => {
  let killed = false;
  const result = await start(
    'killed',
    { mode: 'async', 'cluster.address': folder },
    {
      on: (event) => {
        if (killed || event.kind !== 'advance' || event.phase !== 'grpo' || event.done < 2) return;
        killed = true;
        agents.get('east')!.kill('SIGKILL');
      },
    },
  );
  t.ok(killed);
  t.match(result, { steps: 5 });
  t.ok(balanced(ledger('killed')), 'the books balance');
});

t.test('a copy of the weights that is started again is read by the rollouts of its host', async (t) => {
  /** Incarnations of the rollouts on that host when the copy was killed, and later. */
  const before = new Map<string, number>();
  const after = new Map<string, number>();
  const result = await start(
    'copied',
    { mode: 'async', 'cluster.address': folder },
    {
      on: (event) => {
        if (event.kind !== 'advance' || event.phase !== 'grpo') return;
        const rollouts = listActors().filter(
          ({ name, node, state }) => name.startsWith('rollout-') && node === 'west' && state === 'alive',
        );
        if (before.size > 0) for (const { name, incarnation } of rollouts) after.set(name, incarnation);
        const pid = listActors().find(({ name, node, state }) => name.startsWith('weights-') && node === 'west' && state === 'alive')?.pid;
        if (before.size > 0 || event.done < 1 || rollouts.length === 0 || pid === undefined) return;
        for (const { name, incarnation } of rollouts) before.set(name, incarnation);
        process.kill(pid, 'SIGKILL');
      },
    },
  );
  t.match(result, { steps: 5 });
  t.ok(before.size > 0, 'the copy was killed');
  for (const [name, incarnation] of before) t.ok((after.get(name) ?? 0) > incarnation, `${name} opened the new copy`);
  t.ok(balanced(ledger('copied')), 'the books balance');
});

t.test('a host that joins while a run is under way rolls out too; when it is lost the run goes on', async (t) => {
  const ending = new AbortController();
  let steps = 0;
  const run = start(
    'joined',
    { mode: 'async', 'cluster.address': folder, 'trainer.total_training_steps': 100_000, 'trainer.save_freq': 1000 },
    { signal: ending.signal, on: (event) => event.kind === 'advance' && event.phase === 'grpo' && steps++ },
  );
  const ended = run.then(
    () => 'ended',
    (error: { code: string }) => error.code,
  );
  await until('the run has begun', () => steps > 0, LATEST_MS);
  const observer = await RunObserver.attach(chooseRun(folder));
  await joinCluster('north', url, `${folder}/token`);
  const there = () => listActors().filter(({ node, name }) => node === 'north' && /^(rollout|environment)-/.test(name));
  await until(
    'a rollout works there',
    async () => {
      const names = there().map(({ name }) => name);
      return (await observer.ask('tasks')).items.some(({ actor, method }) => method === 'rollout' && names.includes(actor));
    },
    LATEST_MS,
  );
  t.match(
    there()
      .map(({ name }) => name)
      .sort(),
    [/environment/, /rollout/],
  );
  agents.get('north')!.kill('SIGKILL');
  await until('its actors are given up', () => there().every(({ state }) => state === 'dead'), LATEST_MS);
  const before = steps;
  await until('the run goes on', () => steps > before + 3, LATEST_MS);
  observer.close();
  ending.abort();
  t.equal(await ended, 'SINKFLEX_ABORTED');
});
