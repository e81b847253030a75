/** What a model's folder says of conversations: its tokenizer, its chat template, how its turns are written, and what ends them. */
import { readdirSync } from 'node:fs';
import { readModelConfig } from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';
import { ChatTemplate, type ConversationTemplate } from './chat-template.ts';
import { readGenerationConfig, stopIdsOf } from './generation-config.ts';
import { HarmonyTemplate } from './harmony-render.ts';
import { Tokenizer } from './tokenizer.ts';
import { type TurnFormat, turnFormatOf } from './turn-reader.ts';

export interface ModelChat {
  tokenizer: Tokenizer;
  /** Undefined: the folder has none, so chats cannot be written. */
  template: ConversationTemplate | undefined;
  turnFormat: TurnFormat;
  /** Every id that ends a turn, the tokenizer's own last. */
  stopIds: number[];
  /** What generation_config.json says; empty without one. */
  generation: Record<string, unknown>;
}

/** `now`: milliseconds since 1970, for templates that name the day. SINKFLEX_MODEL_MISMATCH where the tokenizer has more tokens than the model. */
export function readModelChat(folder: string, o: { now: () => number }): ModelChat {
  const config = readModelConfig(folder);
  const tokenizer = Tokenizer.load(folder);
  if (tokenizer.vocabularySize > config.vocab_size)
    throw new ActorsError(
      'SINKFLEX_MODEL_MISMATCH',
      `${folder}: the tokenizer has ${tokenizer.vocabularySize} tokens, vocab_size of config.json is ${config.vocab_size}`,
    );
  const written =
    typeof tokenizer.files.tokenizerConfig.chat_template === 'string' ? ChatTemplate.of(tokenizer, { now: o.now }) : undefined;
  // gpt-oss without a template of its own: the format is known.
  const harmony = written === undefined && config.model_type === 'gpt_oss' && tokenizer.has('<|channel|>');
  const template = harmony ? new HarmonyTemplate({ today: () => new Date(o.now()).toISOString().slice(0, 10) }) : written;
  const turnFormat = harmony ? 'harmony' : turnFormatOf(written?.source ?? '');
  const generation = readGenerationConfig(folder);
  const ends = turnFormat === 'harmony' ? ['<|return|>', '<|call|>'].filter((end) => tokenizer.has(end)) : [];
  const stopIds = stopIdsOf(
    tokenizer,
    config.eos_token_id,
    generation.eos_token_id,
    ends.map((end) => tokenizer.id(end)),
  );
  return { tokenizer, template, turnFormat, stopIds, generation };
}

/** Files of a model's folder that go with its weights, wherever these are written. */
export function tokenizerFilesOf(folder: string): string[] {
  const carried = /^(tokenizer.*|special_tokens_map|added_tokens|vocab|merges|generation_config|chat_template)\.(json|txt|jinja|model)$/;
  return readdirSync(folder).filter((name) => carried.test(name));
}
