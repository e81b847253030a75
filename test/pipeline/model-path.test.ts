// Runs that start from a model's folder: its chat format in rollouts, record and checkpoints; resumed bit for bit; evaluated.
import { existsSync, readdirSync, readFileSync, renameSync, statSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import {
  fromRecord,
  openTrajectoryStore,
  parseConfig,
  readMetrics,
  ServedModel,
  Tokenizer,
  type TrainingResult,
  train,
  withoutTimings,
} from '../../actors/index.ts';
import { readModelConfig, WeightStore } from '../../kernels/index.ts';
import { evaluationConfig } from '../../scripts/evaluate.ts';
import { writeByteModel } from '../serving/byte-model.ts';
import { absent, dataFolder } from '../tau2/traces.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;

const settings = {
  mode: 'sync',
  'sft.total_steps': 0,
  'env.max_turns': 3,
  data: { train_batch_size: 2, val_size: 2, val_interim_size: 2 },
  rollout: { n: 2, num_actors: 1, threads: 1, max_num_seqs: 4, max_model_len: 8192, max_tokens_per_turn: 16 },
  actor: { entropy_coeff: 0.01, threads: 2 },
  trainer: { total_training_steps: 2, test_freq: 0, save_freq: 1, max_ckpt_to_keep: 9 },
};
const configOf = (values: Record<string, unknown>) =>
  parseConfig([
    { source: 'settings', values: settings },
    { source: 'test', values },
  ]);
const run = (values: Record<string, unknown>): Promise<TrainingResult> => train(configOf(values), { preset: 'test' });
const weights = (folder: string, step: number): Buffer =>
  readFileSync(join(folder, `checkpoints/step-${String(step).padStart(10, '0')}/model/model.safetensors`));
const learnt = (folder: string) => readMetrics(join(folder, 'metrics.jsonl')).map(withoutTimings);

// A new object each time: the runner writes into it.
const needsData = (): { skip?: string } =>
  absent === undefined ? {} : { skip: `the data of tau2-bench are not there: ${absent} (TAU2_TRACES, TAU2_DATA)` };

t.test('tau2-mock is trained from a model folder, stopped, and goes on without it', needsData(), async (t) => {
  const root = t.testdir({ model: {} });
  const model = join(root, 'model');
  writeByteModel(model);
  const values = { 'env.name': 'tau2-mock', 'env.options.data': dataFolder, 'model.path': model };
  const [whole, parts] = [join(root, 'whole'), join(root, 'parts')];
  const result = await run({ ...values, output: whole });
  t.equal(result.steps, 2);
  t.ok(result.tokens > 0);
  const checkpoint = join(whole, 'checkpoints/step-0000000002/model');
  for (const name of ['chat_template.jinja', 'generation_config.json', 'tokenizer.json', 'tokenizer_config.json'])
    t.same(readFileSync(join(checkpoint, name)), readFileSync(join(model, name)), name);
  const tokenizer = Tokenizer.load(model);
  const store = await openTrajectoryStore(join(whole, 'trajectories/trajectories.db'), { readonly: true });
  let seen = 0;
  for await (const record of store.read({ phase: 'validation' })) {
    const { ids, mask } = fromRecord(record);
    const text = tokenizer.decode(ids);
    t.match(text, /^<\|im_start\|>system\n\{"type": "function".*create_task[\s\S]*<policy>[\s\S]*<\|im_start\|>assistant\n/);
    t.equal(mask.indexOf(1), tokenizer.encode(/^[\s\S]*?<\|im_start\|>assistant\n/.exec(text)![0]).length);
    seen++;
  }
  t.equal(seen, 4);
  await store.close();

  await run({ ...values, output: parts, trainer: { total_training_steps: 1, test_freq: 0, save_freq: 1 } });
  renameSync(model, join(root, 'moved'));
  await run({ ...values, resume: parts });
  t.ok(weights(parts, 2).equals(weights(whole, 2)), 'the same weights as the run that was not stopped');
  t.notOk(weights(whole, 2).equals(weights(whole, 0)));
  const scores = (folder: string) => learnt(folder).map((m) => m['critic/score/mean']);
  t.same(scores(parts).slice(-2), scores(whole).slice(-2));

  const saved = { source: 'run', values: { ...settings, ...values } };
  const last = join(whole, 'checkpoints/step-0000000002');
  const config = await evaluationConfig(saved, { source: 'test', values: {} }, last, join(root, 'score'));
  t.same((await train(config, { preset: 'evaluate' })).after, result.after, 'evaluate plays it in the same format');
});

t.test('code is trained from a model folder', async (t) => {
  const root = t.testdir({ model: {} });
  writeByteModel(join(root, 'model'));
  const output = join(root, 'run');
  const options = { sandbox: 'unsafe-subprocess', warm: 0 };
  await run({ 'env.name': 'code', 'env.options': options, 'model.path': join(root, 'model'), output, 'trainer.total_training_steps': 1 });
  t.ok(readdirSync(join(output, 'checkpoints')).includes('step-0000000001'));
  t.match(readFileSync(join(output, 'transcripts/failed.txt'), 'utf8'), /<\|im_start\|>user[\s\S]*solve/);
});

t.test('LoRA: adapters alone are published, kept and resumed; a checkpoint names the model below', async (t) => {
  const root = t.testdir({ model: {} });
  const model = join(root, 'model');
  writeByteModel(model);
  const before = readFileSync(join(model, 'model.safetensors'));
  // The desk's own language, spoken by a model that was not made for it.
  const values = {
    'env.name': 'desk',
    'model.path': model,
    'model.lora_rank': 4,
    'model.target_modules': ['q_proj', 'v_proj', 'down_proj'],
    'actor.kl_loss_coef': 0.1,
    'actor.optim.lr': 0.05,
    'actor.optim.lr_warmup_steps': 0,
    'rollout.max_model_len': 1024,
  };
  const [whole, parts] = [join(root, 'whole'), join(root, 'parts')];
  const result = await run({ ...values, output: whole });
  const last = join(whole, 'checkpoints/step-0000000002');
  t.same(
    readdirSync(join(last, 'model')).filter((name) => name.endsWith('.safetensors')),
    ['adapter_model.safetensors'],
  );
  t.ok(statSync(join(last, 'model/adapter_model.safetensors')).size < before.length / 3);
  t.match(JSON.parse(readFileSync(join(last, 'model/adapter_config.json'), 'utf8')), { base_model_name_or_path: model, r: 4 });
  const kl = learnt(whole).flatMap((m) => m['actor/kl_loss'] ?? []);
  t.equal(kl[0], 0, 'fresh adapters are the reference');
  t.ok(kl[1]! > 0, `and move away from it: ${kl[1]}`);

  await run({ ...values, output: parts, 'trainer.total_training_steps': 1 });
  await run({ ...values, resume: parts });
  const adapter = (folder: string) => readFileSync(join(folder, 'checkpoints/step-0000000002/model/adapter_model.safetensors'));
  t.ok(adapter(parts).equals(adapter(whole)), 'resumed bit for bit');
  t.ok(readFileSync(join(model, 'model.safetensors')).equals(before), 'the model below is left as it was');

  const saved = { source: 'run', values: { ...settings, ...values } };
  const config = await evaluationConfig(saved, { source: 'test', values: {} }, last, join(root, 'score'));
  t.same((await train(config, { preset: 'evaluate' })).after, result.after);
  // Merged on the way in, wherever a model is named.
  const served = new ServedModel(join(last, 'model'));
  const merged = WeightStore.create(readModelConfig(model));
  merged.loadFolder(join(last, 'model'));
  const image = (store: WeightStore) => store.tensors(store.pin()).get('model.layers.1.mlp.down_proj.weight')!.data;
  t.same(image(served.engine.store), image(merged));
  merged.loadFolder(model, { lineage: 0, version: 9 });
  t.notSame(image(served.engine.store), image(merged));
  await served.close();
  merged.close();
  const full = await run({ ...values, 'model.lora_rank': 0, 'model.path': join(last, 'model'), output: join(root, 'full') });
  t.equal(full.steps, 2, 'all weights go on from the merged model');

  renameSync(model, join(root, 'gone'));
  const again = run({ ...values, 'model.path': join(last, 'model'), output: join(root, 'again') });
  await t.rejects(again, { code: 'SINKFLEX_CHECKPOINT_MISSING', message: /base_model_name_or_path names .*model, and no model is there/ });
  t.notOk(existsSync(join(root, 'again')));
  t.throws(() => configOf({ 'model.lora_rank': 4 }), { code: 'SINKFLEX_SETTINGS', message: /need a model below/ });
  t.throws(() => configOf({ 'model.dtype': 'mxfp4' }), { code: 'SINKFLEX_SETTINGS', message: /learn adapters over them/ });
});

t.test('what no run can be made of is refused before anything is written', async (t) => {
  const root = t.testdir({ model: {} });
  const output = join(root, 'run');
  await t.rejects(run({ 'env.name': 'code', output }), { code: 'SINKFLEX_ENVIRONMENT_CHAT', message: /model whose folder has one/ });
  writeByteModel(join(root, 'model'));
  const taught = run({ 'env.name': 'tau2-mock', 'model.path': join(root, 'model'), 'sft.total_steps': 5, output });
  await t.rejects(taught, { code: 'SINKFLEX_SETTINGS', message: /tau2-mock, which has no expert/ });
  const replayed = run({ 'env.name': 'desk', 'model.path': join(root, 'model'), 'actor.router_replay.mode': 'R3', output });
  await t.rejects(replayed, { code: 'SINKFLEX_LOSS_OPTION', message: /this model \(qwen2\) has none/ });
  t.notOk(existsSync(output));
});
