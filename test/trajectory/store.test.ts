// The trajectory store, one contract for every kind: records come back exact, steps are whole or absent after a kill, nothing is consumed twice.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { asyncBufferFromFile, parquetReadObjects } from 'hyparquet';
import t from 'tap';
import {
  exportTrajectories,
  fromRecord,
  headOf,
  openTrajectoryStore,
  readTrajectories,
  type Trajectory,
  type TrajectoryFilter,
  type TrajectoryRecord,
  type TrajectoryStore,
  toRecord,
} from '../../actors/trajectory/index.ts';
import { redisServer } from './redis-server.ts';
import { trajectory } from './trajectories.ts';

delete process.env.NODE_OPTIONS;
const root = mkdtempSync(join(tmpdir(), 'sinkflex-store-'));
t.teardown(() => rmSync(root, { recursive: true, force: true }));

const record = (t: Trajectory, step: number, phase: 'train' | 'validation' = 'train', advantage?: number) =>
  toRecord(t, { step, phase, text: `of ${t.task}/${t.sample}\u2028\n\0`, ...(advantage === undefined ? {} : { advantage }) });
const step = (n: number, group: Trajectory[], records = group.map((t) => record(t, n, 'train', t.reward - 0.5))) => ({
  step: n,
  lineage: 0,
  records,
  consumed: group.map(({ task, sample }) => ({ task, sample })),
});
const groupOf = (task: number, length = 6) => [0, 1].map((sample) => trajectory(task, sample, length));

async function all<T>(rows: AsyncIterable<T>): Promise<T[]> {
  const out: T[] = [];
  for await (const r of rows) out.push(r);
  return out;
}

const fixture = (name: string) => fileURLToPath(new URL(`./fixtures/${name}.js`, import.meta.url));

interface Kind {
  name: string;
  /** Why it cannot be tested here. */
  skip?: string;
  /** A place that no store has been at. */
  place: () => string;
}

let places = 0;
const redis = await redisServer();
t.teardown(() => redis.stop());
const kinds: Kind[] = [
  { name: 'sqlite', place: () => join(root, `store-${places++}`, 'trajectories.db') },
  { name: 'redis', ...(redis.skip === undefined ? {} : { skip: redis.skip }), place: () => `${redis.url}?run=store-${places++}` },
];

