// Runs of one seed: the same bits, also when resumed; eta = 0 equals the synchronous run token for token.
import { join } from 'node:path';
import t from 'tap';
import { essence, ledger, root, start } from './tiny-run.ts';

t.test('synchronous runs of one seed are the same bits; eta = 0 equals them token for token; another seed differs', async (t) => {
  const result = await start('sync', { mode: 'sync' });
  t.match(result, { steps: 5, trajectories: 40, restarts: 0, mode: 'sync' });
  const sync = await essence('sync');
  t.equal(sync.metrics.filter((m) => m['actor/pg_loss'] !== undefined).length, 5);
  t.equal(sync.tokens.length, 40);
  t.strictSame(ledger('sync'), { sampled: 40, trained: 40, filtered: {}, aborted: {}, inFlight: 0 });
  await start('again', { mode: 'sync', 'rollout.num_actors': 1, 'actor.threads': 1 });
  t.strictSame(await essence('again'), sync, 'also with other numbers of actors and threads');
  await start('eta0', { mode: 'async', 'async_training.staleness_threshold': 0 });
  t.strictSame(await essence('eta0'), sync);
  await start('other', { mode: 'sync', seed: 4, 'trainer.total_training_steps': 1 });
  t.not((await essence('other', 1)).weights, sync.weights);

  t.test('a run that is resumed from any checkpoint ends as the one left alone', async (t) => {
    for (const [from, step] of [
      ['sync', 2],
      ['again', 4],
    ] as const) {
      await start('unused', { mode: 'sync', resume: join(root, from, 'checkpoints', `step-${String(step).padStart(10, '0')}`) });
      t.strictSame(await essence(from), sync);
    }
  });
});
