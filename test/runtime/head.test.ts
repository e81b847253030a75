// A head and agents as processes of their own: any of them may be killed, and what lives is what should.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import {
  type ActorInfo,
  explain,
  getActor,
  init,
  kill,
  listActors,
  listEvents,
  listNodes,
  onActorChange,
  shutdown,
  spawn,
  status,
} from '../../runtime/index.ts';
import { PATIENCE_MS, until } from '../until.ts';
import { Counter, Probe } from './fixtures/actors.ts';
import { Placed } from './fixtures/owners.ts';
import { gone, runs } from './fixtures/processes.ts';
import { endHostProcesses, startHostProcess, startProgram } from './fixtures/processes-of-hosts.ts';

// A dozen processes start here, two of them with the whole command line.
t.setTimeout(600_000);
// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
const base = mkdtempSync(join(tmpdir(), 'sf-h-'));
const folder = join(base, 'cluster');
const program = fileURLToPath(new URL('../../scripts/sinkflex.js', import.meta.url));
const LEASE_MS = 5000;
const startHead = () => startHostProcess('head', folder, '-', String(LEASE_MS));
const startAgent = (node: string) => startHostProcess('agent', folder, node);
/** Through the command line, which takes longer to load. */
const command = (...words: string[]) => startProgram(program, [...words, '--json']);
async function killNow(child: ChildProcess): Promise<void> {
  const exited = once(child, 'exit');
  child.kill('SIGKILL');
  await exited;
}
function seen(what: (info: ActorInfo) => boolean): Promise<ActorInfo> {
  const now = listActors().find(what);
  if (now !== undefined) return Promise.resolve(now);
  return new Promise((resolve) => {
    const stop = onActorChange((info) => {
      if (!what(info)) return;
      stop();
      resolve(info);
    });
  });
}

let head: ChildProcess;
const agents = new Map<string, ChildProcess>();
t.before(async () => {
  head = (await startHead()).child;
  for (const node of ['a', 'b']) agents.set(node, (await startAgent(node)).child);
  await init({ address: folder, onOutput: () => {} });
});
t.teardown(async () => {
  await shutdown();
  endHostProcesses();
  rmSync(base, { recursive: true, force: true });
});

t.test('the folder is for this user only', async (t) => {
  t.equal(statSync(folder).mode & 0o777, 0o700);
  t.equal(statSync(join(folder, 'token')).mode & 0o777, 0o600);
  await t.rejects(startHead(), /process \d+ is the head of .* end it first/, 'one head at a time');
  await t.rejects(startHostProcess('head', base), /holds other things/, 'nobody else loses a folder');
  await t.rejects(startHostProcess('agent', base), /not the folder of a cluster/);
});

t.test('an agent that is stopped is suspect; when its lease is over its actors live elsewhere, and nowhere else', async (t) => {
  const { child } = await startAgent('s');
  t.ok(
    (await listNodes()).some(({ node }) => node === 's'),
    'whoever has joined is known',
  );
  const stays = spawn(Placed, { name: 'stays', maxRestarts: 1, strategy: { node: 's', soft: true } });
  const pid = await stays.pid();
  const state = async (): Promise<string | undefined> => (await listNodes()).find(({ node }) => node === 's')?.state;
  const becomes = async (wanted: string | undefined): Promise<number> => {
    const began = performance.now();
    await until(`it is ${wanted}`, async () => (await state()) === wanted);
    return performance.now() - began;
  };
  child.kill('SIGSTOP');
  const noticed = await becomes('suspect');
  t.ok(noticed < LEASE_MS + PATIENCE_MS / 2, `noticed after ${Math.round(noticed)} ms`);
  const waits = spawn(Placed, { name: 'waits', cpus: 1, strategy: { node: 's' } });
  t.match(await explain(waits), {
    state: 'pending',
    text: new RegExp(`s is suspect: its agent \\(process ${child.pid}\\) is stopped: kill -CONT`),
  });
  t.match(
    (await status()).nodes.find(({ node }) => node === 's'),
    { state: 'suspect', because: /is stopped/ },
  );
  t.equal(await stays.pid(), pid, 'calls need no agent');
  child.kill('SIGCONT');
  await becomes('up');
  t.type(await waits.pid(), 'number', 'who waited for it is there');

  child.kill('SIGSTOP');
  const began = performance.now();
  await seen(({ name, incarnation, state }) => name === 'stays' && incarnation === 2 && state === 'alive');
  const moved = performance.now() - began;
  t.ok(moved > LEASE_MS - 600 && moved < LEASE_MS + PATIENCE_MS / 2, `elsewhere after ${moved} ms`);
  t.same(await gone([pid, child.pid!]), [], 'no actor lives twice');
  t.not(await stays.pid(), pid);
  t.equal(await state(), undefined);
  t.same(
    (await listEvents({ where: { what: 'node', name: 's' } })).items.map(({ change }) => change),
    ['up', 'suspect', 'trusted', 'suspect', 'down'],
  );
  await kill(stays);
});

