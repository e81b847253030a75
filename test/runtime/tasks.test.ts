// Tasks in threads and processes: values, failures, retries, cancelling, admission, and what tasks may do themselves.
import t from 'tap';
import {
  ActorDiedError,
  cancel,
  defineTask,
  get,
  init,
  kill,
  listNodes,
  placementGroup,
  put,
  shutdown,
  spawn,
  task,
} from '../../runtime/index.ts';
import { until } from '../until.ts';
import { Counter, Probe } from './fixtures/actors.ts';
import * as tasks from './fixtures/tasks.ts';

delete process.env.NODE_OPTIONS;
const errors: string[] = [];
t.before(() => init({ cpus: 2, gpus: 2, resources: { licence: 1 }, onOutput: ({ line }) => void errors.push(line) }));
t.teardown(() => shutdown());

const failure = (ref: PromiseLike<unknown>): Promise<Error & { code: string; details?: Record<string, unknown> }> =>
  ref.then(
    (value) => {
      throw new Error(`answered ${String(value)}`);
    },
    (error: unknown) => error as Error & { code: string; details?: Record<string, unknown> },
  ) as Promise<Error & { code: string; details?: Record<string, unknown> }>;

for (const isolation of ['thread', 'process'] as const) {
  t.test(`isolation ${isolation}`, async (t) => {
    await t.test('values, refs, handles and errors are those of any call', async (t) => {
      const add = task(tasks.add, { isolation });
      t.equal(await add(1, 2), 3);
      t.equal(await add(add(1, 2), put(4)), 7);
      t.same(
        await get(Array.from({ length: 200 }, (_, i) => add(i, 1))),
        Array.from({ length: 200 }, (_, i) => i + 1),
      );
      const where = await task(tasks.where, { isolation })();
      t.equal(where.pid === process.pid, isolation === 'thread');
      t.equal(where.main, isolation === 'process');
      const values = Float32Array.of(1, 2, 3);
      const scaled = task(tasks.scale, { isolation })(values, 2);
      values[0] = 100; // copied when the call was made
      t.same(await scaled, Float32Array.of(2, 4, 6));
      const big = new Float32Array(200_000).fill(1.5);
      const twice = await task(tasks.scale, { isolation })(put(big), 2);
      t.equal(twice.length, big.length);
      t.ok(twice.every((x) => x === 3));
      const value = { map: new Map([['a', [1n, new Date(5)]]]), set: new Set([undefined, null]), text: 'x' };
      t.same(await task(tasks.identity, { isolation })(value), value);
      t.match(await failure(task(tasks.fail, { isolation })('ours')), { code: 'SINKFLEX_TEST', message: 'of ours', details: { at: 1 } });
      t.match(await failure(task(tasks.fail, { isolation })('plain')), {
        code: 'SINKFLEX_METHOD_FAILED',
        name: 'TypeError',
        message: 'failed: plain',
      });
      t.match(await failure(add(1, task(tasks.fail, { isolation })('arg'))), { message: 'failed: arg' });
    });

    await t.test('a task may call and spawn actors, and pass refs on', async (t) => {
      const counter = spawn(Counter, { args: [100], isolation: 'thread' });
      t.equal(await task(tasks.record, { isolation })(counter, 5), 105);
      const { counter: made } = await task(tasks.spawner, { isolation })(40);
      t.equal(await made.add(1), 42);
      const { ref } = await task(tasks.lend, { isolation })({ deep: [1, 2] });
      t.same(await ref, { deep: [1, 2] });
      t.equal(await task(tasks.readInner, { isolation })({ ref: put(41) }), 42);
      t.equal(await task(tasks.isActor, { isolation })(), isolation === 'thread' ? 'SINKFLEX_NOT_INITIALISED' : 'TaskRunner');
      await Promise.all([kill(counter), kill(made)]);
    });

    await t.test('retries: what ended under it always, what it threw if asked', async (t) => {
      t.equal(await task(tasks.crash, { isolation })(3, 'exit'), 3);
      t.equal(await task(tasks.crash, { isolation, maxRetries: 1 })(2, 'throw'), 2);
      t.match(await failure(task(tasks.crash, { isolation, maxRetries: 1 })(9, 'exit')), {
        code: 'SINKFLEX_TASK_DIED',
        message: /^what ran task crash\(\) ended under it at each of 2 attempts: .*3/,
        details: { attempts: 2, mayHaveRun: true },
      });
      t.match(await failure(task(tasks.unsteady, { isolation })(2)), { name: 'RangeError', message: 'attempt 1' });
      t.equal(await task(tasks.unsteady, { isolation, retryOn: (error) => error.name === 'RangeError' })(3), 3);
      t.match(await failure(task(tasks.unsteady, { isolation, maxRetries: 1, retryOn: () => true })(9)), { message: 'attempt 2' });
    });

    await t.test('cancel: a flag and a signal first, the end of its thread or process last', async (t) => {
      const log = spawn(Counter, { isolation: 'thread' });
      const waiting = task(tasks.waitForAbort, { isolation })(log);
      await until('it runs', async () => (await log.get()) === 1);
      t.equal(cancel(waiting), true);
      t.equal(cancel(waiting), false);
      t.match(await failure(waiting), { code: 'SINKFLEX_CALL_ABORTED', message: 'task waitForAbort() was aborted; it may have run' });
      const deaf = task(tasks.deaf, { isolation, cancelGraceMs: 50, timeoutMs: 300 })(log);
      t.match(await failure(deaf), { code: 'SINKFLEX_CALL_TIMEOUT', details: { mayHaveRun: true } });
      // Its processor is free again when it has been ended.
      t.equal(await task(tasks.add, { isolation, cpus: 2 })(1, 1), 2);
      await kill(log);
    });

    await t.test('generators answer with streams', async (t) => {
      const items: number[] = [];
      for await (const item of task(tasks.count, { isolation })(500)) items.push(item);
      t.same(
        items,
        Array.from({ length: 500 }, (_, i) => i),
      );
      for await (const item of task(tasks.count, { isolation })(1e9)) if (item === 3) break;
      const seen: number[] = [];
      await t.rejects(
        (async () => {
          for await (const item of task(tasks.countThenFail, { isolation })(3)) seen.push(item);
        })(),
        { name: 'RangeError', message: 'no more' },
      );
      t.same(seen, [0, 1, 2]);
      t.equal(await task(tasks.add, { isolation, cpus: 2 })(2, 2), 4, 'their processors are free');
    });
  });
}

