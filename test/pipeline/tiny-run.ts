// Whole runs with real actors on a tiny model, and what of them must be the same: shared by the tests of reproducibility and of faults.
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import {
  type Phase,
  type ProgressEvent,
  parseConfig,
  RunFolder,
  readMetrics,
  type TrainingResult,
  train,
  withoutTimings,
} from '../../actors/index.ts';
import type { LedgerSnapshot } from '../../actors/trajectory/index.ts';
import { tiny } from './tiny-settings.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;

export const root = mkdtempSync(join(tmpdir(), 'sinkflex-run-'));
t.teardown(() => rmSync(root, { recursive: true, force: true }));

type Values = Record<string, unknown>;
export function start(
  name: string,
  values: Values,
  o: { on?: (e: ProgressEvent) => void; signal?: AbortSignal } = {},
): Promise<TrainingResult> {
  const config = parseConfig([
    { source: 'tiny', values: tiny },
    { source: 'test', values: { output: join(root, name), ...values } },
  ]);
  return train(config, { preset: 'tiny', ...(o.on ? { onProgress: o.on } : {}), ...(o.signal ? { signal: o.signal } : {}) });
}

export const read = (name: string, ...file: string[]) => readFileSync(join(root, name, ...file), 'utf8');
export const ledger = (name: string) => JSON.parse(read(name, 'ledger.json')) as LedgerSnapshot;
export const balanced = (l: LedgerSnapshot) =>
  l.sampled === l.trained + l.inFlight + [...Object.values(l.filtered), ...Object.values(l.aborted)].reduce((a, b) => a + b, 0);

/** The training trajectories of a run without what differs from process to process. */
export async function storedTokens(name: string) {
  const store = (await RunFolder.open(join(root, name)).readTrajectories())!;
  const tokens = [];
  for await (const { seconds, lineage, redone, ...rest } of store.read({ phase: 'train' })) tokens.push(rest);
  await store.close();
  return tokens;
}

/** Everything that a seed fixes: metrics without timings, the sampled ids, the final weights. */
export async function essence(name: string, step = 5) {
  const metrics = readMetrics(join(root, name, 'metrics.jsonl')).map(withoutTimings);
  const tokens = await storedTokens(name);
  const weights = readFileSync(join(root, name, 'checkpoints', `step-${String(step).padStart(10, '0')}`, 'model', 'model.safetensors'));
  return {
    metrics,
    tokens,
    weights: createHash('sha256').update(weights).digest('hex'),
  };
}
/** The books differ where actors died; what was learnt must not. */
export const learnt = (e: Awaited<ReturnType<typeof essence>>) => ({
  ...e,
  metrics: e.metrics.map((m) => Object.fromEntries(Object.entries(m).filter(([k]) => !k.startsWith('ledger/')))),
});

export const pidOf = (name: string, actor: string): number =>
  (JSON.parse(read(name, 'actors.json')) as { name: string; pid: number }[]).find((a) => a.name === actor)!.pid;

export const pidsOf = (name: string): number[] => (JSON.parse(read(name, 'actors.json')) as { pid: number }[]).map((a) => a.pid);

/** Signals actors when a step of the phase is reported; each once. */
export function killing(name: string, plan: Record<number, string[]>, phase: Phase = 'grpo', signal: NodeJS.Signals = 'SIGKILL') {
  const notes: string[] = [];
  return {
    notes,
    on: (e: ProgressEvent) => {
      if (e.kind === 'note') notes.push(e.text);
      if (e.kind !== 'advance' || e.phase !== phase) return;
      const actors = plan[e.done] ?? [];
      delete plan[e.done];
      for (const actor of actors) process.kill(pidOf(name, actor), signal);
    },
  };
}
