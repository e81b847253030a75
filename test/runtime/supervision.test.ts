// What the agent notices of its workers: blocked, stopped and dead are three things; limits of memory and of patience; causes of death.
import { spawn as spawnProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { os } from '../../kernels/index.ts';
import {
  type ActorInfo,
  type Health,
  init,
  listActors,
  onActorChange,
  ready,
  type StackSample,
  shutdown,
  spawn,
  stack,
  stackText,
} from '../../runtime/index.ts';
import { BLOCKED_AFTER_MS, HealthJudge, STARVED_AFTER_MS } from '../../runtime/node/health.ts';
import { MemoryAccounts, MemoryGroups, memoryController, sweepMemoryGroups } from '../../runtime/node/memory-limit.ts';
import { until } from '../until.ts';
import { Probe } from './fixtures/actors.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
t.teardown(() => shutdown());
const MIB = 2 ** 20;

/** Resolves at the first change of an actor that fits; the time of it in ms from now. */
function change(name: string, fits: (info: ActorInfo) => boolean, withinMs = 20_000): Promise<number> {
  const asked = performance.now();
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      stop();
      reject(new Error(`${name} did not change like that within ${withinMs} ms`));
    }, withinMs);
    const stop = onActorChange((info) => {
      if (info.name !== name || !fits(info)) return;
      clearTimeout(timer);
      stop();
      resolve(performance.now() - asked);
    });
  });
}
const turns = (name: string, health: Health) => change(name, (info) => info.health === health);

t.test('a judgement of health needs a tick, forgives what the judge itself missed, and tells a hungry loop from a busy one', (t) => {
  const PERIOD = 200;
  /** Judges a script of samples, one each period; answers the distinct judgements in order. */
  const run = (samples: { tick: number; state?: string; cpuMs?: number; gapMs?: number }[]): string[] => {
    const judge = new HealthJudge();
    const seen: string[] = [];
    let now = 1000;
    for (const { tick, state = 'S', cpuMs = 0, gapMs = PERIOD } of samples) {
      now += gapMs;
      const { health } = judge.judge({ now, tick, process: { state, cpuMs } }, PERIOD);
      if (seen.at(-1) !== health) seen.push(health);
    }
    return seen;
  };
  const times = Math.ceil(BLOCKED_AFTER_MS / PERIOD) + 1;
  const still = (state: string, cpuPerPeriod = 0, n = times) =>
    Array.from({ length: n }, (_, i) => ({ tick: 7, state, cpuMs: (i + 1) * cpuPerPeriod }));
  t.same(run([...still('S')]), ['ok', 'blocked'], 'asleep without a tick: it waits in a synchronous call');
  t.same(run([...still('R', PERIOD)]), ['ok', 'blocked'], 'busy');
  t.same(run([...still('R', PERIOD / 20)]), ['ok'], 'ready to run, but without a processor');
  t.same(run([...still('R', PERIOD / 20, Math.ceil(STARVED_AFTER_MS / PERIOD) + 2)]), ['ok', 'blocked'], 'not for ever');
  t.same(run([...still('S'), { tick: 8 }]), ['ok', 'blocked', 'ok']);
  t.same(run(Array.from({ length: 3 * times }, () => ({ tick: 0 }))), ['ok'], 'it has not begun to tick');
  t.same(run([{ tick: 7 }, { tick: 7, gapMs: 60_000 }, { tick: 7 }, { tick: 8 }]), ['ok'], 'the machine was suspended');
  t.same(run([{ tick: 7, state: 'T' }, { tick: 7 }, { tick: 7 }, { tick: 8 }]), ['stopped', 'ok'], 'continued: it gets its time');
  t.end();
});

