// Data-parallel trainers over one store: what they learn is what one learns within rounding, and the same bits for a fixed number of them;
// each keeps its shard of the moments, and a checkpoint does not tell how many wrote it.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { type Recipe, Trainer, type UpdateResult } from '../../actors/trainer/index.ts';
import type { PackedTrajectories } from '../../actors/trajectory/index.ts';
import { createCollective, shardRange, type WeightStore } from '../../kernels/index.ts';
import { newStore, recipe, sample, weightsOf } from './trainer-world.ts';

const dir = mkdtempSync(join(tmpdir(), 'sinkflex-dp-'));
t.teardown(() => rmSync(dir, { recursive: true }));
const state = { step: 1, cursor: 6, ledger: { sampled: 18, trained: 18, filtered: {}, aborted: {}, inFlight: 0 }, extra: {} };

class Team {
  readonly trainers: Trainer[];
  readonly #members: number;

  constructor(store: WeightStore, members: number, more: Partial<Recipe> = {}) {
    this.#members = members;
    this.trainers = Array.from(
      { length: members },
      (_, rank) =>
        new Trainer({
          store: store.address,
          threads: 1,
          recipe: { ...recipe, ...more },
          ...(members > 1 ? { shard: { rank, members } } : {}),
        }),
    );
  }

  async each<T>(call: (trainer: Trainer) => Promise<T>): Promise<T[]> {
    return Promise.all(this.trainers.map(call));
  }

