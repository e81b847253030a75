// The trainer over a real engine: what an update measures, that splits change no bit, that skipping what teaches nothing changes no bit,
// and that a checkpoint is whole and brings everything back.
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { playEpisode } from '../../actors/rollout/index.ts';
import { type Recipe, readCheckpoint, Trainer } from '../../actors/trainer/index.ts';
import { fromRecord, type PackedTrajectories, pack, type Trajectory, toRecord } from '../../actors/trajectory/index.ts';
import { Engine, parseModelConfig, WeightStore } from '../../kernels/index.ts';
import { model, newStore, recipe, sample } from './trainer-world.ts';

function weights(store: WeightStore): string {
  const pin = store.pin();
  const text = Buffer.from(pin.data.subarray(0, store.layout.totalBytes)).toString('base64');
  pin.release();
  return text;
}
const trainer = (store: WeightStore, change: Partial<Recipe> = {}, threads = 1) =>
  new Trainer({ store: store.address, threads, recipe: { ...recipe, ...change } });

async function reference(store: WeightStore, p: PackedTrajectories): Promise<Float32Array> {
  const engine = new Engine({ store, threads: 1, maxSequences: 1, maxSequenceTokens: 64 });
  const { logprobs } = await engine.forward({ ids: p.ids, cuSeqlens: p.cuSeqlens }, { temperature: recipe.temperature });
  await engine.dispose();
  return logprobs;
}

t.test('one update a batch: the ratio is exactly 1, generation equals training bit for bit, nothing is clipped', async (t) => {
  const store = newStore(t);
  const batch = await sample(store);
  const tr = trainer(store, { kl: { coefficient: 0.1, estimator: 'k3' } });
  const ref = await reference(store, batch);
  const before = weights(store);
  const { metrics, version, lineage } = await tr.update(batch, { lr: 1e-2 }, ref);
  t.equal(metrics['training/rollout_probs_diff_max'], 0);
  t.equal(metrics['actor/pg_clipfrac'], 0);
  t.equal(metrics['actor/ppo_kl'], 0);
  t.equal(metrics['actor/kl_loss'], 0, 'the policy is its own reference');
  t.equal(metrics['rollout_corr/rollout_is_mean'], 1);
  t.equal(metrics['training/off_policy/trajectory_staleness/max'], 0);
  t.equal(metrics.frac_reward_zero_std, 1 / 6);
  t.ok(metrics['actor/grad_norm']! > 0);
  t.strictSame({ version, lineage }, { version: 1, lineage: 0 });
  t.not(weights(store), before);
  // The same batch again: now the policy has moved, and the books say how far.
  const second = (await tr.update(batch, { lr: 1e-2 }, ref)).metrics;
  t.ok(second['actor/kl_loss']! > 0);
  t.ok(second['training/rollout_probs_diff_mean']! > 0);
  t.equal(second['training/off_policy/trajectory_staleness/mean'], 1);
  t.not(second['rollout_corr/rollout_is_mean'], 1);
  await t.rejects(tr.update(batch, { lr: 1e-2 }), { code: 'SINKFLEX_LOSS_OPTION', message: /reference/ });
  await tr.stop();
});

t.test('several updates a batch clip at a learning rate that moves the policy', async (t) => {
  const store = newStore(t);
  const batch = await sample(store);
  const tr = trainer(store, { epochs: 2, miniBatchPrompts: 3 });
  const { metrics, version } = await tr.update(batch, { lr: 3e-2 });
  t.equal(version, 4, 'four optimiser steps, four versions');
  t.ok(metrics['actor/pg_clipfrac']! > 0, `${metrics['actor/pg_clipfrac']}`);
  t.equal(metrics['training/rollout_probs_diff_max'], 0, 'the old policy is that before the first of them');
  await tr.stop();
});

