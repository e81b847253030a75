// A PEFT folder on disk: LoRA adapters beside which no model stands. Its adapter_config.json names the model below.
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Checkpoint, readJson } from './checkpoint.ts';
import { SinkflexError } from './errors.ts';
import { mergeLora, readLora } from './lora.ts';
import { type ModelConfig, parseModelConfig } from './model-config.ts';
import { tensorLayout } from './tensor-layout.ts';

export const ADAPTER_WEIGHTS = 'adapter_model.safetensors';
const ADAPTER_CONFIG = 'adapter_config.json';

/** Whether a folder holds adapters and no model of its own. */
export function isAdapterFolder(dir: string): boolean {
  const own = ['model.safetensors', 'model.safetensors.index.json'];
  return existsSync(join(dir, ADAPTER_CONFIG)) && !own.some((name) => existsSync(join(dir, name)));
}

/** Folder of the model below an adapter's, or undefined where `dir` is a model itself. SINKFLEX_CHECKPOINT_MISSING where it is not there. */
export function adapterBaseOf(dir: string): string | undefined {
  if (!isAdapterFolder(dir)) return undefined;
  const path = join(dir, ADAPTER_CONFIG);
  const named = (readJson(path) as { base_model_name_or_path?: unknown } | null)?.base_model_name_or_path;
  const candidates = typeof named === 'string' && named !== '' ? [resolve(named), resolve(dir, named)] : [];
  const found = candidates.find((folder) => existsSync(join(folder, 'config.json')));
  if (found !== undefined) return found;
  const what = candidates.length === 0 ? 'no model' : `${String(named)}, and no model is there`;
  throw new SinkflexError(
    'SINKFLEX_CHECKPOINT_MISSING',
    `${path}: base_model_name_or_path names ${what}: the adapters mean nothing without it; write the folder of the model they were trained on there`,
    { details: { path, base: named ?? null } },
  );
}

/** config.json of a Hugging Face folder; of adapters alone, that of the model below. */
export function readModelConfig(dir: string): ModelConfig {
  const own = join(dir, 'config.json');
  return parseModelConfig(readJson(existsSync(own) ? own : join(adapterBaseOf(dir) ?? dir, 'config.json')));
}

/** The model below everything, and the folders of adapters over it, lowest first: adapters may have been trained on a model with adapters. */
export function adapterChain(dir: string): { model: string; adapters: string[] } {
  const adapters: string[] = [];
  let model = resolve(dir);
  for (let base = adapterBaseOf(model); base !== undefined; base = adapterBaseOf(model)) {
    if (adapters.includes(model))
      throw new SinkflexError('SINKFLEX_CHECKPOINT_CORRUPT', `${model}: its adapters name themselves as the model below`);
    adapters.unshift(model);
    model = base;
  }
  return { model, adapters };
}

/** adapter_config.json as the adapters of this model. */
export const readAdapterConfig = (dir: string, config: ModelConfig) => readLora(readJson(join(dir, ADAPTER_CONFIG)), config);

/** Adds what the adapters of a folder have learnt to the weights of the model below; `weight` lets those of a tensor be changed by its name. */
export function mergeAdapters(dir: string, config: ModelConfig, weight: (name: string, edit: (data: Float32Array) => void) => void): void {
  const lora = readAdapterConfig(dir, config);
  const { tensors } = tensorLayout(config, lora);
  const checkpoint = Checkpoint.open(dir, tensors, ADAPTER_WEIGHTS);
  try {
    const read = (name: string): Float32Array => {
      const t = tensors.find((tensor) => tensor.name === name)!;
      const data = new Float32Array(t.count);
      checkpoint.read(t, data);
      return data;
    };
    mergeLora(config, lora, read, weight);
  } finally {
    checkpoint.close();
  }
}
