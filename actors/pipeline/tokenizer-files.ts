/** A run keeps the tokenizer of its model: rollout actors that start late read it, and it goes with every checkpoint. */
import { cpSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Chat, tokenizerFilesOf } from '../language/index.ts';
import type { RunFolder } from './run-folder.ts';

/** Copies what a folder says of conversations, once: model.path may go, and checkpoints are pruned. Answers with the folder of the copy. */
export function keepTokenizer(model: string, run: RunFolder): string {
  const kept = run.file('tokenizer');
  if (existsSync(join(kept, 'config.json'))) return kept;
  mkdirSync(kept, { recursive: true });
  // config.json last: with it the copy is whole.
  for (const name of [...tokenizerFilesOf(model), 'config.json']) cpSync(join(model, name), join(kept, name));
  return kept;
}

/** What stands beside the weights of a checkpoint, by file name: the files that were kept, or those of a tokenizer that was generated. */
export function tokenizerFiles(chat: Chat, kept: string | null): Record<string, string> {
  if (kept !== null)
    return Object.fromEntries(
      tokenizerFilesOf(kept)
        .filter((name) => !name.endsWith('.model'))
        .map((name) => [name, readFileSync(join(kept, name), 'utf8')]),
    );
  const { tokenizer, tokenizerConfig } = chat.tokenizer.files;
  return {
    'tokenizer.json': `${JSON.stringify(tokenizer, null, 2)}\n`,
    'tokenizer_config.json': `${JSON.stringify(tokenizerConfig, null, 2)}\n`,
  };
}
