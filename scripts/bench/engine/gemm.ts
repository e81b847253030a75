// Rows gemm.*: the product of two 1024 x 1024 matrices in float32, as the engine's linear layers run it (weights [out, in], packed inside
// the call): its share of what the core's fused multiply-adds allow, measured in between, and beside torch.
import { measureFmaPeak, measureLinear } from '../../../kernels/index.ts';
import { judged, type SuiteContext } from '../rows.ts';
import { compare, median, round, SUITE } from './compare.ts';
import { THREADS } from './shapes.ts';

const SIZE = 1024;
const FLOPS = 2 * SIZE ** 3;

/** One thread, by processor time, so that other load does not count. */
export async function gemmPeak(context: SuiteContext): Promise<void> {
  const [peaks, products]: [number[], number[]] = [[], []];
  measureLinear({ rows: SIZE, in: SIZE, out: SIZE, threads: 1 });
  for (let turn = 0; turn < (context.quick ? 3 : 15); turn++) {
    peaks.push(measureFmaPeak());
    products.push(FLOPS / measureLinear({ rows: SIZE, in: SIZE, out: SIZE, threads: 1 }).cpuSeconds);
  }
  const row = {
    suite: SUITE,
    row: 'gemm.1024.peak',
    unit: '% of peak',
    ours: round((100 * median(products)) / median(peaks)),
    details: { gflops: round(median(products) / 1e9), peak_gflops: round(median(peaks) / 1e9), turns: peaks.length, threads: 1 },
  };
  context.report(judged(row, { least: 75 }));
}

export function gemmTorch(context: SuiteContext): Promise<void> {
  return compare(context, {
    row: 'gemm.1024',
    rate: { unit: 'GFLOP/s', perTurn: FLOPS / 1e9 },
    turns: 25,
    warm: 3,
    ours: async () => measureLinear({ rows: SIZE, in: SIZE, out: SIZE, threads: THREADS }).seconds,
    rivals: [{ label: 'torch', peer: 'torch', turn: (torch) => torch.ask('gemm', { size: SIZE }), bar: 0.9 }],
  });
}