t.test(
  'gradients and weights are the same bits over micro-batch splits, threads, and whether what teaches nothing is skipped',
  async (t) => {
    const results: string[] = [];
    for (const [change, threads] of [
      [{}, 1],
      [{ microBatchTokens: 40 }, 1],
      [{ microBatchSequences: 1, gradientCheckpointing: true }, 1],
      [{ microBatchTokens: 1 }, 2],
    ] as const) {
      const store = newStore(t);
      const tr = trainer(store, { ...change, epochs: 2, miniBatchPrompts: 2 }, threads);
      await tr.update(await sample(store), { lr: 1e-2 });
      results.push(weights(store));
      await tr.stop();
    }
    t.equal(results[1], results[0]);
    t.equal(results[2], results[0]);
    // A KL coefficient too small to count in float32, against the policy itself, runs every sequence through both passes.
    const dense: string[] = [];
    for (const coefficient of [0, 1e-300]) {
      const store = newStore(t);
      const batch = await sample(store);
      const tr = trainer(store, { kl: { coefficient, estimator: 'k3' } });
      const { metrics } = await tr.update(batch, { lr: 1e-2 }, await reference(store, batch));
      t.equal(metrics['actor/trained_tokens']! < batch.mask.reduce((a, b) => a + b, 0), coefficient === 0, 'group 2 is skipped, or not');
      dense.push(weights(store));
      await tr.stop();
    }
    t.equal(dense[1], dense[0]);
  },
);

t.test('every switch of the recipe changes what is learnt', async (t) => {
  const seen = new Map<string, string>();
  const base = { epochs: 2, miniBatchPrompts: 3 };
  const changes: Record<string, Partial<Recipe>> = {
    plain: {},
    'no std': { advantage: { ...recipe.advantage, normalizeByStd: false } },
    population: { advantage: { ...recipe.advantage, std: 'population' } },
    rloo: { advantage: { ...recipe.advantage, estimator: 'rloo' } },
    'reinforce++': { advantage: { ...recipe.advantage, estimator: 'reinforce_plus_plus' } },
    'seq mean': { loss: { ...recipe.loss, aggregation: 'seq-mean-token-mean' } },
    'seq sum': { loss: { ...recipe.loss, aggregation: 'seq-mean-token-sum' } },
    'prompt mean': { loss: { ...recipe.loss, aggregation: 'prompt-mean' } },
    'tight clip': { loss: { ...recipe.loss, clipLow: 0.01, clipHigh: 0.01 } },
    gspo: { loss: { ...recipe.loss, mode: 'gspo' } },
    cispo: { loss: { ...recipe.loss, mode: 'cispo' } },
    entropy: { entropyCoefficient: 0.01 },
    'router loss': { routerAuxLossCoefficient: 0.1 },
    temperature: { temperature: 1 },
    'kl k3': { kl: { coefficient: 0.1, estimator: 'k3' } },
    'kl k2': { kl: { coefficient: 0.1, estimator: 'k2' } },
    decay: { optimizer: { ...recipe.optimizer, weightDecay: 0.1 } },
    clip: { optimizer: { ...recipe.optimizer, gradClip: 1e-3, eps: 1e-3 } },
  };
  for (const [name, change] of Object.entries(changes)) {
    const store = newStore(t);
    const batch = await sample(store);
    const ref = await reference(store, batch);
    const tr = trainer(store, { ...base, ...change });
    await tr.update(batch, { lr: 1e-2 }, ref);
    const w = weights(store);
    t.notOk(seen.get(w), `${name} differs from ${seen.get(w) ?? 'all others'}`);
    seen.set(w, name);
    await tr.stop();
  }
});

t.test("the router's load-balancing loss falls where it has a weight, and is refused for a model without experts", async (t) => {
  const run = async (routerAuxLossCoefficient: number): Promise<number[]> => {
    const store = newStore(t);
    const batch = await sample(store);
    const tr = trainer(store, { routerAuxLossCoefficient, entropyCoefficient: 1e-12 }); // nothing is skipped
    const losses: number[] = [];
    for (let i = 0; i < 8; i++) losses.push((await tr.update(batch, { lr: 1e-2 })).metrics['actor/router_aux_loss']!);
    await tr.stop();
    return losses;
  };
  const [free, balanced] = [await run(0), await run(1)];
  t.equal(free[0], balanced[0], 'the same weights, the same loss');
  t.ok(balanced.at(-1)! < balanced[0]! && balanced.at(-1)! < free.at(-1)!, `${balanced} against ${free}`);
  t.ok(
    balanced.every((loss) => loss >= 0.9),
    'about the number of experts a token where the load is even',
  );
  const dense = WeightStore.create(
    parseModelConfig({ ...model, model_type: 'qwen2', head_dim: undefined, num_local_experts: 0, layer_types: null }),
  );
  t.teardown(() => dense.close());
  dense.initialise(1);
  t.throws(() => trainer(dense, { routerAuxLossCoefficient: 0.1 }), { code: 'SINKFLEX_LOSS_OPTION', message: /qwen2\) has none/ });
});

