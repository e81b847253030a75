/**
 * The trainer: one engine with its optimiser. `sft` takes a supervised step, `update` an update of the policy from packed trajectories;
 * each optimiser step publishes the next version in the weight store. It sees token ids, masks, log-probabilities and rewards, never text.
 */
import { rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { deviceChoice, Engine, type OptimizerStep, type Shard, WeightStore } from '../../kernels/index.ts';
import { type CollectiveGroup, defineActor } from '../../runtime/index.ts';
import { ActorsError } from '../errors.ts';
import {
  microBatches,
  miniBatches,
  type PackedTrajectories,
  type SequenceRange,
  selectSequences,
  sliceBatch,
  sliceExperts,
  tokenSpan,
} from '../trajectory/index.ts';
import { advantageEstimator, groupStatistics } from './advantages.ts';
import { responseTokenCounts, sequenceCoefficients } from './aggregation.ts';
import { type CheckpointState, modelFolder, readCheckpoint, writeCheckpoint } from './checkpoint.ts';
import { Episodes } from './episodes.ts';
import { type ObjectiveOptions, ObjectiveSums, objective } from './objective.ts';
import { Peers } from './peers.ts';
import { aggregationOf, objectiveOptions, type Recipe, refuseRouterLoss } from './recipe.ts';
import { maskTruncated, refuseInvalidRewards, shapeRewards } from './shaping.ts';
import { crossEntropy, type DemonstrationBatch } from './supervised.ts';
import type { SftOptions, TrainerOptions, UpdateResult } from './trainer-types.ts';
import { type Metrics, mismatchMetrics, objectiveMetrics, spread, stalenessMetrics } from './update-metrics.ts';

export class Trainer {
  readonly #store: WeightStore;
  readonly #engine: Engine;
  readonly #recipe: Recipe;
  readonly #objective: ObjectiveOptions;
  readonly #shard: Shard | undefined;
  #peers: Peers | undefined;
  #lineage: number;
  #version: number;
  #fenced: boolean;

  constructor(o: TrainerOptions) {
    this.#recipe = o.recipe;
    this.#fenced = o.fenced ?? false;
    this.#objective = objectiveOptions(o.recipe);
    this.#shard = o.shard;
    this.#store = WeightStore.open(o.store);
    refuseRouterLoss(o.recipe.routerAuxLossCoefficient ?? 0, this.#store.config, 'actor.router_aux_loss_coef');
    // The trainer generates nothing: the smallest cache.
    const { moments = 'float32', seed = 0 } = o.recipe.optimizer;
    const optimizer = { moments, seed, ...(o.shard ? { shard: o.shard } : {}) };
    const device = deviceChoice(o.device ?? 'cpu');
    this.#engine = new Engine({ store: this.#store, ...device, threads: o.threads, maxSequences: 1, maxSequenceTokens: 64, optimizer });
    const current = this.#store.current();
    this.#lineage = current?.lineage ?? 0;
    this.#version = current?.version ?? 0;
  }

  /** One supervised step: cross-entropy, mean over the masked tokens. */
  async sft(batch: DemonstrationBatch, o: SftOptions): Promise<{ loss: number; gradNorm: number; tokens: number; version: number }> {
    this.#checkFence();
    return this.#together(() => this.#sft(batch, o));
  }

  async #sft(batch: DemonstrationBatch, o: SftOptions): Promise<{ loss: number; gradNorm: number; tokens: number; version: number }> {
    this.#engine.zeroGradients();
    const { loss: own, tokens } = await crossEntropy(this.#engine, batch, {
      within: this.#part(batch.cuSeqlens),
      microBatchTokens: this.#recipe.microBatchTokens,
      microBatchSequences: this.#recipe.microBatchSequences ?? null,
      checkpointing: this.#recipe.gradientCheckpointing ?? false,
      routerAuxLossCoefficient: this.#recipe.routerAuxLossCoefficient ?? 0,
      learn: true,
    });
    const [loss] = this.#peers ? await this.#peers.addNumbers([own]) : [own];
    const gradNorm = await this.#step(o.lr, { ...this.#recipe.optimizer, weightDecay: o.weightDecay, gradClip: o.gradClip });
    return { loss: loss!, gradNorm, tokens, version: this.#version };
  }

  /** One update from a batch: `epochs` passes of mini-batches. `reference`: log pi_ref of every token, where the KL has a weight. */
  async update(given: PackedTrajectories, o: { lr: number }, reference?: Float32Array): Promise<UpdateResult> {
    this.#checkFence();
    return this.#together(() => this.#update(given, o, reference));
  }

  async #update(given: PackedTrajectories, o: { lr: number }, reference?: Float32Array): Promise<UpdateResult> {
    const r = this.#recipe;
    const started = performance.now();
    const batch = r.shaping.maskTruncated ? maskTruncated(given) : given;
    refuseInvalidRewards(batch);
    const klWeight = Math.max(r.kl.coefficient, r.shaping.kl?.coefficient ?? 0);
    // A batch of which the filter left nothing has nothing to be scored either.
    if (klWeight > 0 && !reference && batch.ids.length > 0) {
      throw new ActorsError(
        'SINKFLEX_LOSS_OPTION',
        `the KL to the reference has the weight ${klWeight} (actor.kl_loss_coef or algorithm.kl_ctrl.kl_coef) and needs the reference's log-probabilities, but none came with the batch.`,
      );
    }
    const scored = !r.shaping.kl ? undefined : r.oldIsBehaviour ? batch.behaviour : await this.#score(batch);
    const shaped = shapeRewards(batch, r.shaping, scored, reference);
    const counts = responseTokenCounts(batch);
    const episodes = new Episodes(batch);
    const responseTokens = episodes.sums(counts);
    const scores = episodes.once(batch.rewards);
    const rewards = episodes.shaped(batch.rewards, shaped.rewards);
    const input = { rewards, groupOf: episodes.once(batch.groupOf), responseTokens };
    const ofEpisodes = advantageEstimator(r.advantage.estimator)(input, r.advantage);
    const groups = groupStatistics({ ...input, rewards: scores });
    const metrics: Metrics = {
      ...spread('critic/score', scores),
      ...spread('critic/rewards', rewards),
      ...spread('critic/advantages', ofEpisodes, responseTokens),
      ...spread('critic/returns', ofEpisodes, responseTokens),
      frac_reward_zero_std: groups.groups === 0 ? 0 : groups.zeroStd / groups.groups,
      reward_std: groups.rewardStd,
      ...shaped.metrics,
      ...stalenessMetrics(batch, this.#version),
    };
    const steps: SequenceRange[] = [];
    for (let e = 0; e < r.epochs; e++) steps.push(...miniBatches(batch, r.miniBatchPrompts ?? Number.MAX_SAFE_INTEGER));
    if (steps.length === 0) return { metrics, advantages: ofEpisodes, lineage: this.#lineage, version: this.#version };
    const auxCoefficient = r.routerAuxLossCoefficient ?? 0;
    const advantages = episodes.spread(ofEpisodes);
    // A sequence of advantage 0 without KL, entropy and router loss has the gradient 0 exactly: neither pass is run for it. It still counts in every denominator.
    const sparse = r.kl.coefficient === 0 && !r.shaping.kl && r.entropyCoefficient === 0 && auxCoefficient === 0;
    const kept: number[] = [];
    for (let i = 0; i < advantages.length; i++) if (!sparse || advantages[i] !== 0) kept.push(i);
    const keptSet = new Set(kept);
    const p = selectSequences(batch, (i) => keptSet.has(i));
    // One optimiser step: the pass that trains is the pass at the start of the step, and the ratio is 1.
    const onPolicy = steps.length === 1 && !r.oldIsBehaviour;
    const old = r.oldIsBehaviour ? p.behaviour : onPolicy ? new Float32Array(p.ids.length) : (scored ?? (await this.#score(p)));
    const recomputed = performance.now();
    let sums = new ObjectiveSums();
    let [gradNorm, auxLoss] = [0, 0];
    for (const step of steps) {
      const coefficients = sequenceCoefficients(aggregationOf(r), counts, batch.groupOf, step, r.loss.horizon);
      const within = { from: lowerBound(kept, step.from), to: lowerBound(kept, step.to) };
      const stepTokens = p.cuSeqlens[within.to]! - p.cuSeqlens[within.from]!;
      this.#engine.zeroGradients();
      const own = this.#part(p.cuSeqlens, within);
      for (const range of microBatches(p.cuSeqlens, r.microBatchTokens, own, r.microBatchSequences ?? undefined)) {
        const { start, end } = tokenSpan(p.cuSeqlens, range);
        const micro = sliceBatch(p.ids, p.cuSeqlens, range);
        const mask = p.mask.subarray(start, end);
        const { logprobs, entropy, routerAuxLoss } = await this.#engine.forward(micro, {
          temperature: r.temperature,
          keep: true,
          checkpointing: r.gradientCheckpointing ?? false,
          mask,
          ...this.#replay(p, start, end),
        });
        if (onPolicy) old.set(logprobs, start);
        const sequences = kept.slice(range.from, range.to);
        const gradients = objective(
          {
            cuSeqlens: micro.cuSeqlens,
            mask,
            l: logprobs,
            entropy,
            o: onPolicy ? undefined : old.subarray(start, end),
            b: p.behaviour.subarray(start, end),
            f: reference?.subarray(start, end),
            advantages: Float64Array.from(sequences, (i) => advantages[i]!),
            coefficients: Float64Array.from(sequences, (i) => coefficients[i]!),
          },
          this.#objective,
          sums,
        );
        const share = (end - start) / stepTokens;
        auxLoss += share * routerAuxLoss;
        await this.#engine.backward({
          dLogprobs: gradients.dLogprobs,
          ...(gradients.dEntropy ? { dEntropy: gradients.dEntropy } : {}),
          dRouterAuxLoss: share * auxCoefficient,
        });
      }
      gradNorm += await this.#step(o.lr, r.optimizer);
    }
    if (this.#peers) {
      sums = await this.#peers.addSums(sums);
      [auxLoss] = (await this.#peers.addNumbers([auxLoss])) as [number];
      // Each has those of its own part, and 0 elsewhere.
      if (onPolicy) await this.#peers.addUp(old);
    }
    const routed = this.#store.config.num_local_experts > 0 ? { 'actor/router_aux_loss': auxLoss / steps.length } : {};
    Object.assign(metrics, objectiveMetrics(sums, steps.length, r), mismatchMetrics(p, old), routed, {
      'actor/grad_norm': gradNorm / steps.length,
      'actor/lr': o.lr,
      'actor/trained_tokens': sums.tokens,
      'timing_s/old_log_prob': (recomputed - started) / 1000,
      'timing_s/update_actor': (performance.now() - started) / 1000,
    });
    return { metrics, advantages: ofEpisodes, lineage: this.#lineage, version: this.#version };
  }

  /**
   * Writes a checkpoint folder of the weights and moments as they are when it is called, whole or not at all; updates may go on meanwhile.
   * `files` go beside the model. `shards`: what `saveShard` of all trainers wrote, where there are several; they are taken away.
   */
  async save(
    dir: string,
    state: Omit<CheckpointState, 'format' | 'lineage' | 'version'>,
    files: Record<string, string> = {},
    shards: readonly string[] = [],
  ): Promise<CheckpointState> {
    this.#checkFence();
    const full: CheckpointState = { format: 1, lineage: this.#lineage, version: this.#version, ...state };
    await writeCheckpoint(dir, full, files, async (temporary) => {
      // Both begin in this turn: the engine works in the order of its calls, and the slot is pinned.
      await Promise.all([
        this.#saveOptimizer(join(temporary, 'optimizer.safetensors'), shards),
        this.#store.saveFolderAsync(modelFolder(temporary)),
      ]);
    });
    return full;
  }

  async #saveOptimizer(path: string, shards: readonly string[]): Promise<void> {
    if (shards.length === 0) return this.#engine.saveOptimizer(path);
    await this.#engine.joinOptimizer(shards, path);
    for (const shard of shards) rmSync(shard, { force: true });
  }

  /** Writes this trainer's moments beside the place of a checkpoint, and answers where. */
  async saveShard(checkpoint: string): Promise<string> {
    this.#checkFence();
    const path = join(dirname(checkpoint), `.${basename(checkpoint)}.shard-${this.#shard?.rank ?? 0}.tmp-${process.pid}`);
    await this.#engine.saveOptimizer(path);
    return path;
  }

  /** Meets the other trainers of the run. A member of an earlier group leaves it. */
  async join(group: CollectiveGroup): Promise<void> {
    this.#peers?.leave();
    this.#peers = undefined;
    if (this.#shard) this.#peers = await Peers.join(group, this.#shard);
  }

  /** Goes back to a checkpoint: its weights are published as `lineage`, and what other lineages had under way is void. */
  async rewind(dir: string, lineage: number): Promise<CheckpointState> {
    const state = readCheckpoint(dir);
    const optimizer = join(dir, 'optimizer.safetensors');
    const inSlots = this.#store.moments !== undefined;
    const as = { lineage, version: state.version };
    if (this.#publishes) await this.#store.loadFolderAsync(modelFolder(dir), { as, ...(inSlots ? { optimizer } : {}) });
    if (!inSlots) await this.#engine.loadOptimizer(optimizer);
    this.#engine.zeroGradients();
    this.#lineage = lineage;
    this.#version = state.version;
    this.#fenced = false;
    return state;
  }

  /**
   * Goes on where the trainer before was lost, with what its last step left in the slots of the store. False where they hold no moments, or where
   * another version than this one is the newest: then part of an update is done, and only a checkpoint is whole.
   */
  resume(at: { lineage: number; version: number }): boolean {
    const current = this.#store.current();
    if (this.#store.moments === undefined || current?.lineage !== at.lineage || current.version !== at.version) return false;
    this.#engine.zeroGradients();
    this.#lineage = at.lineage;
    this.#version = at.version;
    this.#fenced = false;
    return true;
  }

  /** Takes the store's weights as a fresh start: no moments, its lineage and version. */
  begin(): void {
    this.#engine.forgetMoments();
    this.#engine.zeroGradients();
    this.#fenced = false;
    const current = this.#store.current();
    this.#lineage = current?.lineage ?? 0;
    this.#version = current?.version ?? 0;
  }

  /** Forgets the moments: the next optimiser step is a first one (between the warm start and GRPO). */
  resetOptimizer(): void {
    this.#checkFence();
    this.#engine.forgetMoments();
  }

  status(): { lineage: number; version: number } {
    return { lineage: this.#lineage, version: this.#version };
  }

  async stop(): Promise<void> {
    await this.#engine.dispose();
    this.#store.close();
  }

  #checkFence(): void {
    if (this.#fenced) {
      throw new ActorsError(
        'SINKFLEX_TRAINER_LOST',
        'this trainer is a new incarnation without weights and moments of the run: begin or rewind comes first.',
      );
    }
  }

  /** One of several trainers writes the weights. */
  get #publishes(): boolean {
    return (this.#shard?.rank ?? 0) === 0;
  }

  /** The sequences of a range that this trainer passes: all, or its part. */
  #part(cuSeqlens: Int32Array, within: SequenceRange = { from: 0, to: cuSeqlens.length - 1 }): SequenceRange {
    return this.#peers?.part(cuSeqlens, within) ?? within;
  }

  /** What fails here ends what the others do with it, too. */
  async #together<T>(work: () => Promise<T>): Promise<T> {
    if (this.#shard && !this.#peers) throw new ActorsError('SINKFLEX_TRAINER_LOST', 'this trainer is one of several: join comes first.');
    try {
      return await work();
    } catch (e) {
      this.#peers?.leave();
      throw e;
    }
  }

  /** log pi of the weights as they are now, for every produced token. */
  async #score(p: PackedTrajectories): Promise<Float32Array> {
    const scores = new Float32Array(p.ids.length);
    for (const range of microBatches(p.cuSeqlens, this.#recipe.microBatchTokens, this.#part(p.cuSeqlens))) {
      const { start, end } = tokenSpan(p.cuSeqlens, range);
      const { logprobs } = await this.#engine.forward(sliceBatch(p.ids, p.cuSeqlens, range), {
        temperature: this.#recipe.temperature,
        mask: p.mask.subarray(start, end),
        ...this.#replay(p, start, end),
      });
      scores.set(logprobs, start);
    }
    await this.#peers?.addUp(scores);
    return scores;
  }

  /** What a pass over these tokens is told of their experts. */
  #replay(p: PackedTrajectories, start: number, end: number): { experts?: Uint8Array | Uint16Array } {
    const experts = this.#recipe.routerReplay ? sliceExperts(p, start, end) : undefined;
    return experts ? { experts } : {};
  }

  async #step(lr: number, o: Recipe['optimizer']): Promise<number> {
    const version = this.#version + 1;
    const step: OptimizerStep = {
      lr,
      beta1: o.betas[0],
      beta2: o.betas[1],
      eps: o.eps,
      weightDecay: o.weightDecay,
      maxGradNorm: o.gradClip,
      lineage: this.#lineage,
      version,
    };
    const { gradNorm } = await (this.#peers ? this.#peers.step(this.#engine, this.#store, step) : this.#engine.optimizerStep(step));
    this.#version = version;
    return gradNorm;
  }
}

/** Index of the first element that is not below `value`. */
function lowerBound(sorted: readonly number[], value: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle]! < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A checkpoint is written while the next update is under way. */
export const TrainerActor = defineActor(import.meta.url, 'TrainerActor', Trainer, {
  concurrencyGroups: { checkpoints: { maxConcurrency: 1, methods: ['save'] } },
});
