/** What a model folder says of generation: its recommended sampling, and which tokens end a turn. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ActorsError } from '../errors.ts';
import type { Tokenizer } from './tokenizer.ts';

/** generation_config.json of a folder; empty where there is none. */
export function readGenerationConfig(folder: string): Record<string, unknown> {
  const path = join(folder, 'generation_config.json');
  if (!existsSync(path)) return {};
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>;
  } catch (cause) {
    throw new ActorsError('SINKFLEX_CHECKPOINT_INVALID', `${path} is no JSON: ${(cause as Error).message}`, { cause });
  }
}

/** Every id that ends a turn: config.json and generation_config.json may name several, the tokenizer its own, which comes last. */
export function stopIdsOf(tokenizer: Tokenizer, ...sources: unknown[]): number[] {
  const ids = new Set<number>();
  for (const source of sources) for (const id of Array.isArray(source) ? source : [source]) if (typeof id === 'number') ids.add(id);
  const eos = tokenizer.special('eos_token');
  if (eos === undefined) return [...ids];
  const own = tokenizer.id(eos);
  return [...[...ids].filter((id) => id !== own), own];
}
