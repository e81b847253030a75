// Collectives: every operation against a sequential reference, bit for bit, and one end for all when a member is gone.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';
import fc from 'fast-check';
import t from 'tap';
import {
  type Collective,
  type CollectiveBrokenDetails,
  collectiveSlice,
  createCollective,
  joinCollective,
  type Reduction,
} from '../../kernels/collective.ts';
import type { SinkflexError } from '../../kernels/errors.ts';
import { PATIENCE_MS } from '../until.ts';
import type { Membership } from './fixtures/collective-member.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;
const fixture = new URL(`./fixtures/collective-member${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url);
const { NODE_OPTIONS: _, ...env } = process.env;
const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);

/** Members need no threads of their own: what waits is native. */
function members(n: number, chunkBytes = 4096): Promise<Collective[]> {
  const group = createCollective(n, { chunkBytes });
  return Promise.all(range(n).map((rank) => joinCollective(group, rank, { timeoutMs: 20_000 })));
}

function together<T>(all: readonly Collective[], call: (member: Collective, rank: number) => Promise<T>): Promise<T[]> {
  return Promise.all(all.map(call));
}

async function endOf(call: Promise<unknown>): Promise<{ code: string; details: CollectiveBrokenDetails; error: SinkflexError }> {
  const error = await call.then(
    () => {
      throw new Error('no error');
    },
    (e: SinkflexError) => e,
  );
  return { code: error.code, details: error.details as unknown as CollectiveBrokenDetails, error };
}

const f = Math.fround;
const combine: Record<Reduction, (a: number, b: number) => number> = {
  sum: (a, b) => f(a + b),
  mean: (a, b) => f(a + b),
  min: Math.min,
  max: Math.max,
};
/** In the order of ranks, rounded after each step. */
function reduced(all: readonly Float32Array[], reduction: Reduction): Float32Array {
  const out = Float32Array.from(all[0]!, (first, i) => all.slice(1).reduce((sum, other) => combine[reduction](sum, other[i]!), first));
  return reduction === 'mean' ? out.map((v) => f(v / all.length)) : out;
}
const bits = (a: Float32Array): string => Buffer.from(a.buffer, a.byteOffset, a.byteLength).toString('base64');

/** Magnitudes far apart, so that another order of adding has other bits. */
function numbers(length: number, seed: number): Float32Array {
  let state = seed * 2654435761 + 1;
  return Float32Array.from({ length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return state * 2 ** -((state >>> 8) % 40);
  });
}

const aCall = fc.record({
  kind: fc.constantFrom('allReduce', 'reduceScatter', 'allGather', 'broadcast', 'barrier'),
  reduction: fc.constantFrom<Reduction>('sum', 'mean', 'min', 'max'),
  length: fc.oneof(fc.nat(40), fc.nat(9000)),
  root: fc.nat(100),
  seed: fc.nat(1000),
});

t.test('any row of operations is as the sequential reference, bit for bit, whatever the chunks', async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 5 }),
      fc.constantFrom(4096, 12_288),
      fc.array(aCall, { minLength: 1, maxLength: 12 }),
      async (n, chunkBytes, calls) => {
        const all = await members(n, chunkBytes);
        // Without waiting in between: calls of a member run in the order in which they were made.
        const rows = await together(all, (member, rank) =>
          Promise.all(
            calls.map(async ({ kind, reduction, length, root, seed }) => {
              const own = numbers(length, seed + rank);
              if (kind === 'allReduce') return bits(await member.allReduce(own, reduction));
              if (kind === 'reduceScatter') return bits(await member.reduceScatter(own, reduction));
              if (kind === 'allGather') return bits(await member.allGather(own));
              if (kind === 'broadcast') return bits(await member.broadcast(own, root % n));
              return member.barrier();
            }),
          ),
        );
        for (const [i, { kind, reduction, length, root, seed }] of calls.entries()) {
          const inputs = range(n).map((rank) => numbers(length, seed + rank));
          for (const rank of range(n)) {
            const { start, end } = collectiveSlice(length, rank, n);
            const expected = {
              allReduce: () => bits(reduced(inputs, reduction)),
              reduceScatter: () => bits(reduced(inputs, reduction).slice(start, end)),
              allGather: () => bits(Float32Array.from(inputs.flatMap((input) => [...input]))),
              broadcast: () => bits(inputs[root % n]!),
              barrier: () => undefined,
            }[kind]!();
            if (rows[rank]![i] !== expected) throw new Error(`${kind} of ${length}, ${n} members: rank ${rank} has other bits`);
          }
        }
        for (const member of all) member.leave();
      },
    ),
    { numRuns: 25, seed: 11 },
  );
  t.pass();
});

t.test('other types travel whole, and a barrier is used again and again, in many groups at once', async (t) => {
  const groups = await Promise.all(range(12).map(() => members(3)));
  await Promise.all(
    groups.map(async (all, g) => {
      for (let i = 0; i < 20; i++) await together(all, (member) => member.barrier());
      const gathered = await together(all, (member, rank) => member.allGather(new BigInt64Array([BigInt(g), BigInt(-rank)])));
      for (const row of gathered) t.strictSame([...row], [BigInt(g), 0n, BigInt(g), -1n, BigInt(g), -2n]);
      const sent = await together(all, (member, rank) => member.broadcast(new Float64Array([rank + 0.1]), 2));
      t.strictSame(
        sent.map(([v]) => v),
        [2.1, 2.1, 2.1],
      );
      for (const member of all) member.leave();
    }),
  );
});

t.test('members that call different things are all told, and the group goes on', async (t) => {
  const all = await members(3);
  const results = await together(all, (member, rank) => endOf(member.allReduce(new Float32Array(rank === 1 ? 5 : 4))));
  for (const { code, error } of results) {
    t.equal(code, 'SINKFLEX_COLLECTIVE_MISMATCH');
    t.match(error.message, /member 0 called allReduce\(size 4.*member 1 allReduce\(size 5/);
  }
  const kinds = await together(all, (member, rank) => endOf(rank === 2 ? member.barrier() : member.broadcast(new Uint8Array(1))));
  t.strictSame(
    kinds.map(({ code }) => code),
    Array(3).fill('SINKFLEX_COLLECTIVE_MISMATCH'),
  );
  const sums = await together(all, (member) => member.allReduce(new Float32Array([1])));
  t.strictSame(
    sums.map(([v]) => v),
    [3, 3, 3],
  );
});

t.test('a deadline, an abort and leaving end the group for all, with one reason', async (t) => {
  const [a, b, c] = (await members(3)) as [Collective, Collective, Collective];
  const waiting = endOf(b.barrier());
  const late = await endOf(a.barrier({ timeoutMs: 30 }));
  t.match(late, { code: 'SINKFLEX_COLLECTIVE_BROKEN', details: { reason: 'deadline', rank: 0, pid: process.pid, missing: [2] } });
  t.match(late.error.message, /member 0 \(process \d+\) waited until its deadline; not there: 2/);
  t.match(await waiting, { code: 'SINKFLEX_COLLECTIVE_BROKEN', details: { reason: 'deadline', rank: 0 } });
  t.match(await endOf(c.allReduce(new Float32Array(3))), { code: 'SINKFLEX_COLLECTIVE_BROKEN', details: { reason: 'deadline', rank: 0 } });

  const [d, e] = (await members(2)) as [Collective, Collective];
  const why = new Error('enough');
  const controller = new AbortController();
  const given = endOf(d.barrier({ signal: controller.signal }));
  controller.abort(why);
  t.equal((await given).error.cause, why);
  t.match(await endOf(e.barrier()), { details: { reason: 'aborted', rank: 0 } });

  const [g, h] = (await members(2)) as [Collective, Collective];
  const left = endOf(g.barrier());
  h.leave();
  t.match(await left, { details: { reason: 'left', rank: 1 } });
  t.match(await endOf(h.barrier()), { code: 'SINKFLEX_COLLECTIVE_BROKEN', details: { reason: 'left', rank: 1 } });
});

t.test('who cannot join is told why', async (t) => {
  const group = createCollective(2);
  const first = joinCollective(group, 0, { timeoutMs: 200 });
  t.match(await endOf(joinCollective(group, 0)), { code: 'SINKFLEX_BAD_ARGUMENT', error: /rank 0 .* was taken by process/ });
  t.match(await endOf(joinCollective(group, 2)), { code: 'SINKFLEX_BAD_ARGUMENT' });
  t.match(await endOf(first), { code: 'SINKFLEX_COLLECTIVE_BROKEN', details: { reason: 'deadline', missing: [1] } });
  t.match(await endOf(joinCollective({ members: 2, address: { ...group.address, startTime: '1' } }, 1)), {
    code: 'SINKFLEX_COLLECTIVE_GONE',
  });
  t.throws(() => createCollective(0), { code: 'SINKFLEX_BAD_ARGUMENT' });
});

t.test('a process that is killed at any time ends the group for the others, soon and alike', async (t) => {
  for (let round = 0; round < 3; round++) {
    const group = createCollective(3, { chunkBytes: 4096 });
    const child = fork(fixture, { execArgv: [], env, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    child.send({ group, rank: 1, floats: 20_000 } satisfies Membership);
    const running = once(child, 'message');
    joinedWorker(group, 2);
    const survivor = await joinCollective(group, 0, { timeoutMs: 20_000 });
    await running;
    const [data, all] = [new Float32Array(20_000), new Float32Array(20_000)];
    let calls = 0;
    let killed = 0;
    const end = await endOf(
      (async () => {
        for (;;) {
          // The kill falls into the middle of some operation, another in every round.
          if (calls++ === round) {
            setImmediate(() => {
              child.kill('SIGKILL');
              killed = performance.now();
            });
          }
          await survivor.allReduce(data, 'mean');
          await survivor.broadcast(all, 1);
          await survivor.allGather(data);
          await survivor.reduceScatter(data);
          await survivor.barrier();
        }
      })(),
    );
    t.match(end, { code: 'SINKFLEX_COLLECTIVE_BROKEN', details: { reason: 'died', rank: 1, pid: child.pid } });
    t.ok(killed > 0 && performance.now() - killed < 2000, 'soon');
  }
});

/** A member in a thread, which ends by itself when the group breaks. */
function joinedWorker(group: Membership['group'], rank: number, floats = 20_000): Worker {
  return new Worker(fixture, { workerData: { group, rank, floats } satisfies Membership, execArgv: [], env });
}

t.test('a thread that is terminated ends the group for the others, whether it waits in an operation or is awaited', async (t) => {
  for (const floats of [0, 20_000]) {
    const group = createCollective(2, { chunkBytes: 4096 });
    const worker = joinedWorker(group, 1, floats);
    const member = await joinCollective(group, 0, { timeoutMs: 20_000 });
    const waiting = floats === 0 ? endOf(member.barrier()) : undefined;
    await worker.terminate();
    t.match(await (waiting ?? endOf(member.barrier())), { code: 'SINKFLEX_COLLECTIVE_BROKEN', details: { reason: 'died', rank: 1 } });
  }
});

t.test('groups leave no memory and no descriptors', { skip: process.platform !== 'linux' }, async (t) => {
  const held = (): number =>
    readdirSync('/proc/self/fd').length +
    readFileSync('/proc/self/maps', 'utf8')
      .split('\n')
      .filter((l) => /sinkflex-\w+-c/.test(l)).length;
  const cycle = async (): Promise<void> => {
    const all = await members(2);
    await together(all, (member) => member.allReduce(new Float32Array(10)));
    for (const member of all) member.leave();
  };
  await cycle();
  collect();
  const before = held();
  for (let i = 0; i < 60; i++) await cycle();
  // The creator lets go a moment after all have joined.
  for (const end = performance.now() + PATIENCE_MS; held() > before && performance.now() < end; ) {
    collect();
    await new Promise((done) => setTimeout(done, 20));
  }
  t.ok(held() <= before, `${held()} held, ${before} before`);
});
