// The presets that start from a model's folder, each for a few steps with a tiny random checkpoint whose tokenizer has a real one's shape.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { fromRecord, make, openTrajectoryStore, type Trajectory, train } from '../../actors/index.ts';
import { compose } from '../../scripts/presets.ts';
import { writeByteModel } from '../serving/byte-model.ts';
import { absent, dataFolder } from '../tau2/traces.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
t.setTimeout(600_000);

const STEPS = 2;

async function firstEpisode(folder: string): Promise<Trajectory> {
  const store = await openTrajectoryStore(join(folder, 'trajectories/trajectories.db'), { readonly: true });
  try {
    for await (const record of store.read({ phase: 'validation' })) return fromRecord(record);
  } finally {
    await store.close();
  }
  throw new Error(`no episode in ${folder}`);
}

// A new object each time: the runner writes into it.
const needsData = (): { skip?: string } =>
  absent === undefined ? {} : { skip: `the data of tau2-bench are not there: ${absent} (TAU2_TRACES, TAU2_DATA)` };

t.test('the presets for model folders run', needsData(), async (t) => {
  const root = t.testdir({ model: {} });
  const model = join(root, 'model');
  // Pieces of the very text, as a tokenizer that was trained on such texts has them.
  const text = ['policy.md', 'tasks.json'].map((name) => readFileSync(join(dataFolder, 'retail', name), 'utf8')).join('\n');
  const schemas = (await make('tau2-retail', { data: dataFolder }).reset({ seed: 1 })).tools;
  writeByteModel(model, 3, { text: text + JSON.stringify(schemas) });
  const small = {
    'model.path': model,
    'model.dtype': 'float32', // a dense model: no experts in MXFP4
    data: { train_batch_size: 1, val_size: 1, val_interim_size: 1 },
    rollout: { n: 2, num_actors: 1, threads: 1, max_num_seqs: 4, max_tokens_per_turn: 12, kv_cache_tokens: null },
    'actor.threads': 2,
    'actor.entropy_coeff': 0.01,
    'algorithm.filter_groups.enable': false,
    'env.max_turns': 2,
    trainer: { total_training_steps: STEPS, test_freq: 0, save_freq: 0, val_before_train: false },
  };
  for (const [preset, options] of [
    ['tau2-retail', { 'env.options.data': dataFolder }],
    ['tau2-retail-gpt-oss', { 'env.options.data': dataFolder }],
    ['code-tasks-instruct', { 'env.options.sandbox': 'unsafe-subprocess', 'env.options.warm': 0 }],
  ] as const) {
    const values = { source: 'test', values: { ...small, ...options, output: join(root, preset) } };
    const { config } = await compose({ preset, values });
    const result = await train(config, { preset });
    t.equal(result.steps, STEPS, preset);
    const files = readdirSync(join(result.folder, `checkpoints/step-000000000${STEPS}/model`));
    t.ok(files.includes(preset.endsWith('oss') ? 'adapter_model.safetensors' : 'model.safetensors'), preset);
    const { ids } = await firstEpisode(result.folder);
    if (preset.startsWith('tau2')) t.ok(ids.length > 4000 && ids.length < 9000, `${ids.length} tokens: policy, tools, ticket`);
  }
});
