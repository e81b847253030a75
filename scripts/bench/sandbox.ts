// Suite `sandbox`: how long a program takes in a sandbox that stands, and how long a sandbox takes to stand.
import { makeSandboxProvider, type SandboxLanguage, type SandboxProvider } from '../../actors/index.ts';
import { isSinkflexError } from '../../kernels/index.ts';
import { judged, type Suite, type SuiteContext } from './rows.ts';

const PROGRAMS: Record<'python' | 'javascript', string> = { python: 'print(1 + 1)', javascript: 'console.log(1 + 1)' };

/** Time between two programs of an agent, which thinks meanwhile: a Node starts in it. */
const THINKING_MS = 100;

export const sandboxSuite: Suite = {
  'exec.python': (c) => exec(c, 'python', 5, 0),
  'exec.javascript': (c) => exec(c, 'javascript', 25, THINKING_MS),
  'exec.javascript.back_to_back': (c) => exec(c, 'javascript', undefined, 0),
  cold: (c) =>
    withProvider(c, 'cold', async (provider) => {
      const times = await timed(c.quick ? 10 : 60, async () => {
        const sandbox = await provider.create();
        return () => sandbox.close();
      });
      c.report(judged({ suite: 'sandbox', row: 'cold', unit: 'ms', ours: median(times), details: spread(times) }, { most: 80 }));
    }),
  warm: (c) =>
    withProvider(
      c,
      'warm',
      async (provider) => {
        const times = await timed(c.quick ? 10 : 60, async () => {
          const sandbox = await provider.create();
          return async () => {
            await sandbox.close();
            // The pool fills again while an agent would think.
            await pause(THINKING_MS);
          };
        });
        c.report({
          suite: 'sandbox',
          row: 'warm',
          unit: 'ms',
          ours: median(times),
          details: { ...spread(times), hit_rate: provider.stats().hitRate },
        });
      },
      2,
    ),
  episodes: (c) =>
    withProvider(c, 'episodes', async (provider) => {
      const count = c.quick ? 20 : 100;
      const began = performance.now();
      await Promise.all(
        Array.from({ length: count }, async () => {
          const sandbox = await provider.create();
          await sandbox.exec({ language: 'python', code: PROGRAMS.python, timeoutMs: 60_000 });
          await sandbox.close();
        }),
      );
      const seconds = (performance.now() - began) / 1000;
      c.report({ suite: 'sandbox', row: 'episodes', unit: '1/s', ours: count / seconds, details: { at_once: count } });
    }),
};

async function exec(c: SuiteContext, language: 'python' | 'javascript', most: number | undefined, thinking: number): Promise<void> {
  const row = `exec.${language}${language === 'javascript' && thinking === 0 ? '.back_to_back' : ''}`;
  await withProvider(c, row, async (provider) => {
    const sandbox = await provider.create();
    const request = { language: language as SandboxLanguage, code: PROGRAMS[language] };
    for (let i = 0; i < 3; i++) await sandbox.exec(request);
    await pause(THINKING_MS);
    const times = await timed(c.quick ? 20 : 100, async () => {
      await sandbox.exec(request);
      return () => pause(thinking);
    });
    const measured = { suite: 'sandbox', row, unit: 'ms', ours: median(times), details: { ...spread(times), thinking_ms: thinking } };
    c.report(most === undefined ? measured : judged(measured, { most }));
  });
}

async function withProvider(c: SuiteContext, row: string, measure: (provider: SandboxProvider) => Promise<void>, warm = 0): Promise<void> {
  const provider = makeSandboxProvider('local', { javascript: row.includes('javascript'), warm });
  try {
    await (await provider.create()).close();
  } catch (e) {
    await provider.close();
    if (!isSinkflexError(e)) throw e;
    c.report({ suite: 'sandbox', row, skipped: e.message });
    return;
  }
  try {
    await measure(provider);
  } finally {
    await provider.close();
  }
}

/** Milliseconds of each run; what a run hands back is done untimed. */
async function timed(count: number, run: () => Promise<() => Promise<unknown>>): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < count; i++) {
    const began = performance.now();
    const after = await run();
    times.push(performance.now() - began);
    await after();
  }
  return times.sort((a, b) => a - b);
}

const median = (sorted: readonly number[]): number => sorted[Math.floor(sorted.length / 2)]!;
const spread = (sorted: readonly number[]) => ({ min: sorted[0]!, p95: sorted[Math.floor(sorted.length * 0.95)]!, runs: sorted.length });
const pause = (ms: number): Promise<void> => (ms === 0 ? Promise.resolve() : new Promise((go) => setTimeout(go, ms)));
