// How rows of the suite `runtime` are measured: turns of ours and of the peer (Ray) alternate, the figure of each is its median over turns.
import { median } from '../../../actors/index.ts';
import { judged, ratioOf, type SuiteContext } from '../rows.ts';
import { type Peer, type PeerName, peerNamed } from './peers.ts';

export const SUITE = 'runtime';

export interface Comparison {
  /** Default `runtime`. */
  suite?: string;
  row: string;
  unit: string;
  better: 'higher' | 'lower';
  turns: number;
  /** The figure of one turn. */
  ours: () => Promise<number>;
  peer?: (peer: Peer) => Promise<number>;
  /** Default Ray. */
  against?: PeerName;
  bar?: { ratio?: number; most?: number; least?: number };
  details?: () => Record<string, number | string>;
}

/** Measures a row and reports it. */
export async function compare(context: SuiteContext, c: Comparison): Promise<void> {
  const found = c.peer === undefined ? undefined : await peerNamed(c.against ?? 'Ray', context);
  const { suite = SUITE } = c;
  if (typeof found === 'string') context.report({ suite, row: c.row, skipped: `peer: ${found}` });
  const peer = typeof found === 'object' ? found : undefined;
  const ours: number[] = [];
  const theirs: number[] = [];
  for (let turn = 0; turn < (context.quick ? Math.min(2, c.turns) : c.turns); turn++) {
    ours.push(await c.ours());
    if (peer !== undefined) theirs.push(await c.peer!(peer));
  }
  const own = median(ours);
  const other = peer === undefined ? undefined : median(theirs);
  context.report(
    judged(
      {
        suite,
        row: c.row,
        unit: c.unit,
        ours: round(own),
        ...(other === undefined ? {} : { peer: round(other), ratio: round(ratioOf(own, other, c.better)) }),
        details: { ...(other === undefined ? {} : { peer: peer!.name }), turns: ours.length, ...c.details?.() },
      },
      c.bar ?? {},
    ),
  );
}

/** Microseconds of each of n calls, one after another. */
export async function each(n: number, call: () => PromiseLike<unknown>): Promise<{ median: number; p99: number }> {
  const samples = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    const start = performance.now();
    await call();
    samples[i] = (performance.now() - start) * 1000;
  }
  samples.sort();
  return { median: samples[n >> 1]!, p99: samples[Math.min(n - 1, Math.floor(n * 0.99))]! };
}

/** Calls a second with n of them under way. */
export async function together(n: number, call: () => PromiseLike<unknown>): Promise<number> {
  const calls = new Array<PromiseLike<unknown>>(n);
  const start = performance.now();
  for (let i = 0; i < n; i++) calls[i] = call();
  await Promise.all(calls);
  return n / ((performance.now() - start) / 1000);
}

export const round = (v: number): number => Number(v.toPrecision(5));

export { median };