t.test('demonstrations are learnt; only the masked tokens are', async (t) => {
  const store = newStore(t);
  const tr = trainer(store);
  const ids = Int32Array.from({ length: 24 }, (_, k) => (k % 6) * 3);
  const batch = { ids, cuSeqlens: Int32Array.of(0, 12, 24), mask: Uint8Array.from(ids, (_, k) => (k % 12 > 5 ? 1 : 0)) };
  const losses: number[] = [];
  for (let i = 0; i < 30; i++) losses.push((await tr.sft(batch, { lr: 1e-2, weightDecay: 0, gradClip: 1 })).loss);
  t.ok(Math.abs(losses[0]! - Math.log(48)) < 0.3, `${losses[0]} begins at the uniform loss`);
  t.ok(losses.at(-1)! < 0.1, `${losses.at(-1)}`);
  await tr.stop();
});

t.test(
  'moments in the slots: the successor of a lost trainer goes on from its last step, and forgets what was to be forgotten',
  async (t) => {
    const [inSlots, plain] = [newStore(t, { moments: 'float32' }), newStore(t)];
    const [batch, demonstrations] = [
      await sample(plain),
      { ids: Int32Array.of(1, 2, 3), cuSeqlens: Int32Array.of(0, 3), mask: Uint8Array.of(0, 1, 1) },
    ];
    const warm = { lr: 1e-2, weightDecay: 0, gradClip: 1 };
    const [one, other] = [trainer(inSlots), trainer(plain)];
    for (const each of [one, other]) {
      await each.sft(demonstrations, warm);
      await each.sft(demonstrations, warm);
      each.resetOptimizer();
      await each.update(batch, { lr: 1e-2 });
    }
    t.equal(weights(inSlots), weights(plain), 'a first step after the warm start');
    await other.update(batch, { lr: 1e-2 });
    // `one` is lost here, with nothing saved.
    const successor = new Trainer({ store: inSlots.address, threads: 1, recipe, fenced: true });
    t.equal(successor.resume({ lineage: 0, version: 2 }), false, 'part of an update cannot be gone on from');
    await t.rejects(successor.update(batch, { lr: 1e-2 }), { code: 'SINKFLEX_TRAINER_LOST' });
    t.equal(successor.resume({ lineage: 0, version: 3 }), true);
    await successor.update(batch, { lr: 1e-2 });
    t.equal(weights(inSlots), weights(plain), 'the moments were there');
    t.equal(other.resume(plain.current()!), false, 'elsewhere they are with the trainer alone');
    await Promise.all([one, other, successor].map((each) => each.stop()));
  },
);

t.test('a checkpoint brings back weights, moments and place; half of one never stands', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'sinkflex-'));
  t.teardown(() => rmSync(dir, { recursive: true }));
  const place = join(dir, 'step-0000000001');
  const state = {
    step: 1,
    cursor: 6,
    ledger: { sampled: 18, trained: 18, filtered: {}, aborted: {}, inFlight: 0 },
    extra: { note: 'kept' },
  };
  const store = newStore(t);
  const batch = await sample(store);
  const tr = trainer(store);
  await tr.update(batch, { lr: 1e-2 });
  await tr.save(place, state, { 'tokenizer.json': '{}' });
  await tr.update(batch, { lr: 1e-2 });
  const straight = weights(store);
  t.match(readCheckpoint(place), { format: 1, lineage: 0, version: 1, ...state });
  t.strictSame(readdirSync(join(place, 'model')).sort(), ['config.json', 'model.safetensors', 'tokenizer.json']);
  // Back in the same process, as a new lineage.
  t.match(await tr.rewind(place, 3), { cursor: 6 });
  t.match(store.current(), { lineage: 3, version: 1 });
  const again = await tr.update(batch, { lr: 1e-2 });
  t.match(again, { lineage: 3, version: 2 });
  t.equal(weights(store), straight, 'the moments came back too');
  // In a new process: fenced until it is told where the run stands.
  const other = newStore(t);
  const successor = new Trainer({ store: other.address, threads: 1, recipe, fenced: true });
  await t.rejects(successor.update(batch, { lr: 1e-2 }), { code: 'SINKFLEX_TRAINER_LOST' });
  await t.rejects(successor.save(place, state), { code: 'SINKFLEX_TRAINER_LOST' });
  await successor.rewind(place, 0);
  await successor.update(batch, { lr: 1e-2 });
  t.equal(weights(other), straight);
  // Replaced as a whole; a failure leaves what stood there and no litter.
  await successor.save(place, { ...state, step: 2 });
  t.equal(readCheckpoint(place).step, 2);
  writeFileSync(join(dir, 'a-file'), '');
  await t.rejects(successor.save(join(dir, 'a-file', 'step'), state));
  await t.rejects(successor.save(place, { ...state, step: 3 }, { 'no/such/folder': '' }));
  t.equal(readCheckpoint(place).step, 2);
  t.strictSame(readdirSync(dir).sort(), ['a-file', 'step-0000000001']);
  t.notOk(existsSync(`${place}.old`));
  t.throws(() => readCheckpoint(dir), { code: 'SINKFLEX_CHECKPOINT_INVALID' });
  await successor.stop();
  await tr.stop();
});

