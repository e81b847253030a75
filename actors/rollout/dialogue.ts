/** Which chat format episodes are held in: that of the model's folder, or the one that was made for the environment. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { chatFormat, type EnvironmentEntry } from '../environment/index.ts';
import { ActorsError } from '../errors.ts';
import { Chat, Tokenizer } from '../language/index.ts';

export interface DialogueOptions {
  /** Folder of the model; null where it begins from nothing. */
  model: string | null;
  /** Variables of the chat template. */
  variables?: Record<string, unknown>;
}

export interface ChosenChat {
  chat: Chat;
  of: 'model' | 'environment';
}

const hasTokenizer = (folder: string): boolean =>
  ['tokenizer.json', 'tokenizer_config.json'].every((name) => existsSync(join(folder, name)));

/**
 * A model that was made for the environment has the environment's tokens, or no tokenizer at all; any other is spoken to as its own folder
 * says. SINKFLEX_ENVIRONMENT_CHAT, SINKFLEX_MODEL_MISMATCH or SINKFLEX_CHAT_TEMPLATE where neither can be.
 */
export function dialogueOf(entry: EnvironmentEntry, o: DialogueOptions): ChosenChat {
  const { model } = o;
  if (model === null) return { chat: new Chat(chatFormat(entry)), of: 'environment' };
  if (!hasTokenizer(model)) {
    if (entry.chat) return { chat: new Chat(entry.chat), of: 'environment' };
    throw new ActorsError(
      'SINKFLEX_ENVIRONMENT_CHAT',
      `"${entry.name}" has no tokenizer of its own, and ${model} has no tokenizer.json and tokenizer_config.json: put those of the model there`,
      { details: { name: entry.name, folder: model } },
    );
  }
  const { variables } = o;
  if (!entry.chat) return { chat: Chat.ofModel(model, variables ? { variables } : {}), of: 'model' };
  const [own, theirs] = [new Chat(entry.chat), Tokenizer.load(model)];
  const difference = firstDifference(own.tokenizer, theirs);
  if (difference === undefined) return { chat: own, of: 'environment' };
  // Words outside a closed vocabulary would all be one unknown token.
  if ((theirs.files.tokenizer.model as { type?: unknown } | undefined)?.type !== 'WordLevel')
    return { chat: Chat.ofModel(model, { ...(variables ? { variables } : {}), words: entry.chat.parse }), of: 'model' };
  throw new ActorsError(
    'SINKFLEX_MODEL_MISMATCH',
    `the model in ${model} and the environment "${entry.name}" do not fit: ${difference}; take a model that was made for this environment or has an open vocabulary, or name the model's environment in env.name`,
    { details: { folder: model, environment: entry.name } },
  );
}

function firstDifference(own: Tokenizer, theirs: Tokenizer): string | undefined {
  for (let id = 0; id < Math.max(own.vocabularySize, theirs.vocabularySize); id++) {
    const [a, b] = [theirs.token(id), own.token(id)];
    if (a !== b)
      return `token ${id} of the model is ${JSON.stringify(a ?? null)}, that of the environment's tokenizer ${JSON.stringify(b ?? null)}`;
  }
  return undefined;
}