t.test('code that gives the loop no turn sees the flag', async (t) => {
  const log = spawn(Counter, { isolation: 'thread' });
  const spinning = task(tasks.spin, { cancelGraceMs: 60_000, timeoutMs: 100 })(log);
  t.match(await failure(spinning), { code: 'SINKFLEX_CALL_TIMEOUT' });
  t.equal(await task(tasks.add, { cpus: 2 })(1, 2), 3, 'it has ended by itself: nothing else frees its processor');
  await kill(log);
});

t.test('admission: no more at once than there are processors', async (t) => {
  const meter = spawn(tasks.Meter, { isolation: 'thread', maxConcurrency: 100 });
  await get([task(tasks.visit)(meter, 2), task(tasks.visit)(meter, 2)]); // each waits for the other
  await get(Array.from({ length: 6 }, () => task(tasks.visit)(meter, 1)));
  t.same(await meter.visits(), { all: 8, most: 2 });
  // Each of these waits for the three others.
  await get(Array.from({ length: 4 }, () => task(tasks.visit, { cpus: 0.5 })(meter, 4)));
  t.same(await meter.visits(), { all: 12, most: 4 });
  await kill(meter);
  t.match(await failure(task(tasks.add, { cpus: 3 })(1, 1)), {
    code: 'SINKFLEX_BAD_OPTION',
    message: 'task add() asks for 3 cpus, and this node has 2',
  });
  // One that waits for an argument takes nothing.
  const gate = spawn(Probe, { isolation: 'thread', maxConcurrency: 10 });
  const held = Array.from({ length: 4 }, () => task(tasks.identity)(gate.block()));
  t.equal(await task(tasks.add)(1, 1), 2);
  let opened = 0;
  while (opened < 4) opened += await gate.open();
  t.same(await get(held), ['opened', 'opened', 'opened', 'opened']);
  // One that has not begun when the caller gives up never runs.
  const slow = [task(tasks.later)(1, 100), task(tasks.later)(2, 100)];
  const counter = spawn(Counter, { isolation: 'thread' });
  const late = task(tasks.record)(counter, 1);
  cancel(late);
  t.match(await failure(late), { code: 'SINKFLEX_CALL_ABORTED', details: { mayHaveRun: false } });
  await get(slow);
  t.equal(await counter.get(), 0);
  await Promise.all([kill(gate), kill(counter)]);
});

