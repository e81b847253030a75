/** From the settings of a run to what each actor is given: recipe, schedules, model shape. Pure. */
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { type ModelConfig, type MomentDtype, parseModelConfig } from '../../kernels/index.ts';
import type { RolloutOptions } from '../rollout/index.ts';
import { klEstimator, objectiveOptions, type Recipe, type Schedule } from '../trainer/index.ts';
import type { TrainingConfig } from './config.ts';

/** Whether the KL to the reference has a place in the loss or in the reward. */
export function usesReference(c: TrainingConfig): boolean {
  return c.actor.use_kl_loss || c.algorithm.use_kl_in_reward;
}

/** The device of the i-th actor of a kind. */
export const deviceOf = ({ device }: { device: readonly string[] }, i: number): string => device[i % device.length]!;

/** Whether any of its actors keeps its work on a GPU. */
export const usesDevice = ({ device }: { device: readonly string[] }): boolean => device.some((name) => name !== 'cpu');

/** What the optimiser keeps its moments in. */
export function momentsOf(c: TrainingConfig): MomentDtype {
  return c.actor.optim.optimizer === 'adamw_8bit' ? '8bit' : 'float32';
}

export function recipeOf(c: TrainingConfig): Recipe {
  const a = c.actor;
  const correction = c.algorithm.rollout_correction;
  const overlong = c.reward.overlong_buffer;
  const recipe: Recipe = {
    advantage: { estimator: c.algorithm.adv_estimator, normalizeByStd: c.algorithm.norm_adv_by_std_in_grpo, std: c.algorithm.std },
    loss: {
      mode: a.policy_loss.loss_mode,
      clipLow: a.clip_ratio_low ?? a.clip_ratio,
      clipHigh: a.clip_ratio_high ?? a.clip_ratio,
      dualClip: a.clip_ratio_c,
      aggregation: a.loss_agg_mode,
      horizon: c.rollout.max_model_len,
    },
    shaping: {
      overlong: overlong.enable ? { limit: c.rollout.max_model_len, buffer: overlong.len, factor: overlong.penalty_factor } : null,
      kl: c.algorithm.use_kl_in_reward
        ? { coefficient: c.algorithm.kl_ctrl.kl_coef, estimator: klEstimator(c.algorithm.kl_penalty) }
        : null,
      maskTruncated: c.algorithm.mask_truncated,
    },
    kl: { coefficient: a.use_kl_loss ? a.kl_loss_coef : 0, estimator: a.kl_loss_type },
    entropyCoefficient: a.entropy_coeff,
    routerAuxLossCoefficient: a.router_aux_loss_coef,
    correction: {
      mode: correction.rollout_is,
      threshold: correction.rollout_is_threshold,
      rejection: correction.rollout_rs === null ? null : { mode: correction.rollout_rs, threshold: correction.rollout_rs_threshold },
    },
    oldIsBehaviour: correction.bypass_mode,
    epochs: a.ppo_epochs,
    miniBatchPrompts: a.ppo_mini_batch_size,
    microBatchTokens: a.use_dynamic_bsz || a.ppo_micro_batch_size === null ? a.ppo_micro_batch_size_tokens : Number.MAX_SAFE_INTEGER,
    microBatchSequences: a.use_dynamic_bsz ? null : a.ppo_micro_batch_size,
    routerReplay: a.router_replay.mode === 'R3',
    gradientCheckpointing: c.model.enable_gradient_checkpointing,
    optimizer: {
      gradClip: a.grad_clip,
      weightDecay: a.optim.weight_decay,
      betas: [...a.optim.betas] as [number, number],
      eps: a.optim.eps,
      moments: momentsOf(c),
      seed: c.seed,
    },
    temperature: c.rollout.temperature,
  };
  objectiveOptions(recipe);
  return recipe;
}

export function policySchedule(c: TrainingConfig): Schedule {
  const o = c.actor.optim;
  return {
    lr: o.lr,
    warmupSteps: o.lr_warmup_steps,
    kind: o.lr_scheduler_type,
    minRatio: o.min_lr_ratio,
    totalSteps: c.trainer.total_training_steps,
  };
}

/** Warm-up, then linearly down to a tenth. */
export function warmStartSchedule(c: TrainingConfig): Schedule {
  return { lr: c.sft.lr, warmupSteps: c.sft.lr_warmup_steps, kind: 'linear', minRatio: 0.1, totalSteps: c.sft.total_steps };
}

type LayerType = TrainingConfig['model']['first_layer_type'];
const layerType = (first: LayerType, layer: number): LayerType =>
  (layer % 2 === 0) === (first === 'full_attention') ? 'full_attention' : 'sliding_attention';

/** config.json of a fresh model. The vocabulary is the tokenizer's. */
export function modelConfigOf(c: TrainingConfig, vocabulary: { size: number; eosTokenId?: number; padTokenId?: number }): ModelConfig {
  const m = c.model;
  return parseModelConfig({
    architectures: ['GptOssForCausalLM'],
    model_type: 'gpt_oss',
    vocab_size: vocabulary.size,
    hidden_size: m.hidden_size,
    intermediate_size: m.intermediate_size,
    num_hidden_layers: m.num_hidden_layers,
    num_attention_heads: m.num_attention_heads,
    num_key_value_heads: m.num_key_value_heads,
    head_dim: m.head_dim,
    num_local_experts: m.num_local_experts,
    num_experts_per_tok: m.num_experts_per_tok,
    sliding_window: m.sliding_window,
    layer_types: Array.from({ length: m.num_hidden_layers }, (_, i) => layerType(m.first_layer_type, i)),
    rms_norm_eps: m.rms_norm_eps,
    rope_theta: m.rope_theta,
    swiglu_limit: m.swiglu_limit,
    tie_word_embeddings: m.tie_word_embeddings,
    max_position_embeddings: c.rollout.max_model_len,
    attention_bias: true,
    attention_dropout: 0,
    hidden_act: 'silu',
    initializer_range: m.initializer_range,
    router_aux_loss_coef: 0,
    output_router_logits: false,
    use_cache: true,
    ...(vocabulary.eosTokenId === undefined ? {} : { eos_token_id: vocabulary.eosTokenId }),
    ...(vocabulary.padTokenId === undefined ? {} : { pad_token_id: vocabulary.padTokenId }),
  });
}

/** The server that generates, where our engine does not. */
export function rolloutServer({ rollout }: TrainingConfig): RolloutOptions['server'] {
  const { name, server } = rollout;
  if (name === 'sinkflex') return undefined;
  const { url, model, weights, timeout_s } = server;
  return {
    kind: name,
    url: url!,
    model,
    folder: resolve(weights ?? join(tmpdir(), `sinkflex-weights-${process.pid}`)),
    timeoutMs: timeout_s * 1000,
  };
}

/** An environment that takes this long is lost; its episode is redone. */
export const environmentTimeoutMs = 60_000;

/** Options that the environment's `create` takes. */
export function environmentOptions(c: TrainingConfig): Record<string, unknown> {
  return { level: c.env.level, maxTurns: c.env.max_turns, ...c.env.options };
}