t.test(
  'shaping: the KL in the reward, the overlong punishment and truncated episodes each change what is learned, as they should',
  async (t) => {
    const store = newStore(t);
    const batch = await sample(store);
    const ref = (await reference(store, batch)).map((x) => x - 0.1);
    const learned = async (change: Partial<Recipe['shaping']>, b = batch, more: Partial<Recipe> = {}) => {
      const own = newStore(t);
      const tr = trainer(own, { shaping: { ...recipe.shaping, ...change }, ...more });
      const { metrics } = await tr.update(b, { lr: 1e-2 }, ref);
      await tr.stop();
      return { metrics, weights: weights(own) };
    };
    const plain = await learned({});
    const kl = { coefficient: 0.5, estimator: 'k1' as const };
    const costly = await learned({ kl });
    t.not(costly.weights, plain.weights);
    t.equal(costly.metrics['critic/score/mean'], plain.metrics['critic/score/mean']);
    t.ok(Math.abs(costly.metrics['actor/reward_kl_penalty']! - 0.1) < 1e-6, 'the reference is 0.1 below at every token');
    t.ok(costly.metrics['critic/rewards/mean']! < plain.metrics['critic/rewards/mean']!);
    t.equal(costly.metrics['actor/ppo_kl'], 0, 'the pass before the update is the pass of the update, bit for bit');
    const replayed = await learned({ kl }, batch, { oldIsBehaviour: true, correction: { mode: null, threshold: 2 } });
    t.equal(replayed.weights, costly.weights, 'on policy, what was sampled is what would be recomputed');
    const long = await learned({ overlong: { limit: 16, buffer: 6, factor: 1 } });
    t.not(long.weights, plain.weights);
    t.ok(long.metrics['reward/overlong_fraction']! > 0 && long.metrics['reward/overlong_fraction']! < 1);
    // A truncated episode counts in its group's statistics, and nothing of it is trained.
    const cut = { ...batch, truncated: Uint8Array.from(batch.truncated, (_, i) => (i === 4 ? 1 : 0)) };
    t.equal((await learned({}, cut)).weights, plain.weights, 'off by default');
    const masked = await learned({ maskTruncated: true }, cut);
    t.not(masked.weights, plain.weights);
    t.equal(masked.metrics['actor/trained_tokens'], plain.metrics['actor/trained_tokens']! - 1, 'sample 4 has one token');
    t.equal(masked.metrics['critic/score/mean'], plain.metrics['critic/score/mean']);
    const tr = trainer(newStore(t), { shaping: { ...recipe.shaping, kl } });
    await t.rejects(tr.update(batch, { lr: 1e-2 }), { code: 'SINKFLEX_LOSS_OPTION', message: /reference/ });
  },
);

