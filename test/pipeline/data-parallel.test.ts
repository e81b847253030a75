// Runs with two data-parallel trainers: the same bits in every run, however often one of them dies; close to the run of one trainer.
import { join } from 'node:path';
import t from 'tap';
import { parseConfig, planPlacement, readMetrics } from '../../actors/index.ts';
import { place } from '../../actors/pipeline/placement.ts';
import { balanced, essence, killing, learnt, ledger, root, start } from './tiny-run.ts';
import { few } from './tiny-settings.ts';

const two = { mode: 'sync', 'actor.num_actors': 2, ...few };
const losses = (name: string) =>
  readMetrics(join(root, name, 'metrics.jsonl'))
    .map((m) => m['sft/loss'])
    .filter((loss) => loss !== undefined);

t.test('two trainers end with the same bits, killed or resumed', async (t) => {
  await start('two', two);
  const whole = learnt(await essence('two'));
  const k = killing('killed', { 1: ['trainer-1'], 3: ['trainer'], 4: ['trainer-1'] });
  const r = await start('killed', two, k);
  t.match(r, { steps: 5, restarts: 3 });
  t.match(k.notes.join('\n'), /trainer-1 was lost[\s\S]*goes back to step 0[\s\S]*goes back to step 2/);
  t.strictSame(learnt(await essence('killed')), whole);
  t.ok(balanced(ledger('killed')) && ledger('killed').trained === 40);
  await start('killed', { ...two, output: null, resume: join(root, 'killed', 'checkpoints', 'step-0000000002') });
  t.strictSame(learnt(await essence('killed')), whole);

  await start('one', { mode: 'sync', ...few });
  const alone = losses('one');
  t.ok(losses('two').length === alone.length && alone.length > 5);
  for (const [i, loss] of losses('two').entries())
    t.ok(Math.abs(loss - alone[i]!) < 1e-4 * alone[i]!, `warm start ${i}: ${loss} ${alone[i]}`);
});

t.test('cores are divided among the trainers', (t) => {
  const config = parseConfig([{ source: 'test', values: { 'actor.num_actors': 2 } }]);
  t.match(place(config, 8), { trainers: 2, trainerThreads: 4 });
  const trainers = planPlacement(config).filter((a) => a.kind === 'TrainerActor');
  t.strictSame(
    trainers.map((a) => a.name),
    ['trainer', 'trainer-1'],
  );
  t.end();
});
