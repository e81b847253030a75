/** What a run takes of memory, said by category before anything is allocated, and which settings would take less. */
import { availableParallelism } from 'node:os';
import { type ModelConfig, os, SinkflexError, scoringMemory, trainingMemory, WeightStore } from '../../kernels/index.ts';
import { entry } from '../environment/index.ts';
import { dialogueOf } from '../rollout/index.ts';
import type { TrainingConfig } from './config.ts';
import { adaptersOf, resolveModel } from './model.ts';
import { place } from './placement.ts';
import { momentsOf, usesDevice, usesReference } from './settings.ts';

/** Slots that the store of the policy takes at once, and that of the reference. */
const POLICY_SLOTS = 3;
const REFERENCE_SLOTS = 2;
/** Tokens of a page of the key/value cache. */
const PAGE = 64;

/** Bytes, over all processes of a run at once. */
export interface RunMemory {
  /** Slots of the policy's store; with adapters, the model below as well. */
  weights: number;
  gradients: number;
  optimizer: number;
  /** Activations, scratch and logits of the trainer's largest pass. */
  activations: number;
  /** Weights of the reference and its largest pass. */
  reference: number;
  /** Bounds of the key/value caches of all rollout actors. */
  cache: number;
  /** What of these GPUs hold. */
  onDevices: number;
  /** What the machine's own memory holds. */
  total: number;
}

export function runMemory(config: TrainingConfig, model: ModelConfig, cores = availableParallelism()): RunMemory {
  const placement = place(config, cores);
  const adapters = adaptersOf(config, model);
  const lora = adapters === undefined ? {} : { lora: adapters };
  const { dtype } = config.model;
  const lengths = largestPass(config);
  const training = trainingMemory(model, {
    lengths,
    slots: POLICY_SLOTS,
    checkpointing: config.model.enable_gradient_checkpointing,
    threads: placement.trainerThreads,
    dtype,
    moments: momentsOf(config),
    momentsInSlots: config.actor.optim.state_in_slots,
    ...lora,
  });
  // Slots of one kind: the model's, or its adapters'.
  const slot = WeightStore.imageBytes(model, { lora: adapters, dtype });
  const reference = usesReference(config)
    ? REFERENCE_SLOTS * slot + scoringMemory(model, { lengths, threads: placement.referenceThreads ?? 1, ...lora })
    : 0;
  const { rollout } = config;
  const tokens = rollout.kv_cache_tokens ?? placement.sequences * Math.ceil(rollout.max_model_len / PAGE) * PAGE;
  const perToken = model.num_hidden_layers * 2 * model.num_key_value_heads * model.head_dim * 4;
  const { trainers } = placement;
  // Trainers other than the first hear of new weights shard by shard: their own, and one of another.
  const heard = trainers > 1 ? (2 * (trainers - 1) * slot) / trainers : 0;
  const parts = {
    weights: training.weights,
    gradients: trainers * training.gradients + heard,
    optimizer: training.optimizer,
    activations: trainers * (training.activations + training.workspace + training.logits),
    reference,
    cache: rollout.name === 'sinkflex' ? placement.rolloutActors * tokens * perToken : 0,
  };
  const onDevices =
    (usesDevice(config.actor) ? parts.gradients + parts.optimizer + parts.activations : 0) + (usesDevice(rollout) ? parts.cache : 0);
  return { ...parts, onDevices, total: Object.values(parts).reduce((sum, bytes) => sum + bytes, 0) - onDevices };
}

/** The same of settings alone, for a plan: its model is looked at where it is, and nothing is read but its shape. Throws where it is not there. */
export function predictMemory(config: TrainingConfig): RunMemory {
  const chosen = dialogueOf(entry(config.env.name), { model: config.model.path });
  return runMemory(config, resolveModel(config, chosen));
}

/** Lengths of the sequences of one forward and backward pass, all of them as long as they may be. */
function largestPass(config: TrainingConfig): number[] {
  const { actor, data, rollout } = config;
  const longest = rollout.max_model_len;
  const bySequences = actor.use_dynamic_bsz ? null : actor.ppo_micro_batch_size;
  const sequences = bySequences ?? Math.floor(actor.ppo_micro_batch_size_tokens / longest);
  // A step has no more than these; the warm start's batches are cut alike.
  const most = Math.max(data.train_batch_size * rollout.n, config.sft.total_steps > 0 ? config.sft.train_batch_size : 0);
  return new Array(Math.max(1, Math.min(sequences, most))).fill(longest);
}