t.test('blocked, stopped and dead are told apart, in every isolation', async (t) => {
  await init({ onOutput: () => {} });
  const names = ['process', 'thread', 'shared'] as const;
  const [process_, ...others] = names.map((isolation) => spawn(Probe, { isolation, name: isolation }));
  await Promise.all([process_!, ...others].map((actor) => ready(actor)));
  const { pid } = listActors().find(({ name }) => name === 'process')!;

  const stopped = turns('process', 'stopped');
  process.kill(pid!, 'SIGSTOP');
  t.comment(`stopped: noticed after ${(await stopped).toFixed(0)} ms`);
  t.match(listActors().find(({ name }) => name === 'process')!, { state: 'alive', health: 'stopped' });
  const continued = turns('process', 'ok');
  process.kill(pid!, 'SIGCONT');
  await continued;

  const blocked = Promise.all(names.map((name) => turns(name, 'blocked')));
  const asleep = [process_!, ...others].map((actor) => actor.sleepInside(BLOCKED_AFTER_MS + 900));
  const noticed = await blocked;
  t.comment(`blocked: noticed after ${noticed.map((ms) => ms.toFixed(0))} ms`);
  const fine = Promise.all(names.map((name) => turns(name, 'ok')));
  await Promise.all([...asleep, fine]);

  const dead = change('process', ({ state }) => state === 'dead');
  process.kill(pid!, 'SIGKILL');
  t.comment(`dead: noticed after ${(await dead).toFixed(0)} ms`);
  t.match(listActors().find(({ name }) => name === 'process')!, { state: 'dead', health: 'ok' });
  await shutdown();
});

t.test('limits: unresponsive for too long, over the memory limit, a full heap; each is the cause of death', async (t) => {
  await init({ onOutput: () => {} });
  const [slow, thread, stopped, hungry, heap] = [
    spawn(Probe, { name: 'slow', unresponsiveMs: 300, maxRestarts: 1, restartBackoffMs: 0 }),
    spawn(Probe, { isolation: 'thread', unresponsiveMs: 300 }),
    spawn(Probe, { name: 'stopped', unresponsiveMs: 300 }),
    spawn(Probe, { name: 'hungry', memory: 150 * MIB, maxRestarts: 1, restartBackoffMs: 0 }),
    spawn(Probe, { execArgv: ['--max-old-space-size=32'] }),
  ] as const;
  await Promise.all([slow, thread, stopped, hungry, heap].map((actor) => ready(actor)));
  const fates = [slow.sleepInside(20_000), thread.sleepInside(20_000), stopped.block(), hungry.eat(2000), heap.eatHeap(500)].map((ref) =>
    ref.catch((e: unknown) => e),
  );
  process.kill(listActors().find(({ name }) => name === 'stopped')!.pid!, 'SIGSTOP');
  const [blockedOne, blockedThread, stoppedOne, hungryOne, fullOne] = await Promise.all(fates);
  t.match(blockedOne, {
    code: 'SINKFLEX_ACTOR_DIED',
    signal: 'SIGKILL',
    mayHaveRun: true,
    outOfMemory: false,
    cause: { code: 'SINKFLEX_ACTOR_UNRESPONSIVE', message: /event loop was blocked for \d+ ms/ },
  });
  t.match(blockedThread, { code: 'SINKFLEX_ACTOR_DIED', cause: { code: 'SINKFLEX_ACTOR_UNRESPONSIVE' } });
  t.match(stoppedOne, { cause: { code: 'SINKFLEX_ACTOR_UNRESPONSIVE', message: /process was stopped for \d+ ms/ } });
  t.match(hungryOne, {
    code: 'SINKFLEX_ACTOR_DIED',
    outOfMemory: true,
    message: /ran out of memory.*used \d+ MiB of memory; its limit is 150 MiB/,
    cause: { code: 'SINKFLEX_OUT_OF_MEMORY' },
  });
  t.match(fullOne, { code: 'SINKFLEX_ACTOR_DIED', outOfMemory: true, cause: { code: 'SINKFLEX_OUT_OF_MEMORY', message: /heap was full/ } });
  t.match(await slow.who(), { incarnation: 2 }, 'restarted within their budget');
  t.match(await hungry.who(), { incarnation: 2 });
  await shutdown();
});

