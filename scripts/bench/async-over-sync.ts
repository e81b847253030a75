// Row pipeline.async_over_sync: trained trajectories a second with slow tools (lognormal, mean 200 ms a step), asynchronous (eta 1) over
// synchronous: same tasks, same slots, same settings.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TrainingResult, train } from '../../actors/index.ts';
import { compose } from '../presets.ts';
import { ratioOf, type SuiteContext } from './rows.ts';

const ROW = 'pipeline.async_over_sync';

export async function asyncOverSync(context: SuiteContext): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'sinkflex-bench-'));
  try {
    const steps = context.quick ? 4 : 8;
    const rate: Record<string, number> = {};
    for (const mode of ['sync', 'async'] as const) {
      const r = await runMode(mode, steps, join(folder, mode));
      rate[mode] = r.trajectories / r.seconds.grpo;
      context.note(`${mode}: ${r.trajectories} trajectories in ${r.seconds.grpo.toFixed(1)} s of GRPO`);
    }
    context.report({
      suite: 'pipeline',
      row: ROW,
      unit: 'trajectories/s',
      ours: rate.async!,
      peer: rate.sync!,
      ratio: ratioOf(rate.async!, rate.sync!, 'higher'),
      details: { peer: 'our own --mode sync', latency: 'lognormal(mean=200ms,sigma=1.0)', steps, eta: 1 },
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function runMode(mode: 'sync' | 'async', steps: number, output: string): Promise<TrainingResult> {
  const { config, preset } = await compose({
    words: [
      `mode=${mode}`,
      'env.latency=lognormal(mean=200ms,sigma=1.0)',
      'async_training.staleness_threshold=1',
      `trainer.total_training_steps=${steps}`,
      'trainer.time_budget_s=null',
      'trainer.test_freq=0',
      'trainer.save_freq=0',
      'trainer.val_before_train=false',
      'data.val_size=1',
      'sft.total_steps=120',
    ],
    values: { source: 'bench', values: { output } },
  });
  return train(config, { preset });
}
