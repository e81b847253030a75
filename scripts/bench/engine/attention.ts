// Rows attention.*: sink attention alone, forward and backward, float32, 8 query heads over 2 key heads of width 64, in processor seconds
// (of all threads together). SDPA has no sink; eager is the formula with the scores written out. And the memory it takes beyond its
// inputs and outputs, up to 131,072 positions.
import { type SinkAttentionOptions, sinkAttention, sinkAttentionBackward } from '../../../kernels/index.ts';
import { judged, type SuiteContext } from '../rows.ts';
import { alone } from '../runtime/alone.ts';
import { compare, round, SUITE } from './compare.ts';
import { THREADS } from './shapes.ts';

const HEADS = 8;
const KV_HEADS = 2;
const DEPTH = 64;
const N = 4096;
const MIB = 2 ** 20;

function inputsOf(n: number, window: number, threads: number): SinkAttentionOptions & { dout: Float32Array } {
  let state = 1;
  const noise = (count: number): Float32Array =>
    Float32Array.from({ length: count }, () => {
      state = (Math.imul(state, 1664525) + 1013904223) | 0;
      return state / 2 ** 31;
    });
  const wide = n * HEADS * DEPTH;
  const narrow = n * KV_HEADS * DEPTH;
  return {
    q: noise(wide),
    k: noise(narrow),
    v: noise(narrow),
    dout: noise(wide),
    sink: noise(HEADS),
    heads: HEADS,
    kvHeads: KV_HEADS,
    headDim: DEPTH,
    cuSeqlens: Int32Array.of(0, n),
    window,
    threads,
  };
}

/** Forward and backward; processor seconds. */
function turn(inputs: SinkAttentionOptions & { dout: Float32Array }): number {
  const start = process.cpuUsage();
  sinkAttentionBackward({ ...inputs, ...sinkAttention(inputs) });
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1e6;
}

export function attention(context: SuiteContext, window: number): Promise<void> {
  const inputs = inputsOf(N, window, THREADS);
  const asked = { n: N, heads: HEADS, kv_heads: KV_HEADS, depth: DEPTH, window };
  return compare(context, {
    row: window < 0 ? 'attention.causal' : `attention.window${window}`,
    turns: 5,
    ours: async () => turn(inputs),
    rivals: [
      { label: 'sdpa', peer: 'torch', bar: window < 0 ? 1 : 8, turn: (torch) => torch.ask('attention', { ...asked, kind: 'sdpa' }) },
      { label: 'eager', peer: 'torch', bar: window < 0 ? 7 : 35, turn: (torch) => torch.ask('attention', { ...asked, kind: 'eager' }) },
    ],
    details: () => ({ n: N, heads: HEADS, kv_heads: KV_HEADS, head_dim: DEPTH, measured: 'processor time' }),
  });
}

/** Bytes of a forward and backward over n positions beyond what lies there before it, and what its results take. Run in a fresh process. */
export async function attentionMemory(o: { n: number; window: number }): Promise<{ extra: number; results: number; seconds: number }> {
  const { readFileSync, writeFileSync } = await import('node:fs');
  const status = (key: string): number =>
    Number(readFileSync('/proc/self/status', 'utf8').match(new RegExp(`^${key}:\\s+(\\d+) kB$`, 'm'))![1]) * 1024;
  turn(inputsOf(256, o.window, THREADS));
  const inputs = inputsOf(o.n, o.window, THREADS);
  (globalThis as { gc?: () => void }).gc?.();
  writeFileSync('/proc/self/clear_refs', '5');
  const before = status('VmRSS');
  const seconds = turn(inputs);
  const results = 4 * (2 * o.n * HEADS * DEPTH + 2 * o.n * KV_HEADS * DEPTH + o.n * HEADS);
  return { extra: status('VmHWM') - before, results, seconds };
}

/** Peak beyond the inputs and results: at n = 4096, full causal; and how it grows up to 131,072 positions (window 127). */
export async function attentionPeak(context: SuiteContext): Promise<void> {
  if (process.platform !== 'linux') {
    context.report({ suite: SUITE, row: 'attention.memory', skipped: 'reads /proc' });
    return;
  }
  const measured = (n: number, window: number): Promise<{ extra: number; results: number; seconds: number }> =>
    alone(import.meta.url, 'attentionMemory', { n, window }, 240_000);
  const causal = await measured(N, -1);
  const row = {
    suite: SUITE,
    row: 'attention.memory',
    unit: 'MiB',
    ours: round(causal.extra / MIB),
    details: { n: N, of_it_results: round(causal.results / MIB) },
  };
  context.report(judged(row, { most: 40 }));
  const [half, whole] = [await measured(65_536, 127), await measured(131_072, 127)];
  context.report(
    judged(
      {
        suite: SUITE,
        row: 'attention.memory.growth',
        unit: 'x for twice the positions',
        ours: round(whole.extra / half.extra),
        details: {
          mib_65536: round(half.extra / MIB),
          mib_131072: round(whole.extra / MIB),
          cpu_seconds_131072: round(whole.seconds),
          window: 127,
        },
      },
      { most: 2.1 },
    ),
  );
}
