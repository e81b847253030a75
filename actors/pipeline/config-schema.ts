// Every setting of a training run: its key (verl's name without `actor_rollout_ref.`), what is allowed, its default, its unit and what it
// means. docs/configuration.md is generated from this file.
import { resolve } from 'node:path';
import { z } from 'zod';
import { weightDtypes } from '../../kernels/index.ts';
import { isArchiveUrl } from '../archive/index.ts';
import { parseLatency } from '../environment/index.ts';
import { RewardComponentSettings } from '../reward/index.ts';
import { samplerNames } from '../tasks/index.ts';
import { rejections } from '../trainer/index.ts';
import { actorSettings } from './config-actor.ts';
import { clusterSettings } from './config-cluster.ts';
import { count, devices, fraction, key, learningRate, positive, section } from './config-key.ts';
import { rolloutSettings } from './config-rollout.ts';

/** Episodes of one training step, all of which are held in memory. */
export const MAX_STEP_SAMPLES = 65536;

const taskFiles = z
  .union([z.string().min(1), z.array(z.string().min(1)).min(1)])
  .transform((files) => (typeof files === 'string' ? [files] : files).map((f) => resolve(f)))
  .nullable();

const latency = z.string().superRefine((text, context) => {
  try {
    parseLatency(text);
  } catch (error) {
    context.addIssue({ code: 'custom', message: (error as Error).message });
  }
});

