import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import {
  ActorDiedError,
  ActorFailedError,
  type ActorInfo,
  type ActorOutput,
  init,
  kill,
  listActors,
  onActorChange,
  ready,
  shutdown,
  spawn,
} from '../../runtime/index.ts';
import { Broken, Lifecycle, Probe } from './fixtures/actors.ts';

const output: ActorOutput[] = [];
// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
t.before(() => init({ onOutput: (line) => output.push(line) }));
t.teardown(() => shutdown());

const find = (name: string): ActorInfo => listActors().find((actor) => actor.name === name)!;

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
    final: false,
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
  t.match(final, { details: { restarts: 1, mayHaveRun: false, final: true }, cause: { code: 'SINKFLEX_ACTOR_DIED' } });
  t.match(find('victim'), { state: 'dead', restarts: 1, incarnation: 2, cause: 'signal SIGKILL' });
  await kill(other);
});

t.test('order and at most once hold under kills', async () => {
  const victim = spawn(Probe, { name: 'often-killed', maxRestarts: 100, restartBackoffMs: 0 });
  await ready(victim);
  let next = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.constantFrom('call', 'call', 'call', 'call', 'yield', 'throw', 'kill', 'stop', 'exit', 'reject'), {
        minLength: 10,
        maxLength: 60,
      }),
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
          else if (word === 'throw') victim.fail('plain').catch(() => {});
          else if (!killed) {
            // One end of whatever kind for each script; a stopped process that is killed must go on dying.
            const { pid } = find('often-killed');
            killed = true;
            if (word === 'exit') victim.exit(3).catch(() => {});
            else if (word === 'reject') victim.rejectUnhandled('of nobody').catch(() => {});
            else if (pid !== undefined) {
              if (word === 'stop') process.kill(pid, 'SIGSTOP');
              process.kill(pid, 'SIGKILL');
            }
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
    { numRuns: 8, endOnFailure: true, seed: 20 },
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

  // A mistake in the program is the same next time: twice is enough, whatever the budget.
  const mistaken = spawn(Broken, { args: ['x is not a function', true], maxRestarts: 100, restartBackoffMs: 1, name: 'mistaken' });
  const waiting = mistaken.never().catch((e: unknown) => e);
  t.match(await ready(mistaken).catch((e: unknown) => e), {
    code: 'SINKFLEX_ACTOR_FAILED',
    message: 'actor mistaken failed in its constructor: x is not a function (the same mistake twice in a row, which no restart mends)',
    details: { restarts: 1, reason: 'constructor' },
    cause: { name: 'TypeError', message: 'x is not a function' },
  });
  t.match(await waiting, { code: 'SINKFLEX_ACTOR_FAILED' });
  // Nobody asked for restarts: the first is enough.
  const once = await ready(spawn(Broken, { args: ['not up yet'], name: 'once' })).catch((e: unknown) => e);
  t.match(once, { message: 'actor once failed in its constructor: not up yet', details: { restarts: 0 }, cause: { name: 'RangeError' } });
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
        details: { reason: 'killed', mayHaveRun: false, final: true },
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
