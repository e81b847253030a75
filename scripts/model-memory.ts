// `sinkflex doctor --model`: what training all weights of a model takes by category, and the longest sequence that this machine can train.
import { longestSequence, os, readModelConfig, trainingMemory } from '../kernels/index.ts';
import { modelFolderOf } from './model-folder.ts';
import { bytes, table, thousands } from './text.ts';

/** Tokens of the sequence whose memory is shown, unless the user names another. */
export const SHOWN_TOKENS = 4096;

export interface ModelMemory {
  model: string;
  tokens: number;
  /** Bytes the machine (or its container) has left. */
  available: number;
  variants: { checkpointing: boolean; memory: ReturnType<typeof trainingMemory>; longest: number }[];
}

/** One sequence of `tokens`, without and with activation checkpointing; takes none of that memory. */
export async function modelMemory(target: string, tokens = SHOWN_TOKENS, available = os.availableMemory()): Promise<ModelMemory> {
  const model = await modelFolderOf(target);
  const config = readModelConfig(model);
  const variants = [false, true].map((checkpointing) => ({
    checkpointing,
    memory: trainingMemory(config, { lengths: [tokens], checkpointing }),
    longest: longestSequence(config, available, { checkpointing }),
  }));
  return { model, tokens, available, variants };
}

export function memoryTable(m: ModelMemory): string {
  const categories = Object.keys(m.variants[0]!.memory) as (keyof ReturnType<typeof trainingMemory>)[];
  const rows = [
    [`training on ${thousands(m.tokens)} tokens`, ...m.variants.map((v) => (v.checkpointing ? 'checkpointed' : 'plain'))],
    ...categories.map((name) => [name, ...m.variants.map((v) => bytes(v.memory[name]))]),
    ['available', ...m.variants.map(() => bytes(m.available))],
    ['longest sequence', ...m.variants.map((v) => (v.longest === 0 ? 'none fits' : `${thousands(v.longest)} tokens`))],
  ];
  return table(rows, { header: true, right: [1, 2] });
}
