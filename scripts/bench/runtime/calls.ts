// Rows actor.sync.*, actor.async.*, actor.nn.async: what a call costs, one after another and many at once.
import type { SuiteContext } from '../rows.ts';
import { awake } from './awake.ts';
import { endRay } from './peers.ts';
import { peerOf, withRuntime } from './run.ts';
import { compare, each, together } from './turns.ts';

type Apart = 'thread' | 'process';

/** How much better than Ray the round trip must be. */
const SYNC_BARS = { thread: { awake: 20, idle: 6 }, process: { awake: 12, idle: 5 } };
const ASYNC_BARS = { thread: 40, process: 25 };

/** One call after another: microseconds until the answer. */
export async function actorSync(context: SuiteContext, isolation: Apart, cores: 'awake' | 'idle'): Promise<void> {
  await withRuntime(async () => {
    const peer = await peerOf(isolation);
    let p99 = 0;
    const measure = () =>
      compare(context, {
        row: `actor.sync.${isolation}${cores === 'idle' ? '.idle' : ''}`,
        unit: 'us',
        better: 'lower',
        turns: 5,
        ours: async () => {
          const turn = await each(2000, () => peer.noop());
          p99 = turn.p99;
          return turn.median;
        },
        peer: async (ray) => (await ray.ask<{ median: number }>('actor_sync', { n: 300 })).median,
        bar: { ratio: SYNC_BARS[isolation][cores] },
        details: () => ({ cores, p99_us: Math.round(p99) }),
      });
    await (cores === 'awake' ? awake(measure) : measure());
  });
}

/** 1000 calls under way: calls a second. */
export async function actorAsync(context: SuiteContext, isolation: Apart): Promise<void> {
  await withRuntime(async () => {
    const peer = await peerOf(isolation);
    const turn = () => together(1000, () => peer.noop());
    for (let i = 0; i < 50; i++) await turn();
    await compare(context, {
      row: `actor.async.${isolation}`,
      unit: 'calls/s',
      better: 'higher',
      turns: 9,
      ours: async () => {
        // Ray's turn takes a fifth of a second: ours is the mean of as many batches as fit into that.
        const rates: number[] = [];
        for (const end = performance.now() + 200; performance.now() < end; ) rates.push(1 / (await turn()));
        return rates.length / rates.reduce((a, b) => a + b);
      },
      peer: (ray) => ray.ask('actor_async', { n: 1000 }),
      bar: { ratio: ASYNC_BARS[isolation] },
    });
  });
}

/** Four actors call four others, 2000 times each: calls a second in all. Processes on both sides, as Ray's are. */
export async function actorManyToMany(context: SuiteContext): Promise<void> {
  const [m, n] = [4, 2000];
  await withRuntime(async () => {
    const group = () => Promise.all(Array.from({ length: m }, () => peerOf('process', 10)));
    const [callers, callees] = [await group(), await group()];
    const turn = async (): Promise<number> => {
      const start = performance.now();
      await Promise.all(callers.map((caller) => caller.flood(callees, n)));
      return (m * n) / ((performance.now() - start) / 1000);
    };
    for (let i = 0; i < 10; i++) await turn();
    await compare(context, {
      row: 'actor.nn.async',
      unit: 'calls/s',
      better: 'higher',
      turns: 3,
      ours: turn,
      peer: (ray) => ray.ask('actor_nn', { m, n }),
      bar: { ratio: 20 },
      details: () => ({ callers: m, callees: m, isolation: 'process' }),
    });
    await endRay(context, 'actor_nn_end');
  });
}
