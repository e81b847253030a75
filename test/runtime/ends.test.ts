// Ends: of actors with what they started, of a killed driver, of a run that is shut down. Nothing is left behind.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { get, init, listActors, ready, shutdown, spawn } from '../../runtime/index.ts';
import { memoryController } from '../../runtime/node/memory-limit.ts';
import { lookUntil } from '../until.ts';
import { Counter, Lifecycle, Probe } from './fixtures/actors.ts';
import { gone, runs } from './fixtures/processes.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
t.before(() => init({ onOutput: () => {} }));
t.teardown(() => shutdown());

t.test('what an actor started ends with it', async (t) => {
  const parent = spawn(Probe, { name: 'parent' });
  const child = await parent.grandchild();
  t.ok(runs(child));
  process.kill(listActors().find((actor) => actor.name === 'parent')!.pid!, 'SIGKILL');
  await parent.label().catch(() => {});
  t.same(await gone([child]), []);
});

t.test('kill -9 of the driver leaves no process and no folder', async (t) => {
  const temporary = mkdtempSync(join(tmpdir(), 'sf-'));
  t.teardown(() => rmSync(temporary, { recursive: true }));
  const driver = fork(fileURLToPath(new URL('./fixtures/driver.js', import.meta.url)), {
    env: { ...process.env, TMPDIR: temporary },
    execArgv: [],
  });
  const [{ pids, all }] = (await once(driver, 'message')) as [{ pids: number[]; all: number[] }];
  t.equal(pids.length, 4, 'two processes, a shared worker, a grandchild');
  t.equal(all.length, 7, 'and two spares and the janitor');
  t.ok(all.every(runs));
  t.equal(readdirSync(temporary).length, 1);
  const parent = memoryController()?.parent;
  const groups = (): string[] =>
    parent === undefined ? [] : readdirSync(parent).filter((name) => name.startsWith(`sinkflex-${driver.pid}-`));
  t.comment(`${groups().length} memory control groups`);
  driver.kill('SIGKILL');
  t.same(await gone(all), []);
  const left = () => [...readdirSync(temporary), ...groups()];
  t.same(await lookUntil(left, (names) => names.length === 0), []);
});

t.test('shutdown runs stop(), ends everything and leaves nothing; dead runs are swept at the next start', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sinkflex-test-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const log = join(folder, 'log');
  const actors = (['process', 'thread', 'shared'] as const).map((isolation) =>
    spawn(Lifecycle, { isolation, args: [log], name: `last-${isolation}` }),
  );
  const hanging = spawn(Probe, { isolation: 'thread' });
  await Promise.all([...actors, hanging].map((actor) => ready(actor)));
  const never = hanging.block().catch((e: unknown) => e);
  const pids = [...new Set(listActors().map((actor) => actor.pid))].filter((pid) => pid !== undefined && pid !== process.pid) as number[];
  const own = readdirSync(tmpdir()).filter((name) => name.startsWith(`sinkflex-${process.pid}-`));
  t.equal(own.length, 1);
  await shutdown({ timeoutMs: 2000 });
  t.match(await never, { code: 'SINKFLEX_ACTOR_DIED' });
  t.same(pids.filter(runs), []);
  t.notOk(existsSync(join(tmpdir(), own[0]!)));
  t.equal(
    readFileSync(log, 'utf8')
      .split('\n')
      .filter((line) => line.startsWith('stop last-')).length,
    3,
  );
  t.throws(() => spawn(Counter), { code: 'SINKFLEX_NOT_INITIALISED' });
  await t.rejects(Promise.resolve(actors[0]!.ping()), /./);

  const left = join(tmpdir(), 'sinkflex-999999999-1-abcdef');
  mkdirSync(left);
  await init({ onOutput: () => {}, maxInFlightBytes: 10_000 });
  t.notOk(existsSync(left), 'swept');
  const probe = spawn(Probe, { isolation: 'shared', maxConcurrency: 2 });
  t.equal(await probe.label(), '', 'and it works again');
  const unanswered = [probe.inspect(new Float32Array(5000)), probe.label()];
  t.match(await get(unanswered).catch((e: unknown) => e), { code: 'SINKFLEX_ACTOR_BUSY' }, 'bytes without an answer are bounded');
  await get([unanswered[0]!]);
  t.equal(await probe.label(), '');
});
