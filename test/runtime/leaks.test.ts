// Leaks: actors of every kind come and go, and nothing of them stays, here or in the worker that hosted them.
import { readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { type Isolation, init, kill, shutdown, spawn } from '../../runtime/index.ts';
import { Counter, Probe } from './fixtures/actors.ts';
import { type Holdings, holdings, until } from './fixtures/processes.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
t.teardown(() => shutdown());

t.test('actors come and go, and memory, descriptors, threads, maps and sockets are where they were', async (t) => {
  // Ten thousand in all where there is the time: SINKFLEX_LEAK_CYCLES=2000.
  const shared = Number(process.env.SINKFLEX_LEAK_CYCLES ?? 80);
  const rounds = shared >= 2000 ? 3 : 1;
  const others = Math.max(4, Math.round(shared / 20));
  await init({ onOutput: () => {}, warmWorkers: { process: 0 } });
  const folder = join(tmpdir(), readdirSync(tmpdir()).find((name) => name.startsWith(`sinkflex-${process.pid}-`))!);
  const witness = spawn(Probe, { isolation: 'shared' });
  const cycle = async (isolation: Isolation): Promise<void> => {
    const actor = spawn(Counter, { isolation });
    if ((await actor.add(1)) !== 1) t.fail('no answer');
    await kill(actor);
  };
  const round = async (): Promise<{ here: Holdings; there: Holdings; files: number }> => {
    for (let i = 0; i < shared; i++) await cycle('shared');
    for (let i = 0; i < others; i++) await Promise.all([cycle('process'), cycle('thread')]);
    await until('sockets', () => readdirSync(folder).filter((name) => /^\d+\.sock$/.test(name)).length === 2);
    return { here: await holdings(), there: await witness.holdings(), files: readdirSync(folder).length };
  };
  // The log of events, too, has its size then.
  for (let i = 0; i < (shared >= 2000 ? 3 : 1); i++) await round();
  // Histories of bounded size fill and are cut: what must not grow is the lowest level that several rounds reach.
  const lowest = async (): Promise<Awaited<ReturnType<typeof round>>> => {
    const all = [await round()];
    while (all.length < rounds) all.push(await round());
    const last = all.at(-1)!;
    const heap = (where: 'here' | 'there'): number => Math.min(...all.map((each) => each[where].heapMiB));
    return { ...last, here: { ...last.here, heapMiB: heap('here') }, there: { ...last.there, heapMiB: heap('there') } };
  };
  const before = await lowest();
  const after = await lowest();
  t.equal(after.files, before.files);
  for (const where of ['here', 'there'] as const) {
    const [a, b] = [before[where], after[where]];
    t.comment(where, a, b);
    t.ok(b.descriptors <= a.descriptors + 1, 'descriptors'); // one may just be opening
    t.ok(b.threads <= a.threads + 1, 'threads');
    t.ok(b.maps <= a.maps + 40, 'maps'); // V8 takes and gives back pages as it likes
    const perActor = ((b.heapMiB - a.heapMiB) * 2 ** 20) / (rounds * (shared + 2 * others));
    t.ok(perActor < (shared >= 2000 ? 300 : 10_000), `${perActor.toFixed(0)} bytes of heap for each actor that is gone`);
  }
  await shutdown();
});
