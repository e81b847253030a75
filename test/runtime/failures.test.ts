// Death in all its forms: what callers are told, what comes back, and what is left behind (nothing).
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import t from 'tap';
import { os } from '../../kernels/index.ts';
import {
  ActorDiedError,
  ActorFailedError,
  type ActorInfo,
  type ActorOutput,
  get,
  init,
  kill,
  listActors,
  onActorChange,
  ready,
  shutdown,
  spawn,
} from '../../runtime/index.ts';
import { Broken, Counter, Lifecycle, Probe } from './fixtures/actors.ts';

const output: ActorOutput[] = [];
// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
t.before(() => init({ onOutput: (line) => output.push(line) }));
t.teardown(() => shutdown());

const find = (name: string): ActorInfo => listActors().find((actor) => actor.name === name)!;
/** Running or asleep: zombies do not count. */
const runs = (pid: number): boolean => !['Z', 'X', undefined].includes(os.processState(pid));

async function gone(pids: number[], withinMs: number): Promise<number[]> {
  const end = Date.now() + withinMs;
  let left = pids.filter(runs);
  while (left.length > 0 && Date.now() < end) {
    await new Promise((resolve) => setImmediate(resolve));
    left = left.filter(runs);
  }
  return left;
}

t.test('kill -9 under calls of two callers: both are told at once, with the signal; later calls reach the next incarnation', async (t) => {
  const victim = spawn(Probe, { name: 'victim', maxRestarts: 1, restartBackoffMs: 1, maxConcurrency: 3 });
  const other = spawn(Probe, { name: 'other', maxConcurrency: 2 });
  await Promise.all([ready(victim), ready(other)]);
  const mine = victim.block().catch((e: unknown) => e);
  const theirs = other.nestForAbort(victim).catch((e: unknown) => e);
  while (!(await victim.notes()).includes('begun'));
  const killed = performance.now();
  process.kill(find('victim').pid!, 'SIGKILL');
  const error = await mine;
  const seen = performance.now() - killed;
  const after = victim.who();
  t.ok(error instanceof ActorDiedError);
  t.match(error, {
    code: 'SINKFLEX_ACTOR_DIED',
    incarnation: 1,
    signal: 'SIGKILL',
    mayHaveRun: true,
    details: { actor: 'victim', reason: 'exit' },
  });
  t.match(await theirs, { code: 'SINKFLEX_ACTOR_DIED', details: { signal: 'SIGKILL', incarnation: 1 } });
  t.match(await after, { incarnation: 2 });
  t.ok(seen < 1000, `told after ${seen.toFixed(1)} ms`);
  t.comment(`death told after ${seen.toFixed(1)} ms, next incarnation answers after ${(performance.now() - killed).toFixed(0)} ms`);

  // The budget is spent: the next death is final, and says so.
  const waiting = victim.block().catch((e: unknown) => e);
  await victim.who();
  victim.die('SIGKILL');
  t.match(await waiting, { code: 'SINKFLEX_ACTOR_DIED', details: { incarnation: 2 } });
  const final = await victim.who().catch((e: unknown) => e);
  t.ok(final instanceof ActorFailedError);
  t.match(final, { details: { restarts: 1, mayHaveRun: false }, cause: { code: 'SINKFLEX_ACTOR_DIED' } });
  t.match(find('victim'), { state: 'dead', restarts: 1, incarnation: 2, cause: 'signal SIGKILL' });
  await kill(other);
});

t.test('order and at most once hold under kills', async () => {
  const victim = spawn(Probe, { name: 'often-killed', maxRestarts: 100, restartBackoffMs: 0 });
  await ready(victim);
  let next = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.constantFrom('call', 'call', 'call', 'yield', 'kill'), { minLength: 5, maxLength: 60 }),
      async (script) => {
        const sent: { number: number; outcome: Promise<string> }[] = [];
        let killed = false;
        for (const word of [...script, 'call']) {
          if (word === 'call') {
            const number = next++;
            const outcome = victim.note(number).then(
              () => 'ran',
              (e: unknown) => ((e as ActorDiedError).mayHaveRun ? 'perhaps' : 'not'),
            );
            sent.push({ number, outcome });
          } else if (word === 'yield') await victim.label().catch(() => {});
          else if (!killed) {
            const { pid } = find('often-killed');
            killed = true;
            if (pid !== undefined) process.kill(pid, 'SIGKILL');
          }
        }
        const outcomes = await Promise.all(sent.map(async ({ number, outcome }) => ({ number, outcome: await outcome })));
        const log = ((await victim.notes()) as number[]).filter((number) => number >= (sent[0]?.number ?? 0));
        if (new Set(log).size !== log.length) throw new Error(`a call ran twice: ${log}`);
        if (log.some((number, i) => i > 0 && number < log[i - 1]!)) throw new Error(`out of order: ${log}`);
        for (const { number, outcome } of outcomes) {
          if (outcome === 'not' && log.includes(number)) throw new Error(`${number} was said not to have run`);
          if (outcome === 'ran' && !killed && !log.includes(number)) throw new Error(`${number} was lost`);
        }
        if (outcomes.at(-1)!.outcome === 'not') throw new Error('a call made while it was down did not wait for the next incarnation');
      },
    ),
    { numRuns: 5, endOnFailure: true },
  );
  await kill(victim);
});