t.test('a head that is killed: calls go on, and the next one finds its actors', async (t) => {
  const there = { strategy: { node: 'a' } } as const;
  const counter = spawn(Counter, { name: 'counter', maxRestarts: 1, ...there });
  const light = spawn(Counter, { name: 'light', isolation: 'shared', ...there });
  const mortal = spawn(Probe, { name: 'mortal', ...there });
  const again = spawn(Placed, { name: 'again', maxRestarts: 1, restartBackoffMs: 0, ...there });
  t.same(await Promise.all([counter.add(1), light.add(1)]), [1, 1]);
  const [{ pid: mortalPid }, againPid] = await Promise.all([mortal.who(), again.pid()]);
  const before = new Map(listActors().map(({ name, pid }) => [name, pid]));

  await killNow(head);
  t.same(await Promise.all([counter.add(1), light.add(1)]), [2, 2], 'calls need no head');
  await t.rejects(status(), { code: 'SINKFLEX_NO_HEAD', message: /the head of .* has ended.* start it again with sinkflex head --folder/ });
  // What is asked meanwhile waits; who dies meanwhile is missed.
  const late = spawn(Counter, { name: 'late', isolation: 'shared' });
  const lateAnswer = late.add(7);
  const killed = kill(light, { restart: true });
  process.kill(mortalPid, 'SIGKILL');
  process.kill(againPid, 'SIGKILL');
  t.same(await gone([mortalPid, againPid]), []);
  t.equal(await counter.add(1), 3);

  // Several that would be the next: one is.
  const tries = await Promise.allSettled([startHead(), startHead(), startHead()]);
  const [second, ...more] = tries.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
  t.same(more, []);
  for (const each of tries) if (each.status === 'rejected') t.match(String(each.reason), /process \d+ is the head of/);
  if (second === undefined) return t.fail('none is the head');
  head = second.child;
  t.ok((second.said.recovered as number) >= 4, `recovered ${String(second.said.recovered)}`);
  t.equal(await lateAnswer, 7);
  await killed;
  t.equal(await light.add(1), 1, 'restarted once, not twice');
  t.equal(listActors().find(({ name }) => name === 'light')!.incarnation, 2);
  t.match(await mortal.label().catch((e: unknown) => e), { code: 'SINKFLEX_ACTOR_DIED', final: true, details: { signal: 'SIGKILL' } });
  t.equal(await again.incarnation(), 2);
  t.equal(await counter.add(1), 4, 'the same actor as ever');
  const found = await getActor<typeof Counter>('counter');
  t.equal(await found.add(1), 5);
  const after = listActors().find(({ name }) => name === 'counter')!;
  t.match(after, { pid: before.get('counter'), incarnation: 1, state: 'alive', node: 'a' });
  t.same((await listNodes()).map(({ node }) => node).sort(), ['a', 'b']);
  // And once more, from a journal that two heads have written.
  await killNow(head);
  head = (await command('head', '--folder', folder)).child;
  t.equal(await (await getActor<typeof Counter>('counter')).add(1), 6);
  await Promise.all([counter, light, again, late].map((actor) => kill(actor)));
});

t.test('kill -9 of a driver ends what it owned, and nothing else', async (t) => {
  const driver = fork(fileURLToPath(new URL('./fixtures/head-driver.js', import.meta.url)), [folder], { execArgv: [] });
  t.teardown(() => driver.kill('SIGKILL'));
  const [{ pid }] = (await once(driver, 'message')) as [{ pid: number }];
  t.ok(runs(pid));
  await killNow(driver);
  t.same(await gone([pid]), []);
  t.match(await seen(({ name, state }) => name === 'owned' && state === 'dead'), { cause: /owner/ });
  const detached = await getActor<typeof Counter>('detached');
  t.equal(await detached.add(1), 6, 'it outlives its driver');
  await kill(detached);
});

t.test('kill -9 of an agent kills its workers; who may, lives on elsewhere', async (t) => {
  const moves = spawn(Placed, { name: 'moves', maxRestarts: 1, strategy: { node: 'b', soft: true } });
  const ends = spawn(Probe, { name: 'ends', strategy: { node: 'b' } });
  const elsewhere = spawn(Counter, { name: 'elsewhere', strategy: { node: 'a' } });
  const pids = [await moves.pid(), (await ends.who()).pid, await ends.grandchild()];
  await elsewhere.add(1);
  await killNow(agents.get('b')!);
  t.same(await gone(pids), []);
  // A call before the head's word of the death would be lost with the first incarnation.
  await seen(({ name, state, incarnation }) => name === 'moves' && state === 'alive' && incarnation === 2);
  t.equal(await moves.incarnation(), 2);
  t.equal(listActors().find(({ name, state }) => name === 'moves' && state === 'alive')!.node, 'a');
  t.match(await ends.label().catch((e: unknown) => e), { code: 'SINKFLEX_ACTOR_DIED', final: true, details: { reason: 'lost' } });
  t.equal(await elsewhere.add(1), 2);
  const end = Date.now() + 3000;
  const left = (): string[] => readdirSync(folder).filter((name) => name.startsWith('agent-'));
  while (left().length > 1 && Date.now() < end) await new Promise((resolve) => setImmediate(resolve));
  t.equal(left().length, 1, 'its folder is swept');
  await Promise.all([moves, elsewhere].map((actor) => kill(actor)));
});

t.test('SIGTERM drains a node, and ends the cluster', async (t) => {
  agents.set('c', (await command('agent', '--join', folder, '--node', 'c', '--cpus', '4', '--drain-ms', '1000')).child);
  const stays = spawn(Probe, { name: 'stays', strategy: { node: 'c' } });
  const { pid } = await stays.who();
  const drained = once(agents.get('c')!, 'exit');
  agents.get('c')!.kill('SIGTERM');
  t.same((await drained)[0], 0);
  t.same(await gone([pid]), []);
  const last = spawn(Probe, { name: 'last' });
  const lastPid = (await last.who()).pid;
  const ended = Promise.all([once(head, 'exit'), once(agents.get('a')!, 'exit')]);
  head.kill('SIGTERM');
  const [[headCode], [agentCode]] = await ended;
  t.same([headCode, agentCode], [0, 0]);
  t.same(await gone([lastPid]), []);
  t.notOk(existsSync(folder));
  t.match(await last.label().catch((e: unknown) => e), { code: /SINKFLEX_(SHUT_DOWN|ACTOR_DIED)/ });
});