export const TrainingConfig = z.strictObject({
  mode: key(
    z.enum(['sync', 'async']),
    'async',
    '',
    'sync alternates rollout and update and is reproducible bit for bit; async overlaps them with bounded staleness',
  ),
  seed: key(
    z
      .int()
      .min(0)
      .max(2 ** 31 - 1),
    1,
    '',
    'seed of the whole run: weights, demonstrations, tasks, sampling',
  ),
  output: key(z.string().min(1).nullable(), null, 'path', 'run folder; null makes runs/<utc>-<preset>'),
  resume: key(z.string().min(1).nullable(), null, 'path', 'run folder to continue from its last checkpoint, or one checkpoint folder'),
  cluster: clusterSettings,
  env: section({
    name: key(z.string().min(1), 'desk', '', 'environment, by its registered name'),
    module: key(
      z.string().min(1).nullable(),
      null,
      'path',
      'module that registers environments (and advantage estimators and policy losses) when it is imported: a path relative to the settings file or the working directory, or a package',
    ),
    level: key(z.int().min(1).max(9), 3, '', 'difficulty of the generated tasks; desk has 1 to 4'),
    num_actors: key(count(), 1, 'actors', 'environment actors; episodes are dealt out over them'),
    max_turns: key(count(), 24, 'turns', 'assistant turns an episode may take before it is truncated'),
    latency: key(
      latency,
      'none',
      '',
      'injected time of an environment step: none, fixed(50ms), uniform(10ms,90ms) or lognormal(mean=200ms,sigma=1.0)',
    ),
    options: key(z.record(z.string(), z.unknown()), {}, '', 'further options passed to the environment as they are'),
  }),
  data: section({
    train_files: key(
      taskFiles,
      null,
      'paths',
      'files with the training tasks, one or a list: JSON lines, Parquet, or a module (docs/tasks.md); null draws them from the environment',
    ),
    val_files: key(taskFiles, null, 'paths', 'files with the held-out tasks; null takes those of the environment'),
    shuffle: key(z.boolean(), true, '', 'the uniform sampler draws rows in a new order each epoch; false keeps that of the files'),
    sampler: section({
      class_name: key(
        z.enum(samplerNames as [string, ...string[]]),
        'uniform',
        '',
        'uniform, curriculum (levels open one after the other) or pass_rate (tasks that are sometimes solved)',
      ),
      levels: key(z.array(z.int().min(1).max(9)), [], 'levels', 'levels that generated tasks are drawn from; none takes env.level alone'),
      promote_at: key(fraction(), 0.8, '', 'curriculum: pass rate of a level at which the next one opens'),
      min_groups: key(count(), 16, 'groups', 'curriculum: results that this pass rate must rest on, older ones counting less'),
      review: key(fraction(), 0.2, '', 'curriculum: share of tasks from earlier levels'),
      band: key(z.tuple([fraction(), fraction()]), [0.1, 0.9], '', 'pass_rate: tasks whose pass rate is known and outside are passed over'),
      explore: key(fraction(), 0.1, '', 'pass_rate: share of tasks that are drawn whatever is known of them'),
      decay: key(z.number().min(0).max(1), 0.95, '', 'what a result still counts in a pass rate when the next one comes'),
    }),
    train_batch_size: key(count(), 32, 'prompts', `prompts (groups) of one training step; times rollout.n at most ${MAX_STEP_SAMPLES}`),
    val_size: key(count(), 400, 'tasks', 'held-out tasks of the first and the last validation'),
    val_interim_size: key(
      count(),
      100,
      'tasks',
      'held-out tasks (the first of the same set) of the validations in between; at most val_size, and a smaller val_size alone lowers it',
    ),
    apply_chat_template_kwargs: key(
      z.record(z.string(), z.unknown()),
      {},
      '',
      "variables of the model's chat template, such as enable_thinking=false or reasoning_effort=low",
    ),
  }),
  model: section({
    path: key(
      z.string().min(1).nullable(),
      null,
      'path',
      'Hugging Face folder, or org/name of the hub, to start from; null starts from random weights of the shape below',
    ),
    hidden_size: key(count(), 96, '', 'width of the residual stream'),
    intermediate_size: key(count(), 96, '', 'inner width of one expert'),
    num_hidden_layers: key(count().max(1024), 3, 'layers', 'layers; sliding-window and full attention alternate'),
    first_layer_type: key(
      z.enum(['full_attention', 'sliding_attention']),
      'full_attention',
      '',
      'kind of layer 0; a shallow model that starts with full attention also ends with it, so that the last layer sees everything',
    ),
    num_attention_heads: key(count(), 4, 'heads', 'query heads'),
    num_key_value_heads: key(count(), 2, 'heads', 'key and value heads; divides num_attention_heads'),
    head_dim: key(count(), 32, '', 'width of one head; even'),
    num_local_experts: key(count(), 4, 'experts', 'experts of a layer'),
    num_experts_per_tok: key(count(), 2, 'experts', 'experts that a token is routed to'),
    sliding_window: key(count(), 64, 'tokens', 'window of the sliding layers (q - k < window)'),
    rope_theta: key(positive(), 10000, '', 'base of the rotary frequencies'),
    rms_norm_eps: key(positive(), 1e-5, '', 'epsilon of RMSNorm'),
    swiglu_limit: key(positive(), 7, '', 'clamp of the gated activation'),
    initializer_range: key(
      positive(),
      0.08,
      '',
      'standard deviation of fresh weights; about 1/sqrt(hidden_size), the 0.02 of wide models starves narrow ones',
    ),
    tie_word_embeddings: key(z.boolean(), false, '', 'share the input and the output embedding'),
    lora_rank: key(
      z.int().min(0).max(4096),
      0,
      '',
      'rank of LoRA adapters that are learnt over the frozen model of model.path, and published alone; 0 learns all weights',
    ),
    lora_alpha: key(positive(), 16, '', 'the adapters are scaled by lora_alpha / lora_rank'),
    target_modules: key(
      z.union([z.string(), z.array(z.string())]),
      'all-linear',
      '',
      'layers with adapters: all-linear, or some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj; of experts: experts, or mlp.experts.gate_up_proj, mlp.experts.down_proj',
    ),
    dtype: key(
      z.enum(weightDtypes),
      'float32',
      '',
      'what matrices are stored in; bfloat16 halves their memory (with adapters, of the frozen model below), and optimiser steps round stochastically; mxfp4 leaves experts that are stored so (gpt_oss) as they are, frozen below adapters, at 4.25 bits a weight, other matrices in bfloat16; everything is computed in float32',
    ),
    enable_gradient_checkpointing: key(
      z.boolean(),
      false,
      '',
      'activation checkpointing: keep the input of each layer only and run the layer again in the backward; less memory, about a third more work, the same bits',
    ),
  }),
  rollout: rolloutSettings,
  actor: actorSettings,
  reference: section({
    threads: key(count().nullable(), null, 'threads', 'engine threads of the reference actor; null fits the machine'),
    device: devices('what the reference computes on'),
  }),
  algorithm: section({
    adv_estimator: key(
      z.string(),
      'grpo',
      '',
      'advantage estimator: grpo, rloo, reinforce_plus_plus, reinforce_plus_plus_baseline, or one that env.module registers (registerAdvantageEstimator)',
    ),
    norm_adv_by_std_in_grpo: key(z.boolean(), true, '', 'divide by the standard deviation of the group (false: Dr. GRPO)'),
    std: key(z.enum(['sample', 'population']), 'sample', '', 'standard deviation over n-1 or over n'),
    use_kl_in_reward: key(z.boolean(), false, '', 'count the KL to the reference as a cost in the reward, beside or instead of the loss'),
    kl_penalty: key(
      z.enum(['kl', 'k1', 'mse', 'k2', 'low_var_kl', 'k3']),
      'kl',
      '',
      'estimator of that KL, summed over the produced tokens of an episode (kl = k1, mse = k2, low_var_kl = k3)',
    ),
    kl_ctrl: section({ kl_coef: key(z.number().min(0), 0.001, '', 'weight of the KL in the reward') }),
    mask_truncated: key(
      z.boolean(),
      false,
      '',
      'leave tokens of episodes that a length or turn limit cut off out of the loss; their rewards still count in the group',
    ),
    filter_groups: section({
      enable: key(z.boolean(), false, '', 'drop groups whose rewards are all equal and draw others (DAPO)'),
      max_num_gen_batches: key(count(), 4, 'batches', 'batches that may be drawn to fill one before it is trained short'),
    }),
    rollout_correction: section({
      rollout_is: key(
        z.enum(['token', 'sequence', 'decoupled', 'icepop']).nullable(),
        'token',
        '',
        'correction for tokens of an older policy: truncated importance weight by token or by sequence, decoupled PPO, IcePop, or none (null)',
      ),
      rollout_is_threshold: key(positive(), 2, '', 'largest importance weight'),
      rollout_rs: key(
        z.enum(rejections).nullable(),
        null,
        '',
        'leave out tokens (token_*) or whole episodes (seq_*) whose sampling policy is too far from the one at the start of the step, by k1, k2 or k3',
      ),
      rollout_rs_threshold: key(
        positive(),
        2,
        '',
        'bound of rollout_rs: of the ratio, within [1/C, C] with C above 1, for k1; of the divergence for k2 and k3',
      ),
      bypass_mode: key(
        z.boolean(),
        false,
        '',
        'take the ratio against the sampling policy and save the pass that recomputes it; needs rollout_is null',
      ),
    }),
  }),
  reward: section({
    path: key(
      z.string().min(1).nullable(),
      null,
      'path',
      "file with a reward of your own, `export default (episode) => number`, in place of the environment's score; relative to the working directory",
    ),
    components: key(
      z.array(RewardComponentSettings),
      [],
      '',
      "components of the reward with weights and gates (docs/rewards.md); none takes the environment's own score",
    ),
    overlong_buffer: section({
      enable: key(
        z.boolean(),
        false,
        '',
        'soft punishment of long episodes (DAPO): the reward falls over the last tokens below rollout.max_model_len',
      ),
      len: key(count(), 64, 'tokens', 'tokens below rollout.max_model_len over which the punishment grows'),
      penalty_factor: key(positive(), 1, '', 'punishment at rollout.max_model_len'),
    }),
  }),
  trajectory: section({
    store: key(
      z
        .url({ protocol: /^rediss?$/ })
        .refine((url) => new URL(url).password === '', 'a password stands in SINKFLEX_REDIS_PASSWORD, not in settings')
        .nullable(),
      null,
      'URL',
      'where trajectories are recorded: a Redis server such as redis://host:6379/0, for programs on many hosts (named there after the run folder unless ?run=name says otherwise); null is a file in the run folder',
    ),
    archive: key(
      z.string().refine(isArchiveUrl, 'write s3://bucket/prefix').nullable(),
      null,
      'URL',
      'place in an S3-compatible store, s3://bucket/prefix, to which the run folder with its trajectories and checkpoints is copied with every checkpoint and at the end (docs/archive.md); null makes no copy',
    ),
  }),
  async_training: section({
    staleness_threshold: key(
      z.int().min(0).max(64),
      1,
      'versions',
      'eta: how many versions a batch may lag; 0 equals sync token for token',
    ),
  }),
  sft: section({
    total_steps: key(z.int().min(0), 480, 'steps', 'steps of the supervised warm start; 0 skips it'),
    train_batch_size: key(count(), 48, 'episodes', 'demonstrations of one step'),
    lr: key(learningRate(), 2e-3, '', 'learning rate after warm-up; falls linearly to a tenth'),
    lr_warmup_steps: key(z.int().min(0), 30, 'steps', 'linear warm-up'),
    weight_decay: key(z.number().min(0), 0.01, '', 'decoupled weight decay'),
    demonstrations: key(count(), 4000, 'episodes', 'episodes of the erring expert'),
    noise: key(z.number().min(0).max(10), 1, '', "how often the expert errs, in multiples of the domain's own rate; 0 is a perfect expert"),
    time_budget_s: key(
      positive().nullable(),
      null,
      's',
      'ends the warm start early; null sets no limit (a limit makes runs irreproducible)',
    ),
  }),
  trainer: section({
    total_training_steps: key(z.int().min(0), 200, 'steps', 'GRPO steps of the run in all'),
    time_budget_s: key(
      positive().nullable(),
      null,
      's',
      'ends GRPO early, validation time apart; null sets no limit (a limit makes runs irreproducible)',
    ),
    placement: key(
      z.enum(['colocated', 'separate']).nullable(),
      null,
      '',
      'colocated: rollouts and trainer share cores and hosts, by turns in sync mode; separate: each has half of the cores, on a cluster with other hosts rollouts run on those alone; null: colocated on one host, separate on a cluster',
    ),
    test_freq: key(z.int().min(0), 25, 'steps', 'validation every so many steps; 0 only before and after'),
    val_before_train: key(z.boolean(), true, '', 'validate before the first step'),
    save_freq: key(z.int().min(0), 25, 'steps', 'checkpoint every so many steps; 0 only at the end'),
    max_ckpt_to_keep: key(count(), 2, 'checkpoints', 'checkpoints kept'),
    max_trajectories_per_step: key(
      z.int().min(0).nullable(),
      16,
      'trajectories',
      'trajectories of a step written to trajectories/; null writes all',
    ),
    unresponsive_timeout_s: key(
      positive().nullable(),
      60,
      's',
      'an actor whose process is stopped, or whose event loop stands still, for so long is ended and replaced as if it had died; null waits for it',
    ),
    logger: key(
      z.array(z.enum(['console', 'tensorboard', 'csv'])),
      ['console', 'tensorboard'],
      '',
      'where metrics go beside metrics.jsonl: console (progress on the terminal; without it only warnings), tensorboard (event files), csv (metrics.csv, a column a name)',
    ),
    rolling_window: key(count(), 10, 'steps', 'window of the rolling training score and trajectory reward'),
  }),
  debug: section({
    rollout_only: key(
      z.boolean(),
      false,
      '',
      'sample and store every rollout of total_training_steps batches; nothing is trained or validated',
    ),
    train_only: key(
      z.string().min(1).nullable(),
      null,
      'path',
      'train on the rollouts that this run stored, from its earliest checkpoint (or from the one that is named); nothing is sampled or validated',
    ),
  }),
  val: section({
    n: key(count(), 1, 'samples', 'samples of a held-out task (mean@n)'),
    temperature: key(z.number().min(0), 1, '', 'sampling temperature of validation; 0 is greedy'),
  }),
});
export type TrainingConfig = z.output<typeof TrainingConfig>;
