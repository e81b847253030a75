// Tasks that end in every way, in threads and processes, alone and in batches, with retries, refs and callers that give up: each runs as
// often as it should and no more, is reported truly, and nothing stays taken. SINKFLEX_TEST_RUNS=1000: longer.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import t from 'tap';
import { cancel, get, init, listActors, listNodes, listTasks, type ObjectRef, put, shutdown, task } from '../../runtime/index.ts';
import { MOST_LEASES } from '../../runtime/tasks/scheduler.ts';
import { session } from '../../runtime/worker/index.ts';
import { lookUntil } from '../until.ts';
import { act, actNow, collect, type End, hold } from './fixtures/mortal.ts';
import { add } from './fixtures/tasks.ts';

// As long as it was asked to be.
t.setTimeout(600_000 + 1000 * Number(process.env.SINKFLEX_TEST_RUNS ?? 0));
// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
const CPUS = 2;
const folder = mkdtempSync(join(tmpdir(), 'sf-m-'));
t.before(() => init({ cpus: CPUS, onOutput: () => {} }));
t.teardown(async () => {
  await shutdown();
  rmSync(folder, { recursive: true, force: true });
});

const numRuns = Number(process.env.SINKFLEX_TEST_RUNS ?? 100);

interface Outcome {
  end: string;
  said: string;
  mayHaveRun: boolean;
}

interface Call {
  isolation: 'thread' | 'process';
  /** A function without promises: it may share a batch. */
  quick: boolean;
  cpus: number;
  plan: End[];
  maxRetries: number;
  retryThrown: boolean;
  argument: 'plain' | 'ref' | 'inner' | 'large';
  /** Turns after which the caller gives up. */
  cancelAfter: number | undefined;
}

const deaths: End[] = ['exit', 'uncaught', 'unhandled', 'signal'];
const call: fc.Arbitrary<Call> = fc.record({
  isolation: fc.oneof({ arbitrary: fc.constant('thread' as const), weight: 14 }, { arbitrary: fc.constant('process' as const), weight: 1 }),
  quick: fc.boolean(),
  cpus: fc.constantFrom(0, 0.5, 1, 1, 1, CPUS),
  plan: fc.array(
    fc.oneof(
      { arbitrary: fc.constantFrom<End>('answer', 'throw', 'reject'), weight: 8 },
      { arbitrary: fc.constantFrom<End>('exit', 'uncaught', 'unhandled'), weight: 1 },
    ),
    { minLength: 1, maxLength: 3 },
  ),
  maxRetries: fc.nat(2),
  retryThrown: fc.boolean(),
  argument: fc.constantFrom('plain', 'plain', 'ref', 'inner', 'large'),
  cancelAfter: fc.option(fc.nat(20), { freq: 5, nil: undefined }),
});

/** What must come of it if nobody gives up: the attempt that decides, and how. */
function fate({ plan, maxRetries, retryThrown }: Call): { attempt: number; end: 'answer' | 'throw' | 'died' } {
  for (let attempt = 1; ; attempt++) {
    const end = plan[attempt - 1] ?? 'answer';
    if (end === 'answer') return { attempt, end };
    const died = deaths.includes(end);
    if (attempt > maxRetries || !(died || retryThrown)) return { attempt, end: died ? 'died' : 'throw' };
  }
}

let scripts = 0;