for (const kind of kinds) {
  t.test(kind.name, kind.skip === undefined ? {} : { skip: kind.skip }, async (t) => {
    t.test('returns what it was given, found by phase, step, task, group and version', async (t) => {
      const place = kind.place();
      const store = await openTrajectoryStore(place);
      t.equal(await store.consumedCount(), 0);
      t.strictSame(await all(store.read()), []);
      const train = [1, 2, 3].map((n) => groupOf(10 * n, 300));
      for (const [i, g] of train.entries()) await store.step(step(i + 1, g));
      const odd: Trajectory = {
        ...trajectory(1, 0, 2),
        mask: new Uint8Array(2),
        versions: Int32Array.of(-1, -1),
        logprobs: new Float32Array(2),
      };
      const held = [record({ ...odd, reward: Number.NaN }, 2, 'validation'), record(trajectory(2, 0), 2, 'validation')];
      await store.validation(2, [record(trajectory(7, 0), 2, 'validation')]);
      await store.validation(2, held);
      const trained = train.flatMap((g, i) => g.map((t) => record(t, i + 1, 'train', t.reward - 0.5)));
      t.strictSame(await all(store.read({ phase: 'train' })), trained);
      t.strictSame((await all(store.read({ phase: 'train' }))).map(fromRecord), train.flat());
      t.strictSame(await all(store.read({ phase: 'validation' })), held, 'a validation replaces its own');
      t.strictSame(await all(store.heads({ phase: 'validation' })), held.map(headOf));
      const everything = [...trained, ...held];
      const find = async (f: TrajectoryFilter, expected: (r: TrajectoryRecord) => boolean) => {
        const key = (r: Pick<TrajectoryRecord, 'phase' | 'step' | 'task' | 'sample'>) => `${r.phase} ${r.step} ${r.task} ${r.sample}`;
        const found = (await all(store.heads(f))).map(key).sort();
        t.strictSame(found, everything.filter(expected).map(key).sort(), JSON.stringify(f));
      };
      await find({ steps: [2, 3] }, (r) => r.step >= 2);
      await find({ task: 20 }, (r) => r.task === 20);
      await find({ task: 2, phase: 'train' }, () => false);
      await find({ group: 'g30' }, (r) => r.group === 'g30');
      await find({ version: 4 }, (r) => r.versions.some(([v]) => v === 4));
      await find({ version: 9 }, () => false);
      t.strictSame(await store.stepsOf('train'), [1, 2, 3]);
      t.strictSame(await store.stepsOf('validation'), [2]);
      await store.flush();
      const reader = await openTrajectoryStore(place, { readonly: true });
      t.strictSame(await all(reader.read()), everything, 'another reads while it is open');
      await reader.close();
      await store.close();
    });

    t.test('nothing is consumed twice, and a step that would is not written at all', async (t) => {
      const store = await openTrajectoryStore(kind.place());
      await store.step(step(1, groupOf(0)));
      const twice = step(2, [...groupOf(1), trajectory(0, 1)]);
      await t.rejects(store.step(twice), { code: 'SINKFLEX_TRAJECTORY_TWICE', details: { task: 0, sample: 1, step: 2 } });
      t.equal(await store.consumedCount(), 2);
      t.equal((await all(store.read())).length, 2);
      t.equal(await store.consumedAt({ task: 1, sample: 0 }), undefined);
      await store.step(step(2, groupOf(1)));
      t.equal(await store.consumedAt({ task: 1, sample: 0 }), 2);
      await store.rewind(1);
      t.equal(await store.consumedAt({ task: 1, sample: 0 }), undefined);
      t.strictSame(await store.stepsOf('train'), [1]);
      await store.step(step(2, groupOf(1)));
      await store.close();
    });

    t.test('whatever is stepped, taken back and reopened: as a list would have it', async (t) => {
      await fc.assert(
        fc.asyncProperty(fc.array(fc.oneof(fc.constant('step'), fc.constant('open'), fc.nat(4)), { maxLength: 12 }), async (actions) => {
          const place = kind.place();
          let store: TrajectoryStore = await openTrajectoryStore(place);
          let steps: number[] = [];
          let task = 0;
          for (const action of actions) {
            if (action === 'open') {
              await store.close();
              store = await openTrajectoryStore(place);
            } else if (action === 'step') {
              steps.push(steps.length + 1);
              await store.step(step(steps.length, groupOf(task++)));
            } else {
              steps = steps.slice(0, action);
              await store.rewind(action);
            }
          }
          t.strictSame(await store.stepsOf('train'), steps);
          t.equal(await store.consumedCount(), 2 * steps.length);
          await store.close();
        }),
        { numRuns: 15, seed: 5 },
      );
    });

    t.test('a writer that is killed leaves whole steps, and its successor goes on', async (t) => {
      const place = kind.place();
      let next = 1;
      for (const reports of [1, 4, 9]) {
        const child = fork(fixture('store-writer'), [place, String(next)], { execArgv: [] });
        let last = 0;
        await new Promise<void>((done) => {
          child.on('message', (n: number) => {
            last = n;
            if (n - next + 1 >= reports) done();
          });
        });
        child.kill('SIGKILL');
        await once(child, 'exit');
        const store = await openTrajectoryStore(place);
        const steps = await store.stepsOf('train');
        t.ok(steps.at(-1)! >= last, 'what was reported is there');
        const heads = await all(store.heads());
        t.strictSame(
          heads.map((h) => `${h.step}/${h.sample}`),
          Array.from({ length: steps.at(-1)! }, (_, i) => [0, 1, 2, 3].map((s) => `${i + 1}/${s}`)).flat(),
        );
        t.equal(await store.consumedCount(), heads.length);
        await t.rejects(store.step(step(99, [trajectory(last, 3)])), { code: 'SINKFLEX_TRAJECTORY_TWICE' });
        // As a resumed run does: back to the checkpoint before.
        await store.rewind(last - 1);
        await store.close();
        next = last;
      }
    });
  });
}

t.test('sqlite: one plain file when closed; what is no store is refused with its place', async (t) => {
  const place = kinds[0]!.place();
  const store = await openTrajectoryStore(place);
  await store.step(step(1, groupOf(0)));
  await store.close();
  t.notOk(existsSync(`${place}-wal`));
  await t.rejects(openTrajectoryStore(join(root, 'absent.db'), { readonly: true }), { code: 'SINKFLEX_TRAJECTORY_STORE' });
  writeFileSync(join(root, 'text.db'), 'no database, but longer than the header of one, so that it is read as one'.repeat(20));
  await t.rejects(openTrajectoryStore(join(root, 'text.db')), { code: 'SINKFLEX_TRAJECTORY_STORE', message: /text\.db/ });
  await t.rejects(openTrajectoryStore('/dev/null/trajectories.db'), { code: 'SINKFLEX_TRAJECTORY_STORE' });
});

t.test(
  'redis: a run without a name, and a server that is not there, are refused with their place and no password',
  redis.skip === undefined ? {} : { skip: redis.skip },
  async (t) => {
    await t.rejects(openTrajectoryStore(redis.url), { code: 'SINKFLEX_TRAJECTORY_STORE', message: /must name the run/ });
    await t.rejects(openTrajectoryStore(`${redis.url}?run=absent`, { readonly: true }), { code: 'SINKFLEX_TRAJECTORY_STORE' });
    const refused = openTrajectoryStore('redis://user:secret@127.0.0.1:1/0?run=a');
    await t.rejects(refused, { code: 'SINKFLEX_TRAJECTORY_STORE', message: /127\.0\.0\.1:1/ });
    const message = await refused.catch((e: Error) => e.message);
    t.notMatch(message, /secret/);
  },
);

