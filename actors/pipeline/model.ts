/** Which model a run works on: fresh weights of the settings' shape, model.path, or the checkpoint that it goes on from; checked before anything starts. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import {
  adapterBaseOf,
  isAdapterFolder,
  type LoraConfig,
  type ModelConfig,
  parseLora,
  readModelConfig,
  WeightStore,
} from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';
import type { ChosenChat } from '../rollout/index.ts';
import { modelFolder } from '../trainer/index.ts';
import type { TrainingConfig } from './config.ts';
import { modelConfigOf, momentsOf } from './settings.ts';

/** The shape of the model. `checkpoint`: the folder that the run resumes from. SINKFLEX_MODEL_MISMATCH where it cannot serve this run. */
export function resolveModel(config: TrainingConfig, { chat, of }: ChosenChat, checkpoint?: string): ModelConfig {
  const { tokenizer } = chat;
  const pad = tokenizer.special('pad_token');
  const fresh = modelConfigOf(config, {
    size: tokenizer.vocabularySize,
    eosTokenId: chat.endOfTurn,
    ...(pad === undefined ? {} : { padTokenId: tokenizer.id(pad) }),
  });
  const folder = checkpoint ? modelFolder(checkpoint) : config.model.path;
  if (folder === null) return fresh;
  const stored = readModelConfig(folder);
  // What could only fail once the run has begun.
  adaptersOf(config, stored);
  const { mode } = config.actor.router_replay;
  if (mode !== 'disabled' && stored.num_local_experts === 0)
    throw new ActorsError(
      'SINKFLEX_LOSS_OPTION',
      `actor.router_replay.mode = ${mode} replays the choice of experts, and this model (${stored.model_type}) has none: set it to disabled.`,
    );
  adapterBaseOf(folder);
  if (of === 'environment') checkVocabulary(folder, stored, config.env.name, tokenizer.vocabularySize);
  // The settings describe fresh models only, and this one was one.
  if (checkpoint && config.model.path === null) checkShape(folder, stored, fresh);
  return stored;
}

/** The adapters that a run learns, or undefined where it learns all weights. */
export function adaptersOf(config: TrainingConfig, model: ModelConfig): LoraConfig | undefined {
  const { lora_rank: r, lora_alpha, target_modules } = config.model;
  return r === 0 ? undefined : parseLora({ r, lora_alpha, target_modules }, model);
}

/**
 * The store that a run publishes in. With adapters it holds these alone, over the model below in a store of one slot, which is read here:
 * model.path, or the model that the adapters of the folder were trained on.
 */
export async function makeStore(
  config: TrainingConfig,
  model: ModelConfig,
  o: { checkpoint?: string | undefined; signal?: AbortSignal } = {},
): Promise<WeightStore> {
  const lora = adaptersOf(config, model);
  const { dtype } = config.model;
  const moments = config.actor.optim.state_in_slots ? momentsOf(config) : undefined;
  if (lora === undefined) return WeightStore.create(model, { dtype, moments });
  const base = WeightStore.create(model, { slots: 1, dtype });
  try {
    const below = adapterBaseOf(o.checkpoint ? modelFolder(o.checkpoint) : config.model.path!) ?? config.model.path!;
    await base.loadFolderAsync(below, o.signal && { signal: o.signal });
    return WeightStore.createAdapter(base, lora, { moments });
  } catch (e) {
    base.close();
    throw e;
  }
}

/** Publishes version 0 of a lineage: a checkpoint's weights, model.path, or random weights of the run's seed, which `signal` interrupts. */
export async function initialiseWeights(
  config: TrainingConfig,
  store: WeightStore,
  { checkpoint, lineage = 0, signal }: { checkpoint?: string | undefined; lineage?: number; signal?: AbortSignal } = {},
): Promise<void> {
  const folder = checkpoint ? modelFolder(checkpoint) : config.model.path;
  if (folder === null || (store.adapter !== undefined && !isAdapterFolder(folder)))
    await store.initialiseAsync(config.seed, { lineage, ...(signal ? { signal } : {}) });
  else await store.loadFolderAsync(folder, { as: { lineage, version: 0 }, ...(signal ? { signal } : {}) });
}

/** Where the folder has a tokenizer, its tokens are those of the environment, and more rows do no harm; where it has none, at least their number is. */
function checkVocabulary(folder: string, stored: ModelConfig, environment: string, size: number): void {
  const ownTokenizer = existsSync(join(folder, 'tokenizer.json')) && existsSync(join(folder, 'tokenizer_config.json'));
  if (stored.vocab_size === size || (ownTokenizer && stored.vocab_size > size)) return;
  throw new ActorsError(
    'SINKFLEX_MODEL_MISMATCH',
    `the model in ${folder} and the environment "${environment}" do not fit: vocab_size of the model is ${stored.vocab_size}, the environment's tokenizer has ${size} tokens; take a model that was made for this environment, or name the model's environment in env.name`,
    { details: { folder, environment } },
  );
}

const SHAPE = [
  'hidden_size',
  'intermediate_size',
  'num_hidden_layers',
  'num_attention_heads',
  'num_key_value_heads',
  'head_dim',
  'num_local_experts',
  'num_experts_per_tok',
  'sliding_window',
  'layer_types',
  'rope_theta',
  'rms_norm_eps',
  'swiglu_limit',
  'tie_word_embeddings',
] as const satisfies (keyof ModelConfig)[];

function checkShape(folder: string, stored: ModelConfig, fresh: ModelConfig): void {
  for (const key of SHAPE) {
    const [has, wanted] = [JSON.stringify(stored[key]), JSON.stringify(fresh[key])];
    if (has === wanted) continue;
    const setting = `model.${key === 'layer_types' ? 'first_layer_type' : key}`;
    throw new ActorsError(
      'SINKFLEX_MODEL_MISMATCH',
      `the model in ${folder} has ${key} = ${has}, the settings ask for ${wanted}; a run that goes on keeps its shape: leave ${setting} as it was, or start a new run`,
      { details: { folder, setting } },
    );
  }
}
