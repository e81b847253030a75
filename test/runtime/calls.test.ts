// Calls, values and options: the same for an actor in a process, in a thread, and among others in a shared worker.
import { getEventListeners } from 'node:events';
import { inspect } from 'node:util';
import t from 'tap';
import {
  ActorBusyError,
  ActorFailedError,
  type ActorHandle,
  CallAbortedError,
  CallTimeoutError,
  currentActor,
  defineActor,
  get,
  init,
  kill,
  listActors,
  type ObjectRef,
  put,
  ready,
  shutdown,
  spawn,
  wait,
  withOptions,
} from '../../runtime/index.ts';
import { Broken, Counter, Probe } from './fixtures/actors.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
t.before(() => init({ onOutput: () => {} }));
t.teardown(() => shutdown());

/** Fails to compile unless both types are the same. */
function sameType<A, B>(..._proof: (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? [] : [never]): void {}

t.test('handles and refs have the types of the class', (t) => {
  const types = (counter: ActorHandle<typeof Counter>, probe: ActorHandle<typeof Probe>): void => {
    sameType<ReturnType<typeof counter.add>, ObjectRef<number>>();
    sameType<ReturnType<typeof counter.slowAdd>, ObjectRef<number>>(); // promises are unwrapped
    sameType<Parameters<typeof counter.add>, [by: number | ObjectRef<number>]>();
    sameType<ReturnType<typeof probe.floats>, ObjectRef<Float32Array>>();
    // @ts-expect-error no such method
    counter.subtract;
    // @ts-expect-error lifecycle is the runtime's
    counter.start;
    // @ts-expect-error a wrong argument
    counter.add('1');
    // @ts-expect-error a ref of the wrong type
    counter.add(probe.label());
    // @ts-expect-error the constructor needs its argument
    spawn(Broken);
    // @ts-expect-error of the right type
    spawn(Broken, { args: [1] });
    // @ts-expect-error a handle of another class
    probe.addThrough(probe, 1);
  };
  t.type(types, 'function');
  t.end();
});

for (const isolation of ['process', 'thread', 'shared'] as const) {
  t.test(`isolation ${isolation}`, async (t) => {
    const counter = spawn(Counter, { isolation, args: [10], name: `counter-${isolation}` });
    const probe = spawn(Probe, { isolation, args: ['the label'], maxConcurrency: 4, name: `probe-${isolation}` });
    const narrow = spawn(Probe, { isolation, maxPending: 2, onFull: 'reject' });
    const last = spawn(Probe, { isolation, maxConcurrency: 2 });
    const broken = spawn(Broken, { isolation, args: ['cannot be'] });
    const early = broken.never().catch((e: unknown) => e);
    await Promise.all([counter, probe, narrow, last].map((actor) => ready(actor)));

    await t.test('where it runs, and who it is', async (t) => {
      const who = await probe.who();
      t.same(await probe.whoLater(), who, 'also after an await');
      t.match(who, { name: `probe-${isolation}`, incarnation: 1 });
      t.equal(who.pid === process.pid, isolation === 'thread');
      t.equal(await probe.label(), 'the label');
      t.match(
        listActors().find((actor) => actor.name === who.name),
        { kind: 'Probe', isolation, state: 'alive', pid: who.pid, restarts: 0 },
      );
    });

    await t.test('calls of one caller start in order', async (t) => {
      const sums = await Promise.all(Array.from({ length: 200 }, (_, i) => counter.add(i % 3)));
      let sum = 10;
      t.same(
        sums,
        sums.map((_, i) => (sum += i % 3)),
      );
      // One at a time unless more is asked for: each sees what the one before left.
      const slow = [counter.slowAdd(1, 5), counter.slowAdd(1, 0), counter.add(1)];
      t.same(await get(slow), [sum + 1, sum + 2, sum + 3]);
    });

    await t.test('arguments and results arrive as they were when sent', async (t) => {
      const list = [1, 2];
      const array = Float32Array.of(1, 2, 3);
      const echoed = probe.echo({ list, array, map: new Map([['k', new Set([1])]]), none: undefined, big: 5n, date: new Date(7) });
      list.push(3);
      array[0] = 100;
      t.same(await echoed, {
        list: [1, 2],
        array: Float32Array.of(1, 2, 3),
        map: new Map([['k', new Set([1])]]),
        none: undefined,
        big: 5n,
        date: new Date(7),
      });
      for (const [sent, sum] of [
        [Float64Array.of(1, 2), 3],
        [new Float32Array(50_000).fill(0.5), 25_000],
        [Uint8Array.of(1, 2, 3), 6],
      ] as const) {
        t.match(await probe.inspect(sent), { type: sent.constructor.name, aligned: true, sum, view: true });
      }
      const floats = await probe.floats(1000);
      t.equal(floats[999], 999);
      await t.rejects(Promise.resolve(probe.echo((() => 1) as unknown)), { code: 'SINKFLEX_NOT_SERIALIZABLE' });
      await t.rejects(Promise.resolve(probe.unsendable()), { code: 'SINKFLEX_NOT_SERIALIZABLE' });
      t.equal(await probe.echo('still there'), 'still there');
    });

    await t.test('errors keep code, name, message, stack, cause and details', async (t) => {
      const ours = await probe.fail('ours').catch((e: unknown) => e as Error & { code: string });
      t.match(ours, {
        code: 'SINKFLEX_TEST',
        message: 'of ours',
        details: { at: [1, 2] },
        cause: { name: 'RangeError', message: 'below' },
      });
      t.match((ours as Error).stack, /ProbeActor\.fail/);
      t.match(await probe.fail('system').catch((e: unknown) => e), {
        code: 'SINKFLEX_METHOD_FAILED',
        name: 'Error',
        message: 'no such file',
        details: { code: 'ENOENT', path: 'x' },
      });
      t.match(await probe.fail('plain').catch((e: unknown) => e), { name: 'TypeError', message: 'failed: plain' });
      t.match(await probe.fail('string').catch((e: unknown) => e), { code: 'SINKFLEX_METHOD_FAILED', cause: 'just a string' });
    });

    await t.test('handles and refs are arguments; refs arrive as values, in order', async (t) => {
      const other = counter;
      await other.add(-(await other.get()));
      t.equal(await probe.addThrough(other, 5), 5);
      t.equal(await probe.addMany(other, 100), 100);
      t.equal(await other.get(), 105);
      const a = other.add(1);
      const b = other.add(a); // 106 + 106
      t.equal(await counterless(other, b), 212 + 212);
      // A call behind one whose argument is not there yet waits for it.
      const gate = probe.block();
      probe.note(gate.then(() => 'first') as never);
      await probe.open();
      t.equal(await gate, 'opened');
      const late = other.slowAdd(1, 20);
      const first = probe.note(late);
      probe.note('second');
      await first;
      t.same((await probe.notes()).slice(-2), [425, 'second']);
      const put1 = put([1, 2, 3]);
      t.equal(await probe.sum(put1), 6);
      t.equal(await probe.sum(put1), 6, 'any number of times');
      const { ref } = await probe.lendOne({ x: 41 });
      t.same(await ref, { x: 41 }, 'a ref from inside a result');
      t.equal(await probe.readNested({ ref: put(1) }), 2, 'a nested ref arrives as a ref');
      const failing = probe.fail('for others');
      await t.rejects(Promise.resolve(other.add(failing as never)), { message: 'failed: for others' });
    });

    await t.test('concurrency, mailbox, deadlines, aborts', async (t) => {
      const gates = [probe.block(), probe.block(), probe.block()];
      t.equal(await probe.open(), 3, 'three under way, a fourth still runs');
      await get(gates);

      // A deadline ends with its call: what runs next, in whatever context, does not inherit it.
      const expiring = withOptions(narrow, { timeoutMs: 50 })
        .nest(counter, 150)
        .catch((e: unknown) => e);
      const behind = narrow.addThrough(counter, 0);
      t.match(await expiring, { code: 'SINKFLEX_CALL_TIMEOUT' });
      t.type(await behind, 'number');

      const running = narrow.block();
      const waiting = [narrow.label(), narrow.label()];
      const error = await narrow.label().catch((e: unknown) => e);
      t.ok(error instanceof ActorBusyError);
      t.match(error, { code: 'SINKFLEX_ACTOR_BUSY', details: { maxPending: 2, mayHaveRun: false } });
      const expired = await withOptions(narrow, { timeoutMs: 30 })
        .block()
        .catch((e: unknown) => e);
      t.ok(expired instanceof ActorBusyError || expired instanceof CallTimeoutError);
      await kill(narrow);
      for (const ref of [running, ...waiting]) await t.rejects(Promise.resolve(ref), { code: 'SINKFLEX_ACTOR_DIED' });

      const timeout = await withOptions(probe, { timeoutMs: 30 })
        .block()
        .catch((e: unknown) => e);
      t.ok(timeout instanceof CallTimeoutError);
      t.match(timeout, { details: { mayHaveRun: true } });
      await probe.open();

      // A deadline reaches through a call to the call inside it.
      const nested = await withOptions(probe, { timeoutMs: 100 })
        .nest(counter, 500)
        .catch((e: unknown) => e);
      t.match(nested, { code: 'SINKFLEX_CALL_TIMEOUT' });

      // Any number of calls wait for one signal behind one listener.
      const shared = new AbortController();
      const listeners = () => getEventListeners(shared.signal, 'abort').length;
      const labels = Array.from({ length: 20 }, () => withOptions(probe, { signal: shared.signal }).label());
      t.equal(listeners(), 1);
      await get(labels);
      t.equal(listeners(), 0);
      const blocked = Array.from({ length: 3 }, () =>
        withOptions(probe, { signal: shared.signal })
          .block()
          .catch((e: unknown) => e),
      );
      shared.abort();
      for (const error of blocked) t.match(await error, { code: 'SINKFLEX_CALL_ABORTED' });
      t.equal(listeners(), 0);
      await probe.open();

      // So does an abort, and the callee at the end sees it.
      const controller = new AbortController();
      const aborted = withOptions(probe, { signal: controller.signal }).nestForAbort(last);
      const caught = aborted.catch((e: unknown) => e);
      while (!(await last.notes()).includes('begun'));
      controller.abort();
      t.ok((await caught) instanceof CallAbortedError);
      while (!(await last.notes()).includes('aborted'));
      await t.rejects(Promise.resolve(withOptions(probe, { signal: controller.signal }).label()), {
        code: 'SINKFLEX_CALL_ABORTED',
        details: { mayHaveRun: false },
      });
    });

    await t.test('constructor failure, unknown method, spawn inside', async (t) => {
      const error = await ready(broken).catch((e: unknown) => e);
      t.ok(error instanceof ActorFailedError);
      t.match(error, { code: 'SINKFLEX_ACTOR_FAILED', cause: { name: 'RangeError', message: 'cannot be' } });
      t.match(await early, { code: 'SINKFLEX_ACTOR_FAILED' });
      t.equal(await probe.spawnChild(), 42);
    });
  });
}

async function counterless(other: ActorHandle<typeof Counter>, by: ObjectRef<number>): Promise<number> {
  return other.add(by);
}

t.test('refs are lazy, released by hand, and waited for in groups', async (t) => {
  const probe = spawn(Probe, { isolation: 'shared', maxConcurrency: 8 });
  await ready(probe);
  const unheard = probe.fail('nobody looks'); // no unhandled rejection
  const blocked = probe.block();
  const { done, pending } = await wait<unknown>([blocked, unheard, probe.label()], { numReturns: 2 });
  t.equal(done.length, 2);
  t.same(pending, [blocked]);
  t.same(await wait([blocked], { timeoutMs: 20 }), { done: [], pending: [blocked] });
  await t.rejects(get([blocked], { timeoutMs: 20 }), { code: 'SINKFLEX_CALL_TIMEOUT' });
  const value = put(new Float32Array(1000));
  const sent = probe.inspect(value);
  value.release(); // lent: the callee still gets it
  t.match(await sent, { type: 'Float32Array', sum: 0 });
  await t.rejects(Promise.resolve(value), { code: 'SINKFLEX_OBJECT_RELEASED' });
  await probe.open();
  t.equal(await blocked, 'opened');
});

t.test('handles look like nothing else', async (t) => {
  const counter = spawn(Counter, { isolation: 'shared' });
  t.equal((counter as { then?: unknown }).then, undefined);
  t.equal((counter as { toJSON?: unknown }).toJSON, undefined);
  t.equal((counter as { start?: unknown }).start, undefined);
  t.equal(await Promise.resolve(counter), counter, 'an async function may return one');
  await kill(counter);
});

t.test('wrong use fails where it is written', async (t) => {
  t.throws(() => spawn({} as typeof Counter), { code: 'SINKFLEX_BAD_DEFINITION' });
  t.throws(
    () =>
      defineActor(
        import.meta.url,
        'X',
        class {
          toJSON(): void {}
        },
      ),
    { code: 'SINKFLEX_BAD_DEFINITION' },
  );
  t.throws(() => spawn(Counter, { maxConcurrency: 0 }), { code: 'SINKFLEX_BAD_OPTION' });
  t.throws(() => spawn(Counter, { isolation: 'vm' as 'thread' }), { code: 'SINKFLEX_BAD_OPTION' });
  t.throws(() => spawn(Counter, { isolation: 'thread', env: { A: '1' } }), { code: 'SINKFLEX_BAD_OPTION' });
  // What is printed of a ref holds nothing of its worker: the run's token is there.
  const ref = put('what others see');
  t.equal(inspect(ref), 'ObjectRef(value)');
  t.equal(JSON.stringify({ ref }), '{"ref":"ObjectRef(value)"}');
  for (const misspelt of [
    () => spawn(Counter, { maxRestart: 3 } as object),
    () => withOptions(spawn(Counter), { timeout: 5 } as object),
    () => wait([], { count: 1 } as object),
    () => kill(spawn(Counter), { force: true } as object),
  ])
    t.throws(misspelt, { code: 'SINKFLEX_BAD_OPTION' });
  t.throws(() => currentActor(), { code: 'SINKFLEX_NOT_INITIALISED' });
  await t.rejects(init(), { code: 'SINKFLEX_ALREADY_INITIALISED' });
  t.equal(Counter.id, 'sinkflex/test/runtime/fixtures/actors#Counter');
  const hidden = defineActor(
    import.meta.url,
    'NotExported',
    class {
      ping(): void {}
    },
  );
  const error = await ready(spawn(hidden, { isolation: 'shared' })).catch((e: unknown) => e);
  t.match(error, { code: 'SINKFLEX_ACTOR_FAILED' });
  const one = spawn(Counter, { name: 'only', isolation: 'shared' });
  t.throws(() => spawn(Counter, { name: 'only' }), { code: 'SINKFLEX_NAME_TAKEN' });
  await kill(one);
  const env = spawn(Probe, { env: { SINKFLEX_TEST_VALUE: 'seen' } });
  t.equal(await env.env('SINKFLEX_TEST_VALUE'), 'seen');
});
