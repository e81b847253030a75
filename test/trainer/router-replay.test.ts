// Routing replay: trajectories carry the experts that generation chose, through packing and selection, and training sends tokens there.
import { join } from 'node:path';
import t from 'tap';
import {
  type Action,
  Chat,
  desk,
  type EpisodeContext,
  entry,
  parseConfig,
  playEpisode,
  readMetrics,
  train,
  trainingTask,
} from '../../actors/index.ts';
import { recipeOf } from '../../actors/pipeline/settings.ts';
import { type Recipe, Trainer } from '../../actors/trainer/index.ts';
import { type PackedTrajectories, pack, selectSequences, sliceExperts, type Trajectory } from '../../actors/trajectory/index.ts';
import { Engine, parseModelConfig, WeightStore } from '../../kernels/index.ts';
import { tiny } from '../pipeline/tiny-settings.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;

const chat = new Chat(desk.chat!);
const [layers, each] = [2, 2];
const model = parseModelConfig({
  model_type: 'gpt_oss',
  vocab_size: chat.tokenizer.vocabularySize,
  hidden_size: 32,
  intermediate_size: 32,
  num_hidden_layers: layers,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 8,
  num_local_experts: 4,
  num_experts_per_tok: each,
  sliding_window: 8,
  layer_types: ['sliding_attention', 'full_attention'],
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  swiglu_limit: 7,
  max_position_embeddings: 256,
  attention_bias: true,
  initializer_range: 0.3,
});
const width = layers * each;
const router = 'model.layers.1.mlp.router.weight';

function newStore(t: { teardown: (f: () => void) => unknown }): WeightStore {
  const store = WeightStore.create(model);
  store.initialise(5);
  t.teardown(() => store.close());
  return store;
}

/** Episodes of several turns, as a rollout plays them; rewards by hand, so that every group has a spread. */
async function sample(store: WeightStore): Promise<Trajectory[]> {
  const engine = new Engine({ store, threads: 1, maxSequences: 8, maxSequenceTokens: 256, recordExperts: true });
  const play = (task: number, sample: number): Promise<Trajectory> => {
    const environment = entry('desk').create({ level: 1, maxTurns: 3 });
    const context: EpisodeContext = {
      engine,
      environment: {
        reset: async () => environment.reset({ seed: trainingTask(1, task) }),
        step: async (action: Action) => environment.step(action),
        close: () => void environment.close(),
      },
      dialogue: chat,
      limits: { maxTokens: 250, maxTokensPerTurn: 6, maxTurns: 3 },
      sampling: { seed: 1, temperature: 1 },
      experts: { each: width, wide: false },
      signal: new AbortController().signal,
    };
    return playEpisode({ task, sample, group: `t${task}`, seed: trainingTask(1, task) }, context);
  };
  const all = await Promise.all([0, 1].flatMap((task) => [0, 1, 2].map((s) => play(task, s))));
  await engine.dispose();
  return all.map((each) => ({ ...each, reward: each.sample % 2 }));
}

const recipe = (over: Partial<Recipe>): Recipe => ({
  ...recipeOf(
    parseConfig([{ source: 'test', values: { actor: { use_kl_loss: false, ppo_mini_batch_size: 1 }, data: { train_batch_size: 2 } } }]),
  ),
  ...over,
});

async function learn(t: Parameters<typeof newStore>[0], batch: PackedTrajectories, over: Partial<Recipe>) {
  const store = newStore(t);
  const trainer = new Trainer({ store: store.address, threads: 1, recipe: recipe(over) });
  const { metrics } = await trainer.update(batch, { lr: 0.02 });
  const pin = store.pin();
  const weights = Float32Array.from(store.tensors(pin).get(router)!.data);
  pin.release();
  await trainer.stop();
  return { metrics, weights };
}

t.test('experts go with the tokens: every one that was read, through packing and selection', async (t) => {
  const trajectories = await sample(newStore(t));
  for (const { ids, experts, turns, mask } of trajectories) {
    t.ok(turns > 1 && mask.at(-1) === 1);
    t.equal(experts!.length, ids.length * width);
    t.ok(
      experts!.subarray(0, -width).every((expert) => expert < 4),
      'all that was read',
    );
    t.ok(
      experts!.subarray(-width).every((expert) => expert === 255),
      'nobody read the last draw',
    );
  }
  const whole = pack(trajectories);
  const some = selectSequences(whole, (i) => i % 2 === 1);
  for (const [k, i] of [1, 3, 5].entries()) {
    const [a, b] = [some.cuSeqlens[k]!, some.cuSeqlens[k + 1]!];
    t.same(sliceExperts(some, a, b), trajectories[i]!.experts);
    t.same(sliceExperts(whole, whole.cuSeqlens[i]!, whole.cuSeqlens[i + 1]!), trajectories[i]!.experts);
  }
  const { experts: _, ...without } = trajectories[0]!;
  t.equal(pack([without, ...trajectories.slice(1)]).experts, undefined, 'all or none');
});

t.test('the switch changes the loss where the weights have moved, and nothing where they have not', async (t) => {
  const batch = pack(await sample(newStore(t)));
  const one = { miniBatchPrompts: null };
  const [fresh, replayed] = [await learn(t, batch, one), await learn(t, batch, { ...one, routerReplay: true })];
  t.same(replayed.weights, fresh.weights, 'one step by the weights that sampled: the router chooses what it chose');
  const two = { miniBatchPrompts: 1, epochs: 2 };
  const [chosen, kept] = [await learn(t, batch, two), await learn(t, batch, { ...two, routerReplay: true })];
  t.not(kept.metrics['actor/pg_loss'], chosen.metrics['actor/pg_loss']);
  t.notSame(kept.weights, chosen.weights);
  // What is replayed are the trajectories' own experts: others give another loss.
  const other = { ...batch, experts: batch.experts!.map((expert) => (expert === 255 ? 255 : (expert + 1) % 4)) };
  const moved = await learn(t, other, { ...one, routerReplay: true });
  t.notSame(moved.weights, replayed.weights);
  t.same((await learn(t, other, one)).weights, fresh.weights, 'without the switch they are not looked at');
});

t.test('a run with actor.router_replay.mode=R3 learns otherwise, from the same first episodes', async (t) => {
  const root = t.testdir();
  const run = async (mode: string) => {
    const values = { output: join(root, mode), mode: 'sync', 'actor.router_replay.mode': mode, 'actor.use_kl_loss': false };
    const short = { 'trainer.total_training_steps': 1, 'trainer.test_freq': 0, 'sft.total_steps': 0 };
    await train(
      parseConfig([tiny, values, { ...short, 'actor.optim.lr': 0.05, 'actor.ppo_epochs': 2 }].map((v) => ({ source: 't', values: v }))),
      {
        preset: 'tiny',
      },
    );
    return readMetrics(join(root, mode, 'metrics.jsonl')).find((m) => m['actor/grad_norm'] !== undefined)!;
  };
  const [chosen, replayed] = [await run('disabled'), await run('R3')];
  t.equal(replayed['response_length/mean'], chosen['response_length/mean']);
  t.not(replayed['actor/grad_norm'], chosen['actor/grad_norm']);
});