  async join(): Promise<this> {
    const group = createCollective(this.#members);
    if (this.#members > 1) await this.each((trainer) => trainer.join(group));
    return this;
  }

  async update(batch: PackedTrajectories, reference?: Float32Array): Promise<UpdateResult> {
    return (await this.each((trainer) => trainer.update(batch, { lr: 1e-2 }, reference)))[0]!;
  }

  async save(place: string): Promise<void> {
    const shards = this.#members > 1 ? await this.each((trainer) => trainer.saveShard(place)) : [];
    await this.trainers[0]!.save(place, state, {}, shards);
  }

  async stop(): Promise<void> {
    await this.each((trainer) => trainer.stop());
  }
}

/** Norm of the difference over the norm. */
function distance(a: Float32Array, b: Float32Array): number {
  let [difference, norm] = [0, 0];
  for (let i = 0; i < a.length; i++) {
    difference += (a[i]! - b[i]!) ** 2;
    norm += b[i]! ** 2;
  }
  return Math.sqrt(difference / norm);
}

/** Four updates of several optimiser steps each, with a KL to a reference. */
async function learn(t: Parameters<typeof newStore>[0], members: number, more: Partial<Recipe> = {}) {
  const store = newStore(t);
  const batch = await sample(store);
  const reference = batch.behaviour.map((b) => b - 0.1);
  const team = await new Team(store, members, {
    miniBatchPrompts: 2,
    epochs: 2,
    kl: { coefficient: 0.1, estimator: 'k3' },
    ...more,
  }).join();
  const metrics = [];
  for (let i = 0; i < 4; i++) metrics.push((await team.update(batch, reference)).metrics);
  await team.stop();
  return { weights: weightsOf(store), metrics, version: store.current()!.version };
}

t.test('two and three trainers learn what one learns, and the same bits each time', async (t) => {
  const alone = await learn(t, 1);
  t.equal(alone.version, 24);
  for (const members of [2, 3]) {
    const together = await learn(t, members);
    t.equal(together.version, 24);
    const off = distance(together.weights, alone.weights);
    // Adam's quotient of small moments magnifies the rounding of sums: a step is some 1e-2 of a weight, its error 1e-5 of that.
    t.ok(off < 1e-4, `${members}: ${off}`);
    t.ok(distance(together.weights, (await learn(t, 1, { epochs: 1 })).weights) > 100 * off, 'and not what another recipe learns');
    for (const [i, m] of together.metrics.entries()) {
      for (const key of [
        'actor/pg_loss',
        'actor/kl_loss',
        'actor/grad_norm',
        'actor/ppo_kl',
        'actor/entropy',
        'actor/trained_tokens',
        'critic/advantages/max',
      ])
        t.ok(
          Math.abs(m[key]! - alone.metrics[i]![key]!) <= 1e-3 * (1e-2 + Math.abs(alone.metrics[i]![key]!)),
          `${key}: ${m[key]} ${alone.metrics[i]![key]}`,
        );
    }
    const again = await learn(t, members);
    t.ok(Buffer.from(again.weights.buffer).equals(Buffer.from(together.weights.buffer)), 'bit for bit');
  }
});

t.test('the first gradients agree to 1e-6, whatever the loss sees', async (t) => {
  for (const more of [
    {},
    { entropyCoefficient: 0.01 },
    { shaping: { ...recipe.shaping, kl: { coefficient: 0.5, estimator: 'k1' as const } } },
    { oldIsBehaviour: true, correction: { mode: null, threshold: 2 } },
  ]) {
    const norm = async (members: number) => {
      const store = newStore(t);
      const batch = await sample(store);
      const team = await new Team(store, members, more).join();
      const { metrics } = await team.update(
        batch,
        batch.behaviour.map((b) => b - 0.1),
      );
      await team.stop();
      return metrics;
    };
    const [one, two] = [await norm(1), await norm(2)];
    t.ok(Math.abs(two['actor/grad_norm']! / one['actor/grad_norm']! - 1) < 1e-6, JSON.stringify(more));
    t.equal(two['training/rollout_probs_diff_max'], one['training/rollout_probs_diff_max'], 'the scores are whole, bit for bit');
  }
});

t.test('a checkpoint of two trainers is one of one trainer, and goes on with any number', async (t) => {
  for (const optimizerMoments of [undefined, '8bit'] as const) {
    const more: Partial<Recipe> = optimizerMoments ? { optimizer: { ...recipe.optimizer, moments: optimizerMoments } } : {};
    const store = newStore(t);
    const batch = await sample(store);
    const team = await new Team(store, 2, more).join();
    await team.update(batch);
    const place = join(dir, `step-${optimizerMoments ?? 'float32'}`);
    await team.save(place);
    t.strictSame(
      readdirSync(dir).filter((name) => name.includes('.shard-')),
      [],
      'no part is left',
    );
    await team.update(batch);
    const straight = weightsOf(store);
    // The same two, back at the checkpoint.
    await team.each((trainer) => trainer.rewind(place, 1));
    await team.update(batch);
    t.ok(Buffer.from(weightsOf(store).buffer).equals(Buffer.from(straight.buffer)), 'the moments came back');
    // One trainer reads it and writes the same file.
    const single = new Team(store, 1, more);
    await single.each((trainer) => trainer.rewind(place, 2));
    await single.save(join(dir, 'again'));
    t.ok(readFileSync(join(dir, 'again', 'optimizer.safetensors')).equals(readFileSync(join(place, 'optimizer.safetensors'))));
    await single.update(batch);
    t.ok(distance(weightsOf(store), straight) < 1e-4);
    await single.stop();
    await team.stop();
  }
});

t.test('shards are neighbours that cover all, and one that fails ends the step of all', async (t) => {
  const store = newStore(t);
  for (const members of [2, 3, 7, 200]) {
    let at = store.layout.dataStart;
    for (let rank = 0; rank < members; rank++) {
      const { from, to } = shardRange(store.layout, { rank, members });
      if (to === 0) continue;
      t.ok(from >= at && from - at < 64, `${members}: ${rank} begins at ${from}, the one before ended at ${at}`);
      at = to;
    }
    t.equal(at, store.layout.totalBytes);
  }
  const batch = await sample(store);
  const team = await new Team(store, 2).join();
  const [first, second] = team.trainers as [Trainer, Trainer];
  // The second is given a batch that it cannot train: the first must not wait for it.
  const bad = { ...batch, rewards: batch.rewards.map(() => Number.NaN) };
  const outcomes = await Promise.allSettled([first.update(batch, { lr: 1e-2 }), second.update(bad, { lr: 1e-2 })]);
  t.match(outcomes, [
    { status: 'rejected', reason: { code: 'SINKFLEX_COLLECTIVE_BROKEN' } },
    { status: 'rejected', reason: { code: 'SINKFLEX_REWARD_INVALID' } },
  ]);
  t.equal(store.current()!.version, 0, 'nothing was published');
  await team.join();
  t.match(await team.update(batch), { version: 1 }, 'and together again they go on');
  await team.stop();
});