async function play(calls: Call[]): Promise<void> {
  const ledger = join(folder, `${++scripts}`);
  const refs: ObjectRef<unknown>[] = [];
  const argument = (kind: Call['argument']): unknown => {
    if (kind === 'plain') return { kind };
    const ref = put(kind === 'large' ? new Float32Array(20_000) : { kind });
    refs.push(ref);
    return kind === 'inner' ? { ref } : ref;
  };
  const outcomes = calls.map(async (each, id) => {
    const { isolation, quick, cpus, maxRetries, retryThrown, cancelAfter } = each;
    const options = { isolation, cpus, maxRetries, cancelGraceMs: 50, ...(retryThrown ? { retryOn: () => true } : {}) };
    const ref = task((quick ? actNow : act) as typeof act, options)(ledger, id, each.plan, argument(each.argument)) as ObjectRef<string>;
    if (cancelAfter !== undefined) {
      void (async () => {
        for (let i = 0; i < cancelAfter; i++) await new Promise((resolve) => setImmediate(resolve));
        cancel(ref);
      })();
    }
    return ref.then<Outcome, Outcome>(
      (value) => ({ end: 'answer', said: value, mayHaveRun: true }),
      (reason) => {
        const error = reason as Error & { code: string; details?: { mayHaveRun?: boolean; attempts?: number } };
        if (error.name === 'RangeError') return { end: 'throw', said: error.message, mayHaveRun: true };
        if (error.code === 'SINKFLEX_TASK_DIED') return { end: 'died', said: `${id} ${error.details?.attempts}`, mayHaveRun: true };
        if (error.code === 'SINKFLEX_CALL_ABORTED') return { end: 'gave up', said: '', mayHaveRun: error.details?.mayHaveRun !== false };
        throw error;
      },
    );
  });
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('no answer in 20 s')), 20_000);
  });
  const ends = await Promise.race([Promise.all(outcomes), late]).finally(() => clearTimeout(timer));
  for (const ref of refs) ref.release();
  // What was given up may still end; nothing new begins after this, which needs all processors.
  if ((await task(add, { cpus: CPUS })(scripts, 1)) !== scripts + 1) throw new Error('a wrong sum');

  const runs = new Map<number, number[]>();
  const text = calls.length === 0 ? '' : readFileSync(ledger, { encoding: 'utf8', flag: 'a+' });
  for (const line of text.split('\n').filter((each) => each !== '')) {
    const [id, attempt] = line.split(' ').map(Number) as [number, number];
    runs.set(id, [...(runs.get(id) ?? []), attempt]);
  }
  for (const [id, each] of calls.entries()) {
    const { end, said, mayHaveRun } = ends[id]!;
    const ran = runs.get(id) ?? [];
    const say = (what: string): Error => new Error(`call ${id}: ${what}; it ran as attempts ${ran}, and ended: ${end} ${said}`);
    if (new Set(ran).size !== ran.length) throw say('an attempt ran twice');
    if (ran.length > each.maxRetries + 1) throw say('it ran more often than it may');
    if (!mayHaveRun && ran.length > 0) throw say('it was said not to have run');
    if (end === 'gave up') continue;
    const wanted = fate(each);
    if (end !== wanted.end || said !== `${id} ${wanted.attempt}`) throw say(`it should have been ${wanted.end} at ${wanted.attempt}`);
    if (ran.join() !== Array.from({ length: wanted.attempt }, (_, i) => i + 1).join()) throw say('an attempt is missing');
  }
}

t.test('scripts of calls', async (t) => {
  await fc.assert(fc.asyncProperty(fc.array(call, { minLength: 1, maxLength: 12 }), play), { numRuns, endOnFailure: true, seed: 3 });
  t.comment(`${scripts} scripts`);
});

t.test('processes of tasks that are killed, or stopped and killed, from outside', async (t) => {
  const ledger = join(folder, 'outside');
  let next = 0;
  for (const how of ['SIGKILL', 'SIGSTOP'] as const) {
    const ids = Array.from({ length: 4 }, () => next++);
    const answers = ids.map((id) => task(act, { isolation: 'process', maxRetries: 3 })(ledger, id, ['answer'], null));
    const outcome = Promise.all(answers);
    const pids = new Set(listActors().flatMap(({ kind, pid }) => (kind === 'TaskRunner' && pid !== undefined ? [pid] : [])));
    for (const pid of pids) {
      if (how === 'SIGSTOP') process.kill(pid, how);
      process.kill(pid, 'SIGKILL');
    }
    const values = await outcome;
    t.same(
      values.map((value) => Number(value.split(' ')[0])),
      ids,
    );
  }
});

t.test('a call that is given up before its thread came to it leaves nothing lent', async (t) => {
  const held = task(hold, { cpus: CPUS });
  // Known to be quick, so that calls share a batch.
  for (let i = 0; i < 20; i++) await get(Array.from({ length: 10 }, () => held(0, {})));
  const value = put({ kind: 'inner' });
  // Both wait for the processors, and go together when these are free.
  const before = task(collect, { cpus: CPUS })();
  const first = held(200, {});
  const second = held(0, { ref: value });
  void before.then(() => setTimeout(() => cancel(second), 50));
  t.match(await second.then(String, (error: unknown) => error), { code: 'SINKFLEX_CALL_ABORTED' });
  t.equal(await first, 200);
  value.release();
  // One more round trip: the reply of that batch has been read.
  await held(0, {});
  t.notOk([...session().loans.entries()].some(({ ref }) => (ref as unknown) === value));
});

t.test('nothing stays taken', async (t) => {
  // Threads that live give back what they have collected, a little after they have answered; those that have ended hold nothing. In the
  // last rounds as many at once as there can be threads, so that none is left out.
  for (const threads of [16, MOST_LEASES, MOST_LEASES]) {
    if (session().loans.size === 0) break;
    await get(Array.from({ length: threads }, () => task(collect, { cpus: 0 })()));
    await lookUntil(
      () => session().loans.size,
      (size) => size === 0,
      10_000,
    );
  }
  t.same(
    [...session().loans.entries()].map(({ ref, holders }) => ({ ref: ref.id, holders: [...holders] })),
    [],
  );
  // Runners that were started for more tasks than there are left may still be on their way.
  const tasks = async () => (await listTasks()).items;
  t.same(await lookUntil(tasks, ({ length }) => length === 0), []);
  const taken = async () => (await listNodes()).filter(({ free, total, leases }) => leases > 0 || !isDeepStrictEqual(free, total));
  t.same(await lookUntil(taken, ({ length }) => length === 0), []);
});