t.test('what an actor dies of is in the error: exit code, stderr, unhandled rejection, constructor', async (t) => {
  const talker = spawn(Probe, { name: 'talker' });
  const said = await talker.complain('the last words', 3).catch((e: unknown) => e as ActorDiedError);
  t.match(said, { code: 'SINKFLEX_ACTOR_DIED', exitCode: 3, lastStderr: ['the last words'], message: /exit code 3.*the last words/ });
  t.ok(output.some(({ name, stream, line }) => name === 'talker' && stream === 'stderr' && line === 'the last words'));

  for (const isolation of ['process', 'thread', 'shared'] as const) {
    const careless = spawn(Probe, { isolation, maxConcurrency: 2 });
    const neighbour = isolation === 'shared' ? spawn(Probe, { isolation }) : undefined;
    const fate = neighbour?.block().catch((e: unknown) => e);
    if (neighbour !== undefined) await ready(neighbour);
    const under = careless.block().catch((e: unknown) => e);
    await careless.rejectUnhandled('nobody caught it').catch(() => {});
    t.match(await under, { code: 'SINKFLEX_ACTOR_DIED', cause: { message: 'nobody caught it' } }, isolation);
    if (fate !== undefined) t.match(await fate, { code: 'SINKFLEX_ACTOR_DIED' }, 'those who share a worker share its fate');
  }

  const broken = spawn(Broken, { args: ['every time'], maxRestarts: 2, restartBackoffMs: 1 });
  const changes: string[] = [];
  const stop = onActorChange((actor) => actor.kind === 'Broken' && changes.push(`${actor.state} ${actor.incarnation}`));
  const error = await ready(broken).catch((e: unknown) => e);
  stop();
  t.match(error, {
    code: 'SINKFLEX_ACTOR_FAILED',
    details: { restarts: 2, reason: 'constructor' },
    cause: { name: 'RangeError', message: 'every time' },
  });
  t.same(changes, ['restarting 2', 'starting 2', 'restarting 3', 'starting 3', 'dead 3']);
});

t.test(
  'kill: stop() runs, waiting calls did not run, with restart the next incarnation follows; a blocked one is ended by force',
  async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'sinkflex-test-'));
    t.teardown(() => rmSync(folder, { recursive: true }));
    const log = join(folder, 'log');
    for (const isolation of ['process', 'thread', 'shared'] as const) {
      const name = `life-${isolation}`;
      const actor = spawn(Lifecycle, { isolation, name, args: [log] });
      await ready(actor);
      await kill(actor, { restart: true });
      t.equal(await actor.ping(), 'pong');
      t.match(find(name), { incarnation: 2, state: 'alive' });
      await kill(actor);
      t.match(await actor.ping().catch((e: unknown) => e), {
        code: 'SINKFLEX_ACTOR_DIED',
        details: { reason: 'killed', mayHaveRun: false },
      });
      const lines = readFileSync(log, 'utf8').trim().split('\n');
      t.same(
        lines.filter((line) => line.endsWith(name)).map((line) => line.split(' ')[0]),
        ['start', 'stop', 'start', 'stop'],
      );
    }
    const busy = spawn(Probe);
    await busy.label();
    const spinning = busy.spin(60_000).catch((e: unknown) => e);
    const waiting = busy.label().catch((e: unknown) => e);
    while (!output.some(({ line }) => line === 'spinning')) await new Promise((resolve) => setImmediate(resolve));
    await kill(busy);
    t.match(await spinning, { code: 'SINKFLEX_ACTOR_DIED', details: { mayHaveRun: true } });
    t.match(await waiting, { code: 'SINKFLEX_ACTOR_DIED' });
  },
);

t.test('what an actor started ends with it', async (t) => {
  const parent = spawn(Probe, { name: 'parent' });
  const child = await parent.grandchild();
  t.ok(runs(child));
  process.kill(find('parent').pid!, 'SIGKILL');
  await parent.label().catch(() => {});
  t.same(await gone([child], 2000), []);
});

t.test('kill -9 of the driver leaves no process and no folder', async (t) => {
  const temporary = mkdtempSync(join(tmpdir(), 'sf-'));
  t.teardown(() => rmSync(temporary, { recursive: true }));
  const driver = fork(fileURLToPath(new URL('./fixtures/driver.js', import.meta.url)), {
    env: { ...process.env, TMPDIR: temporary },
    execArgv: [],
  });
  const [{ pids }] = (await once(driver, 'message')) as [{ pids: number[] }];
  t.equal(pids.length, 4, 'two processes, a shared worker, a grandchild');
  t.ok(pids.every(runs));
  t.equal(readdirSync(temporary).length, 1);
  driver.kill('SIGKILL');
  t.same(await gone(pids, 3000), []);
  const end = Date.now() + 3000;
  while (readdirSync(temporary).length > 0 && Date.now() < end) await new Promise((resolve) => setImmediate(resolve));
  t.same(readdirSync(temporary), []);
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