/** SINKFLEX_MEMORY_SHORT with the figures and what would help, where a run takes more than `available` bytes. */
export function checkRunMemory(config: TrainingConfig, model: ModelConfig, what: string, available = os.availableMemory()): void {
  const memory = runMemory(config, model);
  if (memory.total <= available) return;
  const fits = remedies(config, model, memory.total).map(
    ({ setting, total }) => `${setting} (${sizeText(total)}${total <= available ? ', which fits' : ''})`,
  );
  const shape = 'lower model.hidden_size, model.intermediate_size, model.num_hidden_layers or model.num_local_experts';
  throw new SinkflexError(
    'SINKFLEX_MEMORY_SHORT',
    `${what} needs ${sizeText(memory.total)} of memory, ${sizeText(available)} are available: ${memoryRows(memory)
      .map(([name, text]) => `${name} ${text}`)
      .join(
        ', ',
      )}; ${[...(fits.length > 0 ? [`set ${fits.join(', or ')}`] : []), ...(config.model.path === null ? [shape] : [])].join('; ')}${
      fits.length > 0 || config.model.path === null ? ', ' : ''
    }or use a machine with more memory`,
    { details: { ...memory, available } },
  );
}

/** Categories that are not empty, as people read them. */
export function memoryRows({ total: _, onDevices, ...parts }: RunMemory): [name: string, size: string][] {
  const rows = Object.entries({ ...parts, 'of these on GPUs': onDevices });
  return rows.flatMap(([name, bytes]) => (bytes > 0 ? [[name, sizeText(bytes)] as [string, string]] : []));
}

/** Single changes that save a hundredth at least, and what the run would take with them; the best first. */
function remedies(config: TrainingConfig, model: ModelConfig, now: number): { setting: string; total: number }[] {
  const { actor, algorithm, rollout } = config;
  const tries: [string, TrainingConfig][] = [];
  const propose = (setting: string, change: Partial<TrainingConfig>): void => void tries.push([setting, { ...config, ...change }]);
  if (!config.model.enable_gradient_checkpointing)
    propose('model.enable_gradient_checkpointing=true', { model: { ...config.model, enable_gradient_checkpointing: true } });
  if (config.model.lora_rank === 0 && config.model.path !== null)
    propose('model.lora_rank=16', { model: { ...config.model, lora_rank: 16 } });
  if (config.model.dtype === 'float32') propose('model.dtype=bfloat16', { model: { ...config.model, dtype: 'bfloat16' } });
  if (actor.optim.optimizer === 'adamw')
    propose('actor.optim.optimizer=adamw_8bit', { actor: { ...actor, optim: { ...actor.optim, optimizer: 'adamw_8bit' } } });
  if (actor.use_dynamic_bsz && actor.ppo_micro_batch_size_tokens > rollout.max_model_len)
    propose(`actor.ppo_micro_batch_size_tokens=${rollout.max_model_len}`, {
      actor: { ...actor, ppo_micro_batch_size_tokens: rollout.max_model_len },
    });
  if (actor.use_kl_loss && !algorithm.use_kl_in_reward) propose('actor.use_kl_loss=false', { actor: { ...actor, use_kl_loss: false } });
  const cache = 4 * Math.ceil(rollout.max_model_len / PAGE) * PAGE;
  if ((rollout.kv_cache_tokens ?? Number.POSITIVE_INFINITY) > cache)
    propose(`rollout.kv_cache_tokens=${cache}`, { rollout: { ...rollout, kv_cache_tokens: cache } });
  const shorter = Math.ceil(rollout.max_model_len / 2);
  propose(`rollout.max_model_len=${shorter}`, { rollout: { ...rollout, max_model_len: shorter } });
  return tries
    .map(([setting, changed]) => ({ setting, total: runMemory(changed, model).total }))
    .filter(({ total }) => total <= 0.99 * now)
    .sort((a, b) => a.total - b.total);
}

export function sizeText(bytes: number): string {
  const mib = bytes / 2 ** 20;
  return mib < 1024 ? `${mib < 10 ? mib.toFixed(1) : Math.round(mib)} MiB` : `${(mib / 1024).toFixed(1)} GiB`;
}
