// A run on tasks of a file with a curriculum and group sizes by pass rate: the same bits when resumed, sampler included.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { RunFolder } from '../../actors/index.ts';
import { essence, ledger, root, start, storedTokens } from './tiny-run.ts';
import { few } from './tiny-settings.ts';

t.test('a curriculum over rows of a file resumes to the same bits', async (t) => {
  const rows = Array.from({ length: 12 }, (_, i) => ({ seed: 100 + i, level: (i % 3) + 1, options: { level: (i % 3) + 1 } }));
  const train = join(root, 'train.jsonl');
  const held = join(root, 'held.jsonl');
  writeFileSync(train, rows.map((r) => JSON.stringify(r)).join('\n'));
  writeFileSync(held, '{"seed":3000000001}\n{"seed":3000000002}\n{"seed":3000000003,"options":{"level":2}}\n');
  const settings = {
    mode: 'sync',
    ...few,
    'data.train_files': train,
    'data.val_files': held,
    // Nothing is solved by so small a policy: a level opens at once, and rows differ in what they have been given.
    'data.sampler': { class_name: 'curriculum', promote_at: 0, min_groups: 1.0, review: 0.5 },
    'rollout.adaptive_n': { enable: true, min: 2 },
    'trainer.save_freq': 1,
    'trainer.total_training_steps': 4,
  };
  const result = await start('rows', settings);
  t.equal(result.after.n, 3, 'each held-out row once');
  const whole = await essence('rows', 4);
  t.ok(whole.metrics.some((m) => m['data/curriculum/opened'] === 3));
  const store = (await RunFolder.open(join(root, 'rows')).readTrajectories())!;
  for await (const { seed } of store.heads({ phase: 'train' })) t.ok(seed >= 100 && seed < 112);
  for await (const { seed } of store.heads({ phase: 'validation' })) t.ok(seed > 3e9);
  await store.close();
  const state = JSON.parse(readFileSync(join(root, 'rows', 'checkpoints', 'step-0000000002', 'trainer.json'), 'utf8'));
  t.ok(Object.keys(state.extra.sampler.rates).length > 0);
  t.ok(whole.tokens.length > 0);
  await start('unused', { ...settings, resume: join(root, 'rows', 'checkpoints', 'step-0000000002') });
  t.strictSame(await essence('rows', 4), whole);
});

t.test('a batch of which dynamic sampling leaves nothing is a step that changes nothing, also with a KL to the reference', async (t) => {
  const result = await start('nothing', {
    mode: 'sync',
    ...few,
    'sft.total_steps': 0,
    'algorithm.filter_groups': { enable: true, max_num_gen_batches: 2 },
    'trainer.total_training_steps': 2,
  });
  t.match(result, { steps: 2, trajectories: 0 });
  t.match(JSON.parse(readFileSync(join(root, 'nothing', 'ledger.json'), 'utf8')), { sampled: 32, trained: 0, filtered: { zero_std: 32 } });
});

t.test(
  'episodes that outgrow the context go on in new sequences: the books count episodes, and log-probabilities are those of training',
  async (t) => {
    const settings = {
      mode: 'sync',
      ...few,
      'rollout.max_model_len': 40,
      'rollout.context_compaction': { enable: true, keep_turns: 1 },
      'trainer.total_training_steps': 2,
      'trainer.val_before_train': false,
    };
    await start('compacted', settings);
    const tokens = await storedTokens('compacted');
    t.equal(tokens.length, 16);
    t.ok(
      tokens.some((r) => r.forks?.length),
      'some were compacted',
    );
    t.match(ledger('compacted'), { sampled: 16, trained: 16, inFlight: 0 });
    const { metrics } = await essence('compacted', 2);
    t.ok(metrics.some((m) => m['num_contexts/max']! > 1));
    for (const m of metrics) if ('training/rollout_probs_diff_max' in m) t.equal(m['training/rollout_probs_diff_max'], 0);
  },
);
