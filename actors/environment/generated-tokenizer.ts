/** What tokenizers that are made for one environment have in common: role marks, an end mark, and the chat template over them. */
import type { TokenizerFiles } from '../language/index.ts';

export const MARKS = {
  pad: '<|pad|>',
  end: '<|end|>',
  system: '<|system|>',
  user: '<|user|>',
  assistant: '<|assistant|>',
  tool: '<|tool|>',
} as const;

/** Only the assistant's turns carry an end mark, for it is what the policy emits to stop; other turns end where the next role begins. */
const CHAT_TEMPLATE =
  "{%- for message in messages -%}{{ '<|' + message['role'] + '|>' + message['content'] }}{%- if message['role'] == 'assistant' -%}{{ '<|end|>' }}{%- endif -%}{%- endfor -%}" +
  "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}";

export interface TokenizerParts {
  /** In the order of their ids. */
  tokens: string[];
  /** Those of them that text never stands for. */
  specials: readonly string[];
  unknown?: string;
  preTokenizer: Record<string, unknown>;
  decoder: Record<string, unknown>;
  /** The model of tokenizer.json, given id by token. */
  model: (vocabulary: Record<string, number>) => Record<string, unknown>;
  maxLength: number;
}

/** tokenizer.json and tokenizer_config.json; the vocabulary is padded to a multiple of 16. */
export function tokenizerFiles(o: TokenizerParts): TokenizerFiles {
  const tokens = [...o.tokens];
  for (let spare = 0; tokens.length % 16 !== 0; spare++) tokens.push(`<|spare_${spare}|>`);
  const added = o.specials.map((content) => ({
    id: tokens.indexOf(content),
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  }));
  return {
    tokenizer: {
      version: '1.0',
      truncation: null,
      padding: null,
      added_tokens: added,
      normalizer: null,
      pre_tokenizer: o.preTokenizer,
      post_processor: null,
      decoder: o.decoder,
      model: o.model(Object.fromEntries(tokens.map((token, id) => [token, id]))),
    },
    tokenizerConfig: {
      added_tokens_decoder: Object.fromEntries(added.map(({ id, ...rest }) => [String(id), rest])),
      additional_special_tokens: [MARKS.system, MARKS.user, MARKS.assistant, MARKS.tool],
      chat_template: CHAT_TEMPLATE,
      clean_up_tokenization_spaces: false,
      eos_token: MARKS.end,
      model_max_length: o.maxLength,
      pad_token: MARKS.pad,
      tokenizer_class: 'PreTrainedTokenizerFast',
      ...(o.unknown === undefined ? {} : { unk_token: o.unknown }),
    },
  };
}