t.test('the head places tasks that ask for more than processors', async (t) => {
  const free = async (): Promise<Record<string, number>> => (await listNodes())[0]!.free;
  const before = await free();
  const meter = spawn(tasks.Meter, { isolation: 'thread', maxConcurrency: 100 });
  await get([1, 2].map(() => task(tasks.visit, { gpus: 1, cpus: 0 })(meter, 2))); // each waits for the other
  const runs = await get(Array.from({ length: 6 }, () => task(tasks.held, { gpus: 1, cpus: 0 })(20)));
  for (const a of runs) {
    t.ok(a.gpuIds.length === 1 && a.gpuIds[0]! < 2);
    for (const b of runs) if (a !== b && a.gpuIds[0] === b.gpuIds[0]) t.ok(a.to <= b.from || b.to <= a.from, 'one at a time');
  }
  t.ok(new Set(runs.map((run) => run.pid)).size <= 2, 'a place is used again');
  const [first, second] = await get([1, 2].map(() => task(tasks.held, { resources: { licence: 1 } })(10)));
  t.ok(first!.to <= second!.from || second!.to <= first!.from);
  const some: number[] = [];
  for await (const id of task(tasks.devices, { gpus: 2, cpus: 0 })()) some.push(id);
  t.same(some, [0, 1], 'a generator');

  const group = placementGroup([{ gpus: 1 }]);
  await group.ready();
  const { id } = group;
  const inGroup = task(tasks.held, { placementGroup: group, gpus: 1, cpus: 0 });
  t.equal((await inGroup(1)).gpuIds.length, 1);
  t.equal((await task(tasks.heldByNested)({ id })).gpuIds.length, 1, 'also when a task asks for it');
  const [running, waiting] = [inGroup(60_000), inGroup(1)];
  await until('one waits', async () => (await listNodes())[0]!.free.gpus === 1);
  await group.remove();
  for (const ref of [running, waiting]) t.match(await failure(ref), { code: 'SINKFLEX_TASK_DIED', message: /placement group/ });

  await kill(meter);
  await until('all is free again', async () => {
    const now = await free();
    return Object.entries(before).every(([name, amount]) => now[name] === amount);
  });
  t.throws(() => task(tasks.add, { gpus: 1, isolation: 'thread' }), { code: 'SINKFLEX_BAD_OPTION', message: /isolation/ });
  t.throws(() => task(tasks.add, { gpus: -1 }), { code: 'SINKFLEX_BAD_OPTION', message: /^gpus is/ });
});

t.test('tasks that wait for tasks lend them their processors', async (t) => {
  t.equal(await task(tasks.sumTree)(4), 31);
  t.equal(await task(tasks.sumTree)(7), 255, 'more than there may be threads: branch by branch');
});

t.test('wrong use', async (t) => {
  t.throws(() => task({} as never), { code: 'SINKFLEX_BAD_DEFINITION' });
  t.throws(() => defineTask('', 'x', () => 1), { code: 'SINKFLEX_BAD_DEFINITION' });
  t.throws(() => defineTask(import.meta.url, '', () => 1), { code: 'SINKFLEX_BAD_DEFINITION' });
  t.throws(() => defineTask(import.meta.url, 'x', 1 as never), { code: 'SINKFLEX_BAD_DEFINITION' });
  for (const options of [
    { isolation: 'shared' },
    { cpus: -1 },
    { maxRetries: 0.5 },
    { retryOn: 1 },
    { timeoutMs: -1 },
    { signal: {} },
    { cancelGraceMs: -1 },
  ])
    t.throws(() => task(tasks.add, options as never), {
      code: 'SINKFLEX_BAD_OPTION',
      message: new RegExp(`^${Object.keys(options)[0]} is`),
    });
  t.match(await failure(task(tasks.misnamed)()), { code: 'SINKFLEX_BAD_DEFINITION', message: /exports no hidden/ });
  t.match(await failure(task(tasks.identity)(() => 1)), { code: 'SINKFLEX_NOT_SERIALIZABLE' });
  const probe = spawn(Probe, { isolation: 'thread' });
  await kill(probe);
  await t.rejects(Promise.resolve(task(tasks.identity)(probe.label())), ActorDiedError);
  const released = put(1);
  released.release();
  t.match(await failure(task(tasks.identity)(released)), { code: 'SINKFLEX_OBJECT_RELEASED' });
});

t.test('an actor has a pool of its own', async (t) => {
  for (const isolation of ['process', 'thread'] as const) {
    const caller = spawn(tasks.Caller, { isolation });
    t.equal(await caller.sum(10), 55);
    const { ref } = await caller.lend('through');
    t.equal(await ref, 'through');
    await kill(caller);
  }
});