t.test('stack() tells where a loop is that never turns, and leaves it alone', async (t) => {
  await init({ onOutput: () => {} });
  const folder = join(tmpdir(), readdirSync(tmpdir()).find((name) => name.startsWith(`sinkflex-${process.pid}-`))!);
  const actors = (['process', 'thread', 'shared'] as const).map((isolation) => spawn(Probe, { isolation }));
  await Promise.all(actors.map((actor) => ready(actor)));
  // The threads in worker processes that can tell.
  await until('watchers', () => existsSync(join(folder, 's')) && readdirSync(join(folder, 's')).length >= 2);
  /** Until it is as wanted: a loop may be caught late, or while the call is just being delivered. */
  const look = async (actor: (typeof actors)[number], state: string): Promise<StackSample> => {
    for (let tries = 0; ; tries++) {
      const sample = await stack(actor, { timeoutMs: 3000 });
      const delivered = state !== 'running' || sample.frames[0]?.url.includes('/fixtures/');
      if ((sample.state === state && delivered) || tries === 20) return sample;
    }
  };
  for (const actor of actors) t.same(await look(actor, 'idle'), { state: 'idle', frames: [] });
  const spins = actors.map((actor) => actor.spin(2000));
  for (const sample of await Promise.all(actors.map((actor) => look(actor, 'running')))) {
    t.match(sample.frames[0], { function: 'spin', url: /fixtures\/actors\.js$/ });
    t.match(stackText(sample), /^ {4}at spin \(file:.*actors\.js:\d+:\d+\)$/, 'without what the runtime did to get there');
  }
  await Promise.all(spins);
  for (const actor of actors) t.equal(await actor.label(), '', 'it goes on');
  await shutdown();
});

t.test(
  'memory control groups: made and removed where this user may, both versions; a kernel kill in one is told; dead runs are swept',
  async (t) => {
    const root = mkdtempSync(join(tmpdir(), 'sinkflex-test-'));
    t.teardown(() => rmSync(root, { recursive: true }));
    const put = (path: string, text: string): void => {
      mkdirSync(join(root, path, '..'), { recursive: true });
      writeFileSync(join(root, path), text);
    };
    put('proc/self/cgroup', '9:name=systemd:/\n4:cpu,memory:/box/42\n0::/\n');
    put('sys/fs/cgroup/memory/box/42/memory.oom_control', 'oom_kill_disable 0\nunder_oom 0\noom_kill 2\n');
    const v1 = memoryController(root)!;
    t.match(v1, { version: 1, own: /memory\/box\/42$/, parent: /memory\/box\/42$/ });
    const accounts = new MemoryAccounts(new MemoryGroups(v1, 1000));
    const group = accounts.groups.make(3, 100 * MIB)!;
    t.equal(readFileSync(join(group, 'memory.limit_in_bytes'), 'latin1'), String(Math.ceil((125 * MIB + 1000) / 4096) * 4096));
    t.notOk(accounts.wasKernelKill(group));
    put('sys/fs/cgroup/memory/box/42/memory.oom_control', 'oom_kill 3\n');
    t.same([accounts.wasKernelKill(undefined), accounts.wasKernelKill(undefined)], [true, false], 'one kill explains one death');
    put('proc/self/cgroup', '0::/user/session\n');
    mkdirSync(join(root, 'sys/fs/cgroup/user/session'), { recursive: true });
    const v2 = memoryController(root)!;
    t.match(v2, { version: 2, own: /cgroup\/user\/session$/, parent: /cgroup\/user$/ });
    const dead = join(v2.parent, 'sinkflex-999999999-1-4');
    mkdirSync(dead);
    const living = join(v2.parent, `sinkflex-${process.pid}-${os.processStartTime(process.pid)}-4`);
    mkdirSync(living);
    t.same(sweepMemoryGroups(v2), ['sinkflex-999999999-1-4']);
    t.same([existsSync(dead), existsSync(living)], [false, true]);

    const real = memoryController();
    const groups = new MemoryGroups(real, 0);
    const limited = groups.make(77, 100 * MIB);
    if (limited === undefined) {
      t.comment('skipped: this user may not make memory control groups here');
      return;
    }
    const child = spawnProcess(process.execPath, ['-e', `process.stdin.once('data', () => Buffer.alloc(${400 * MIB}, 1))`], {
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    writeFileSync(join(limited, 'cgroup.procs'), String(child.pid));
    child.stdin!.write('go');
    const [, signal] = (await once(child, 'exit')) as [number | null, string | null];
    t.equal(signal, 'SIGKILL');
    t.ok(new MemoryAccounts(groups).wasKernelKill(limited));
    groups.remove(limited);
    await until('the group is removed', () => !existsSync(limited));
    t.same(
      readdirSync(real!.parent).filter((name) => name.startsWith(`sinkflex-${process.pid}-`)),
      [],
    );
  },
);
