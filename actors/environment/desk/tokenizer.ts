/** The desk's tokenizer: an ordinary Hugging Face WordLevel tokenizer and an ordinary chat template, generated from the domain's words. */
import type { TokenizerFiles } from '../../language/index.ts';
import { deskWords } from './words.ts';

export const SPECIALS = {
  pad: '<|pad|>',
  unk: '<|unk|>',
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

/** tokenizer.json and tokenizer_config.json; the same bytes each time. The vocabulary is padded to a multiple of 16. */
export function deskTokenizer(): TokenizerFiles {
  const tokens: string[] = [...Object.values(SPECIALS), ...'0123456789', ...deskWords()];
  for (let spare = 0; tokens.length % 16 !== 0; spare++) tokens.push(`<|spare_${spare}|>`);
  const special = (content: string) => ({
    id: tokens.indexOf(content),
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  });
  const added = Object.values(SPECIALS).map(special);
  return {
    tokenizer: {
      version: '1.0',
      truncation: null,
      padding: null,
      added_tokens: added,
      normalizer: null,
      pre_tokenizer: { type: 'Sequence', pretokenizers: [{ type: 'WhitespaceSplit' }, { type: 'Digits', individual_digits: true }] },
      post_processor: null,
      decoder: { type: 'WordPiece', prefix: '##', cleanup: false },
      model: { type: 'WordLevel', vocab: Object.fromEntries(tokens.map((token, id) => [token, id])), unk_token: SPECIALS.unk },
    },
    tokenizerConfig: {
      added_tokens_decoder: Object.fromEntries(added.map(({ id, ...rest }) => [String(id), rest])),
      additional_special_tokens: [SPECIALS.system, SPECIALS.user, SPECIALS.assistant, SPECIALS.tool],
      chat_template: CHAT_TEMPLATE,
      clean_up_tokenization_spaces: false,
      eos_token: SPECIALS.end,
      model_max_length: 1024,
      pad_token: SPECIALS.pad,
      tokenizer_class: 'PreTrainedTokenizerFast',
      unk_token: SPECIALS.unk,
    },
  };
}
