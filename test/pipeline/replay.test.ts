// Halves of a run: training on stored rollouts repeats the updates of the run that stored them, bit for bit, without engines; rollouts that
// are stored alone are those that a run draws.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { type DebugResult, debugRun, parseConfig, readMetrics, train, withoutTimings } from '../../actors/index.ts';
import { composeLaunch } from '../../scripts/launch.ts';
import { root, start, storedTokens } from './tiny-run.ts';
import { few, tiny } from './tiny-settings.ts';

function half(name: string, values: Record<string, unknown>): Promise<DebugResult> {
  const layers = [
    { source: 'tiny', values: tiny },
    { source: 'test', values: { output: join(root, name), ...values } },
  ];
  return debugRun(parseConfig(layers), { preset: 'tiny' });
}

function weights(name: string, step: number): string {
  const path = join(root, name, 'checkpoints', `step-${String(step).padStart(10, '0')}`, 'model', 'model.safetensors');
  return createHash('sha256').update(readFileSync(path)).digest('hex');
}

/** What the updates reported. */
const updates = (name: string) =>
  readMetrics(join(root, name, 'metrics.jsonl'))
    .filter((m) => 'actor/pg_loss' in m)
    .map(withoutTimings)
    .map((m) =>
      Object.fromEntries(Object.entries(m).filter(([k]) => /^(actor|critic|training\/(global_step|rollout|version|off))/.test(k))),
    );

t.test('training on the stored rollouts of a run, synchronous or asynchronous, ends with its weights', async (t) => {
  for (const mode of ['sync', 'async']) {
    await start(mode, { mode, ...few });
    const result = await half(`${mode}-again`, { mode, 'debug.train_only': join(root, mode) });
    t.match(result, { mode: 'train_only', steps: 5, trajectories: 40 });
    t.equal(weights(`${mode}-again`, 5), weights(mode, 5), mode);
    t.strictSame(updates(`${mode}-again`), updates(mode));
    const actors = JSON.parse(readFileSync(join(root, `${mode}-again`, 'actors.json'), 'utf8')) as { name: string }[];
    t.strictSame(actors.map((a) => a.name).sort(), ['reference', 'trainer'], 'no engine, no environment');
  }
  // From a later checkpoint, and under another learning rate.
  const later = join(root, 'sync', 'checkpoints', 'step-0000000002');
  t.match(await half('later', { 'debug.train_only': later }), { steps: 3, trajectories: 24 });
  t.equal(weights('later', 5), weights('sync', 5));
  await half('other', { 'debug.train_only': later, 'actor.optim.lr': 1e-2 });
  t.not(weights('other', 5), weights('sync', 5));
});

t.test('rollouts that are stored alone are those of a run, and can be trained later', async (t) => {
  const values = { mode: 'sync', ...few, 'sft.total_steps': 0, 'trainer.total_training_steps': 1 };
  await start('whole', values);
  t.match(await half('sampled', { ...values, 'debug.rollout_only': true }), { mode: 'rollout_only', steps: 1, trajectories: 8 });
  const tokens = async (name: string) => (await storedTokens(name)).map(({ advantage, ...rest }) => rest);
  t.strictSame(await tokens('sampled'), await tokens('whole'));
  t.match(JSON.parse(readFileSync(join(root, 'sampled', 'ledger.json'), 'utf8')), { trained: 0, filtered: { rollout_only: 8 } });
  t.match(await half('trained', { ...values, 'debug.train_only': join(root, 'sampled') }), { steps: 1, trajectories: 8 });
  t.equal(weights('trained', 1), weights('whole', 1));
});

t.test('what cannot be replayed is refused with what to do', async (t) => {
  await start('thin', { mode: 'sync', ...few, 'trainer.total_training_steps': 1, 'trainer.max_trajectories_per_step': 3 });
  await t.rejects(half('a', { 'debug.train_only': join(root, 'thin') }), {
    code: 'SINKFLEX_REPLAY',
    message: /has 3 of the 8 trajectories that were trained.*max_trajectories_per_step=null/,
  });
  await t.rejects(half('b', { 'debug.train_only': join(root, 'nowhere') }), { code: 'SINKFLEX_RESUME' });
  t.throws(() => parseConfig([{ source: 'test', values: { debug: { rollout_only: true, train_only: root } } }]), {
    message: /not together/,
  });
  await t.rejects(train(parseConfig([{ source: 'test', values: { 'debug.rollout_only': true } }]), { preset: 'tiny' }), {
    code: 'SINKFLEX_SETTINGS',
  });
  const { preset, config } = await composeLaunch(['seed=9'], { debugTrainOnly: join(root, 'thin') });
  t.match(
    { preset, config },
    { preset: 'replay', config: { seed: 9, output: null, rollout: { n: 4 }, debug: { train_only: join(root, 'thin') } } },
  );
  await t.rejects(composeLaunch(['tiny'], { debugTrainOnly: join(root, 'thin') }), { code: 'SINKFLEX_USAGE' });
});