t.test(
  'an episode whose context was compacted: several sequences, each token trained once, one reward and advantage, the log-probabilities of a recomputation',
  async (t) => {
    const store = newStore(t);
    const engine = new Engine({ store, threads: 1, maxSequences: 4, maxSequenceTokens: 48 });
    const [tool, user] = [30, 20];
    const play = async (sample: number, group: string): Promise<Trajectory> => {
      let steps = 0;
      return playEpisode(
        { task: Number(group.slice(1)), sample, group, seed: 0 },
        {
          engine,
          environment: {
            reset: async () => ({ observation: [{ role: 'user', content: '' }], info: {} }),
            step: async () => {
              steps++;
              // Sample 0 stays short and is never compacted.
              const content = 'x'.repeat(sample === 0 ? 1 : 9);
              return { observation: [{ role: 'tool', content }], reward: sample % 2, terminated: steps === 6, truncated: false, info: {} };
            },
            close: () => {},
          },
          dialogue: {
            prompt: () => Int32Array.of(1, 2, 3, Number(group.slice(1)) + 4),
            delta: (messages, open) =>
              Int32Array.from([
                ...(open ? [47] : []),
                ...messages.flatMap((m) => (m.role === 'tool' ? [tool, ...Array(m.content.length).fill(31)] : [user])),
                5,
              ]),
            parse: () => ({ text: '', toolCalls: [], finish: false }),
            stopIds: [47],
          },
          limits: { maxTokens: 48, maxTokensPerTurn: 3, maxTurns: 6 },
          sampling: { seed: 1, temperature: recipe.temperature },
          compaction: { keepTurns: 1, shorten: (m) => ({ ...m, content: '' }) },
          signal: new AbortController().signal,
        },
      );
    };
    const trajectories = await Promise.all(['t0', 't1'].flatMap((group) => [0, 1, 2].map((sample) => play(sample, group))));
    await engine.dispose();
    for (const e of trajectories) {
      t.match(e, { stopReason: 'stop', turns: 6 });
      if (e.sample === 0) t.notOk(e.forks);
      else t.ok(e.forks!.length >= 1, `${e.forks}`);
      // What a later sequence carries over stands in the one before it as the very same tokens, where it was trained.
      const starts = [0, ...(e.forks ?? []), e.ids.length];
      for (let s = 1; s < starts.length - 1; s++) {
        const carried = e.ids.slice(starts[s], e.mask.indexOf(1, starts[s]));
        t.same([...carried.slice(0, 4)], [...e.ids.slice(0, 4)], 'the prompt');
        t.equal(carried.filter((id, k) => id === tool && carried[k + 1] === 31).length, 1, 'one answer of a tool is whole');
        t.ok(starts[s + 1]! - starts[s]! <= 48, 'no sequence outgrows the context');
      }
    }
    const batch = pack(trajectories.toReversed());
    const sequences = trajectories.reduce((n, e) => n + 1 + (e.forks?.length ?? 0), 0);
    t.equal(batch.cuSeqlens.length - 1, sequences);
    t.ok(sequences > 9);
    t.equal(
      batch.mask.reduce((a, b) => a + b, 0),
      trajectories.reduce((n, e) => n + e.mask.reduce((a, b) => a + b, 0), 0),
    );
    const produced = trajectories.flatMap((e) => [...e.mask]).filter((m) => m === 1).length;
    t.ok(produced <= 6 * 6 * 3, 'as many as the turns can have, and no more');
    const again = await reference(store, batch);
    for (let k = 0; k < batch.ids.length; k++) if (batch.mask[k] === 1 && again[k] !== batch.behaviour[k]) t.fail(`token ${k}`);
    const stored = trajectories.map((e) => fromRecord(JSON.parse(JSON.stringify(toRecord(e, { step: 1, phase: 'train', text: '' })))));
    t.same(pack(stored), batch, 'a stored one is packed alike');
    const tr = trainer(store);
    const { metrics, advantages } = await tr.update(batch, { lr: 1e-2 });
    await tr.stop();
    t.equal(advantages.length, 6, 'of episodes');
    t.ok(Math.abs(advantages[0]! + 0.5773) < 1e-3 && Math.abs(advantages[1]! - 1.1547) < 1e-3, 'of three, one has the reward');
    t.equal(metrics['critic/score/mean'], (2 * 6) / 6, 'rewards of episodes, not of sequences');
    t.equal(metrics['training/rollout_probs_diff_max'], 0);
    t.throws(() => pack([{ ...trajectories[1]!, forks: [0] }]), { code: 'SINKFLEX_TRAJECTORY_EVIDENCE' });
  },
);
