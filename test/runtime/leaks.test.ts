// Leaks: actors of every kind and objects of every size come and go, and nothing of them stays, here or in the workers that had to do with
// them. SINKFLEX_LEAK_CYCLES: actors that are counted (default 100), and a tenth of the objects; `npm run test:leaks` takes 10,000 and 100,000.
import { readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { type Isolation, init, kill, type ObjectRef, put, shutdown, spawn } from '../../runtime/index.ts';
import { session } from '../../runtime/worker/index.ts';
import { until } from '../until.ts';
import { Counter, Probe } from './fixtures/actors.ts';
import { collect, type Holdings, holdings } from './fixtures/processes.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
t.setTimeout(3_600_000);
t.teardown(() => shutdown());

const cycles = Number(process.env.SINKFLEX_LEAK_CYCLES ?? 100);
const long = cycles >= 5000;
/** Two windows of as many rounds are compared, after as many that are not counted. */
const rounds = long ? 3 : 1;
const actors = Math.ceil(cycles / (2 * rounds));
/** Of the actors, so many are threads and as many processes. */
const others = Math.max(3, Math.ceil(actors / 20));
const objects = 10 * actors;
const BATCH = 50;
/** Goes through shared memory. */
const LARGE = new Float32Array(20_000).fill(1);

interface Round {
  here: Holdings;
  /** In the shared worker that the actors came and went in. */
  there: Holdings;
  /** In the process that read the objects. */
  reader: Holdings;
  files: number;
}

t.test('actors and objects come and go; memory, descriptors, threads, maps and sockets are where they were', async (t) => {
  await init({ onOutput: () => {}, warmWorkers: { process: 0 } });
  const folder = join(tmpdir(), readdirSync(tmpdir()).find((name) => name.startsWith(`sinkflex-${process.pid}-`))!);
  const witness = spawn(Probe, { isolation: 'shared' });
  const reader = spawn(Probe, { isolation: 'process' });
  const places = { here: holdings, there: () => witness.holdings(), reader: () => reader.holdings() };
  const where = ['here', 'there', 'reader'] as const;
  const atFirst = { here: await places.here(), there: await places.there(), reader: await places.reader() };
  const cycle = async (isolation: Isolation): Promise<void> => {
    const actor = spawn(Counter, { isolation });
    if ((await actor.add(1)) !== 1) t.fail('no answer');
    await kill(actor);
  };
  /** One object, by its number: released or left to the collector, in line or in shared memory, of a ref or of a message. */
  const object = async (i: number): Promise<void> => {
    if (i % 4 === 0) return void put({ i });
    if (i % 4 === 1) return void (await reader.echo(LARGE));
    const ref: ObjectRef<unknown> = put(i % 4 === 2 ? { i } : LARGE);
    await reader.echo(ref);
    ref.release();
  };
  const round = async (): Promise<Round> => {
    for (let i = others * 2; i < actors; i++) await cycle('shared');
    for (let i = 0; i < others; i++) await Promise.all([cycle('process'), cycle('thread')]);
    for (let i = 0; i < objects; i += BATCH) await Promise.all(Array.from({ length: BATCH }, (_, at) => object(i + at)));
    await until('sockets', () => readdirSync(folder).filter((name) => /^\d+\.sock$/.test(name)).length === 3);
    await until('objects', () => {
      collect();
      return session().store!.list().length === 0;
    });
    return { here: await places.here(), there: await places.there(), reader: await places.reader(), files: readdirSync(folder).length };
  };
  /** Histories of bounded size fill and are cut: what must not grow is the lowest level that the rounds reach. */
  const lowest = async (): Promise<Round> => {
    const all = [await round()];
    while (all.length < rounds) all.push(await round());
    const least = (place: (typeof where)[number]): Holdings => ({
      ...all.at(-1)![place],
      heapMiB: Math.min(...all.map((each) => each[place].heapMiB)),
      residentMiB: Math.min(...all.map((each) => each[place].residentMiB)),
    });
    return { here: least('here'), there: least('there'), reader: least('reader'), files: all.at(-1)!.files };
  };
  await lowest();
  const before = await lowest();
  const after = await lowest();
  t.comment(`${2 * rounds * actors} actors, of them ${4 * rounds * others} threads and processes, and ${2 * rounds * objects} objects`);
  t.equal(after.files, before.files);
  for (const place of where) {
    const [a, b] = [before[place], after[place]];
    t.comment(place, a, b);
    t.ok(b.descriptors <= a.descriptors + 1, 'descriptors'); // one may just be opening
    t.ok(b.sockets <= a.sockets + 1, 'sockets');
    t.ok(b.threads <= a.threads + 1, 'threads');
    t.ok(b.maps <= a.maps + 40, 'maps'); // V8 takes and gives back pages as it likes
    // Of 10,000 actors on, histories are full before the first window: then 1.5 MiB are 30 bytes an object.
    t.ok(b.heapMiB - a.heapMiB < (cycles >= 10_000 ? 1.5 : 4), `heap: ${(b.heapMiB - a.heapMiB).toFixed(2)} MiB`);
    t.ok(b.residentMiB - a.residentMiB < 32, 'resident memory'); // malloc keeps what it likes
  }
  // What is kept to be used again goes to the system when it is not.
  for (const place of where)
    await until('blocks of shared memory', async () => (await places[place]()).blocks <= atFirst[place].blocks + 1, 30_000);
  await shutdown();
});
