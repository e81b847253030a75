// Where workers come from: warm ones and new ones, the environment that they get, how many start at a time.
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { type ActorOutput, get, init, kill, listActors, ready, shutdown, spawn } from '../../runtime/index.ts';
import { until } from '../until.ts';
import { Counter, Probe } from './fixtures/actors.ts';
import { childrenOf, gone, runs } from './fixtures/processes.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
const output: ActorOutput[] = [];
const start = (options: Parameters<typeof init>[0] = {}) => init({ onOutput: (line) => output.push(line), ...options });
t.teardown(() => shutdown());

const janitorAnd = (workers: number) => () => childrenOf().length === workers + 1;
const pidOf = (name: string): number => listActors().find((actor) => actor.name === name)!.pid!;

t.test('warm workers: none before they are of use, seen by nobody, taken by the next actor and replaced, gone with the run', async (t) => {
  await start();
  t.same(childrenOf(), [], 'nothing is started ahead');
  const thread = spawn(Counter, { isolation: 'thread' });
  await thread.add(1);
  t.same(childrenOf(), [], 'nor for threads');
  const first = spawn(Probe, { name: 'first' });
  await ready(first);
  await until('a spare', janitorAnd(2));
  t.same(
    listActors()
      .map(({ kind }) => kind)
      .sort(),
    ['Counter', 'Probe'],
  );

  const before = childrenOf();
  process.env.SAID_LATER = 'by the driver';
  t.teardown(() => delete process.env.SAID_LATER);
  const second = spawn(Probe, { name: 'second', env: { OWN: 'own' } });
  const { pid } = await second.surroundings();
  t.ok(before.includes(pid) && pid !== pidOf('first'), 'the spare became its worker');
  t.equal(await second.env('OWN'), 'own');
  t.equal(await second.env('SAID_LATER'), 'by the driver');
  t.equal(await second.env('NODE_CHANNEL_FD'), undefined);
  await until('another spare', janitorAnd(3));

  // A restart takes the spare, so the next incarnation does not wait for a process to start.
  const restarted = spawn(Probe, { name: 'restarted', maxRestarts: 1, restartBackoffMs: 0 });
  await ready(restarted);
  await until('another spare', janitorAnd(4));
  const spares = childrenOf();
  process.kill(pidOf('restarted'), 'SIGKILL');
  await restarted.label().catch(() => {});
  t.ok(spares.includes((await restarted.surroundings()).pid));

  // A spare that ends is replaced, and nobody is told.
  await until('another spare', janitorAnd(4));
  const workers = new Set(listActors().map(({ pid }) => pid));
  const spare = childrenOf().find((child) => !workers.has(child) && child !== before[0])!;
  process.kill(spare, 'SIGKILL');
  await until('a spare in its place', () => !runs(spare) && childrenOf().length === 5);
  t.same(output, [], 'no output of theirs');

  const all = childrenOf();
  await shutdown();
  t.same(await gone(all, 0), [], 'shutdown leaves none');
});

/** Path of a listening worker's socket, or of a connection that it let in -> processes that hold it. */
function holdersOf(folder: string, pids: number[]): Map<string, Set<number>> {
  const paths = new Map<string, string>();
  for (const line of readFileSync('/proc/net/unix', 'latin1').split('\n')) {
    const [, , , , , , inode, path] = line.trim().split(/\s+/);
    if (path?.startsWith(folder) === true && /\/\d+\.sock$/.test(path)) paths.set(`socket:[${inode}]`, path);
  }
  const holders = new Map<string, Set<number>>();
  for (const pid of pids) {
    for (const fd of readdirSync(`/proc/${pid}/fd`)) {
      let path: string | undefined;
      try {
        path = paths.get(readlinkSync(`/proc/${pid}/fd/${fd}`));
      } catch {
        continue; // closed meanwhile
      }
      if (path !== undefined) holders.set(path, (holders.get(path) ?? new Set()).add(pid));
    }
  }
  return holders;
}

t.test('the primary process of the workers owns none of their sockets', async (t) => {
  await start({ warmWorkers: { process: 0 } });
  const folder = join(tmpdir(), readdirSync(tmpdir()).find((name) => name.startsWith(`sinkflex-${process.pid}-`))!);
  const [first, second] = [spawn(Counter), spawn(Probe)];
  await first.add(1);
  await second.addThrough(first, 1); // a channel between the two
  const workers = [first, second].map((_, i) => listActors()[i]!.pid!);
  const holders = holdersOf(folder, [process.pid, ...childrenOf()]);
  for (const [path, pids] of holders) t.equal(pids.size, 1, path);
  const owners = [...holders.values()].map((pids) => [...pids][0]!).sort((a, b) => a - b);
  t.same(
    owners,
    [process.pid, ...workers].sort((a, b) => a - b),
    'each its own, the driver as a worker too',
  );
  await shutdown();
});

t.test('runtime environment: folder, flags and variables; a fresh process where a warm one would be too late', async (t) => {
  await start({ warmWorkers: { process: 1, thread: 1 } });
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'sinkflex-test-')));
  t.teardown(() => rmSync(folder, { recursive: true }));
  await until('a spare', janitorAnd(1));
  const spares = childrenOf();
  const warm = spawn(Probe, { cwd: folder });
  const there = await warm.surroundings();
  t.equal(there.cwd, folder);
  t.ok(spares.includes(there.pid));
  await until('another spare', janitorAnd(2));

  const known = childrenOf();
  const fresh = [
    spawn(Probe, { execArgv: ['--no-deprecation'], cwd: folder }),
    spawn(Probe, { env: { UV_THREADPOOL_SIZE: '2' } }),
    spawn(Probe, { memory: 1.5 * 2 ** 30 }),
  ] as const;
  const [flags, options, limited] = await get([fresh[0].surroundings(), fresh[1].surroundings(), fresh[2].surroundings()]);
  t.ok([flags, options, limited].every(({ pid }) => !known.includes(pid)));
  t.equal(flags.cwd, folder);
  t.ok(flags.execArgv.includes('--no-deprecation'));
  t.equal(options.cwd, process.cwd());
  t.equal(await fresh[1].env('UV_THREADPOOL_SIZE'), '2');
  t.ok(limited.heapLimit < 1.3 * 2 ** 30, 'the limit is known to the heap');

  const nowhere = spawn(Probe, { cwd: join(folder, 'missing') });
  t.match(await ready(nowhere).catch((e: unknown) => e), {
    code: 'SINKFLEX_ACTOR_DIED',
    cause: { code: 'SINKFLEX_BAD_OPTION', message: /missing.*no folder/ },
  });
  await shutdown();
});

t.test('many at once: started a few at a time, all answer; those that still wait can be killed', async (t) => {
  await start();
  const actors = Array.from({ length: 16 }, (_, i) => spawn(Counter, { isolation: i % 2 === 0 ? 'process' : 'thread', args: [i] }));
  const late = spawn(Counter, { name: 'late' });
  const never = late.add(1).catch((e: unknown) => e);
  await kill(late);
  t.match(await never, { code: 'SINKFLEX_ACTOR_DIED', details: { reason: 'killed' } });
  t.ok(childrenOf().length < 12, 'not all at a time');
  const sums = await Promise.all(actors.map((actor) => actor.add(1)));
  t.same(
    sums,
    actors.map((_, i) => i + 1),
  );
  await shutdown();
  t.same(childrenOf(), []);
});
