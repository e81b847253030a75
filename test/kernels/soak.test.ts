// Generate, train, publish, again and again: resident memory does not grow. Short here; SINKFLEX_SOAK_CYCLES=2000 is the long form
// (`npm run test:soak`). Sizes vary from cycle to cycle, so that a buffer kept for each size would show.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t from 'tap';
import { Engine } from '../../kernels/index.ts';
import { createStore, generateOnce } from './engine-support.ts';

const cycles = Number(process.env.SINKFLEX_SOAK_CYCLES ?? 600);
/** Before these everything has reached its size: code, pools, arenas. */
const warm = 400;
setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

t.test(`${cycles} generate and train cycles leave resident memory where it was`, { timeout: 3_600_000 }, async (t) => {
  const store = createStore();
  const engine = new Engine({ store, threads: 2, maxSequences: 4, maxSequenceTokens: 192 });
  const samples: number[] = [];
  for (let cycle = 0; cycle < warm + cycles; cycle++) {
    const drawn = await Promise.all(
      [0, 1, 2, 3].map((i) =>
        generateOnce(engine, {
          tokens: Int32Array.from({ length: 5 + ((cycle * 13 + i * 29) % 90) }, (_, j) => (j * 7 + i + cycle) % 67),
          maxNewTokens: 4 + ((cycle + i) % 9),
          stopTokens: [],
          temperature: 1,
          key: [1, cycle, i, 0],
        }),
      ),
    );
    const ids = Int32Array.from(drawn.flatMap(({ tokens }) => [...tokens]));
    const cuSeqlens = new Int32Array(5);
    for (const [i, { tokens }] of drawn.entries()) cuSeqlens[i + 1] = cuSeqlens[i]! + tokens.length;
    const { logprobs } = await engine.forward({ ids, cuSeqlens }, { keep: true });
    await engine.backward({ dLogprobs: logprobs.map(() => -0.01) });
    await engine.optimizerStep({ lr: 1e-4, maxGradNorm: 1, lineage: 0, version: cycle + 2 });
    if (cycle < warm || cycle % 5 !== 0) continue;
    collectGarbage();
    samples.push(process.memoryUsage.rss() / 2 ** 20);
  }
  await engine.dispose();
  store.close();
  // Allocators make a saw of it. Its lowest points are what is held: of ten stretches the least, and their line.
  const stretch = Math.floor(samples.length / 10);
  const lows = Array.from({ length: 10 }, (_, i) => Math.min(...samples.slice(i * stretch, (i + 1) * stretch)));
  const mean = lows.reduce((sum, x) => sum + x, 0) / 10;
  const spread = 82.5; // sum of (i - 4.5)^2
  const slope = lows.reduce((sum, x, i) => sum + (i - 4.5) * (x - mean), 0) / spread;
  const residual = Math.sqrt(lows.reduce((sum, x, i) => sum + (x - mean - slope * (i - 4.5)) ** 2, 0) / 8);
  const error = residual / Math.sqrt(spread);
  const text = `${slope.toFixed(3)} +- ${error.toFixed(3)} MiB in ${5 * stretch} cycles; lows ${lows.map((x) => x.toFixed(1)).join(' ')}`;
  // A leak of one activation buffer (some 100 KiB) a cycle would be many MiB a stretch.
  t.ok(slope <= 3 * error || slope * 10 < 2, text);
  t.ok(lows[9]! - lows[0]! < 8, `in all ${(lows[9]! - lows[0]!).toFixed(1)} MiB`);
  t.comment(text);
});
