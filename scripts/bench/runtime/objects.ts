// Rows object.*: a large value put and got in its process, and one value read by four actors. Pages of both sides are touched beforehand
// (turns before the first that counts), since the first touch of memory costs more than the copy.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { get, put } from '../../../runtime/index.ts';
import { judged, ratioOf, type SuiteContext } from '../rows.ts';
import { endRay, rayOf } from './peers.ts';
import { peerOf, withRuntime } from './run.ts';
import { compare, median, round, SUITE } from './turns.ts';

const SIZES = { '100mb': { bytes: 100_000_000, turns: 9 }, '1gb': { bytes: 1_000_000_000, turns: 5 } };
/** Microseconds that a get without a copy may take, whatever the size. */
const GET_BAR_US = 100;
const READERS = 4;
/** Time for both stores to take back what a turn let go of. */
const SETTLE_MS = 300;

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** What a turn got is a view that pins its value until it is collected; Python lets go of its own at once. */
async function settle(): Promise<void> {
  await new Promise((done) => setTimeout(done, SETTLE_MS / 2));
  collect();
  await new Promise((done) => setTimeout(done, SETTLE_MS / 2));
}

/** Rows object.put.<size> in GB/s and object.get.<size> in microseconds. */
export async function objectPut(context: SuiteContext, size: keyof typeof SIZES): Promise<void> {
  const { bytes, turns } = SIZES[size];
  const ray = await rayOf(context);
  if (typeof ray === 'string') context.report({ suite: SUITE, row: `object.put.${size}`, skipped: `peer: ${ray}` });
  await withRuntime(
    async () => {
      const value = new Float32Array(bytes / 4).fill(1);
      const turn = async (): Promise<{ put: number; get: number }> => {
        const start = performance.now();
        const ref = put(value);
        const middle = performance.now();
        const got = await get(ref);
        const end = performance.now();
        if (got[got.length - 1] !== 1 || got.length !== value.length) throw new Error('what was got is not what was put');
        ref.release();
        return { put: bytes / 1e6 / (middle - start), get: (end - middle) * 1000 };
      };
      const ours: { put: number; get: number }[] = [];
      const theirs: typeof ours = [];
      const ask = typeof ray === 'object' ? () => ray.ask<{ put: number; get: number }>('object_put', { size: bytes }) : undefined;
      for (let i = 0; i < 2; i++) {
        await turn();
        await settle();
        await ask?.();
      }
      for (let i = 0; i < (context.quick ? 2 : turns); i++) {
        ours.push(await turn());
        await settle();
        if (ask !== undefined) theirs.push(await ask());
      }
      for (const what of ['put', 'get'] as const) {
        const own = median(ours.map((t) => t[what]));
        const peer = ask === undefined ? undefined : median(theirs.map((t) => t[what]));
        const better = what === 'put' ? 'higher' : 'lower';
        context.report(
          judged(
            {
              suite: SUITE,
              row: `object.${what}.${size}`,
              unit: what === 'put' ? 'GB/s' : 'us',
              ours: round(own),
              ...(peer === undefined ? {} : { peer: round(peer), ratio: round(ratioOf(own, peer, better)) }),
              details: { turns: ours.length, best: round((better === 'higher' ? Math.max : Math.min)(...ours.map((t) => t[what]))) },
            },
            what === 'put' ? { ratio: 0.9 } : { most: GET_BAR_US },
          ),
        );
      }
    },
    { objectStoreMemory: 4 * 2 ** 30 },
  );
  await endRay(context, 'object_end');
}

/** Row object.broadcast.100mb: put, then each of four actors in other processes reads the first element. */
export async function objectBroadcast(context: SuiteContext): Promise<void> {
  const { bytes } = SIZES['100mb'];
  await withRuntime(
    async () => {
      const readers = await Promise.all(Array.from({ length: READERS }, () => peerOf('process', 10)));
      const value = new Float32Array(bytes / 4).fill(1);
      const turn = async (): Promise<number> => {
        const start = performance.now();
        const ref = put(value);
        const firsts = await Promise.all(readers.map((reader) => reader.first(ref)));
        const took = performance.now() - start;
        if (firsts.some((first) => first !== 1)) throw new Error('a reader saw another value');
        ref.release();
        return took;
      };
      for (let i = 0; i < 2; i++) {
        await turn();
        await settle();
      }
      await compare(context, {
        row: 'object.broadcast.100mb',
        unit: 'ms',
        better: 'lower',
        turns: 7,
        ours: async () => {
          const took = await turn();
          await settle();
          return took;
        },
        peer: (ray) => ray.ask('object_broadcast', { size: bytes, m: READERS }),
        bar: { ratio: 2 },
        details: () => ({ readers: READERS }),
      });
    },
    { objectStoreMemory: 2 * 2 ** 30 },
  );
  await endRay(context, 'object_end');
}