/** In a process of its own: the test runner's module loader does not know the export patterns that the writer's package uses. */
async function toParquet(place: string, path: string, filter: TrajectoryFilter): Promise<number> {
  const child = fork(fixture('parquet-export'), [place, path, JSON.stringify(filter)], { execArgv: [] });
  const [count] = (await once(child, 'message')) as [number];
  return count;
}

const parsed = (text: unknown): unknown => (typeof text === 'string' ? JSON.parse(text) : undefined);

t.test('exports: JSON lines come back exact, Parquet has a row each', async (t) => {
  const place = kinds[0]!.place();
  const store = await openTrajectoryStore(place);
  const nan = { ...trajectory(5, 0), reward: Number.NaN };
  const trained = [...groupOf(0), ...groupOf(1, 50)];
  await store.step(step(1, trained));
  await store.validation(1, [record(nan, 1, 'validation')]);
  const lines = join(root, 'out.jsonl');
  t.equal(await exportTrajectories(store.read(), lines, 'jsonl'), 5);
  appendFileSync(lines, '{"torn":');
  t.strictSame(await all(readTrajectories(lines)), await all(store.read()));
  t.match(readFileSync(lines, 'utf8').split('\n')[4], '"reward":null');
  const parquet = join(root, 'out.parquet');
  t.equal(await toParquet(place, parquet, { phase: 'train' }), 4);
  const rows = await parquetReadObjects({ file: await asyncBufferFromFile(parquet) });
  t.strictSame(
    rows.map((r) => [
      r.task,
      r.sample,
      r.reward,
      r.advantage,
      r.group,
      r.text,
      JSON.parse(r.reward_parts as string),
      parsed(r.diagnostics),
    ]),
    trained.map((t) => [t.task, t.sample, t.reward, t.reward - 0.5, t.group, record(t, 1).text, t.rewardParts, t.diagnostics]),
  );
  t.strictSame(
    rows.map((r) => [r.ids, r.mask, r.versions, (r.logprobs as number[]).map(Math.fround)]),
    trained.map((t) => [[...t.ids], [...t.mask], [...t.versions], [...t.logprobs]]),
  );
  const empty = join(root, 'empty.parquet');
  t.equal(await toParquet(place, empty, { task: 99 }), 0);
  t.strictSame(await parquetReadObjects({ file: await asyncBufferFromFile(empty) }), []);
  await t.rejects(exportTrajectories(store.read(), join(root, 'no', 'where.jsonl'), 'jsonl'), { code: 'SINKFLEX_TRAJECTORY_STORE' });
  await store.close();
});

t.test(
  'redis: a step whose answer is lost with the connection counts once',
  redis.skip === undefined ? {} : { skip: redis.skip },
  async (t) => {
    let lose = false;
    const proxy = createServer((near) => {
      const far = connect(Number(new URL(redis.url).port), '127.0.0.1');
      const end = (): void => {
        near.destroy();
        far.destroy();
      };
      near
        .on('data', (data) => far.write(data))
        .on('error', end)
        .on('close', end);
      far
        .on('data', (data) => {
          if (lose) end();
          else near.write(data);
          lose = false;
        })
        .on('error', end)
        .on('close', end);
    });
    await new Promise<void>((done) => proxy.listen(0, '127.0.0.1', done));
    t.teardown(() => proxy.close());
    const store = await openTrajectoryStore(`redis://127.0.0.1:${(proxy.address() as AddressInfo).port}/0?run=lost-answer`);
    await store.step(step(1, groupOf(1)));
    lose = true;
    await store.step(step(2, groupOf(2)));
    t.notOk(lose, 'an answer was lost');
    t.equal(await store.consumedCount(), 4);
    t.equal((await all(store.read())).length, 4);
    await t.rejects(store.step(step(3, groupOf(2))), { code: 'SINKFLEX_TRAJECTORY_TWICE' }, 'what is new and the same is still refused');
    await store.close();
  },
);

t.test('an export of many records leaves no listeners behind', async (t) => {
  const warnings: Error[] = [];
  const warn = (warning: Error): void => void warnings.push(warning);
  process.on('warning', warn);
  t.teardown(() => process.off('warning', warn));
  async function* many() {
    for (let i = 0; i < 300; i++) yield record(trajectory(i, 0, 2000), 1);
  }
  t.equal(await exportTrajectories(many(), join(root, 'many.jsonl'), 'jsonl'), 300);
  await new Promise((resolve) => setImmediate(resolve));
  t.same(warnings, []);
});
