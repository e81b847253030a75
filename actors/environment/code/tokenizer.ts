/** The tokenizer of code-bytes: bytes, with merges that make common pieces of its tasks one token each, in Hugging Face's format. */
import type { TokenizerFiles } from '../../language/index.ts';
import { PIECES } from './pieces.ts';

const SPECIALS = ['<|pad|>', '<|end|>', '<|system|>', '<|user|>', '<|assistant|>', '<|tool|>'] as const;

const CHAT_TEMPLATE =
  "{%- for message in messages -%}{{ '<|' + message['role'] + '|>' + message['content'] }}{%- if message['role'] == 'assistant' -%}{{ '<|end|>' }}{%- endif -%}{%- endfor -%}" +
  "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}";

/** Each byte as the character that byte-level vocabularies write for it. */
export function byteCharacters(): string[] {
  const printable = (b: number): boolean => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCodePoint(printable(b) ? b : next++));
}

/** tokenizer.json and tokenizer_config.json; the same bytes each time. */
export function codeTokenizer(): TokenizerFiles {
  const bytes = byteCharacters();
  const tokens = [...SPECIALS, ...bytes];
  const known = new Set<string>(tokens);
  const merges: string[] = [];
  for (const piece of PIECES) {
    const letters = [...Buffer.from(piece)].map((b) => bytes[b]!);
    let whole = letters[0]!;
    for (const letter of letters.slice(1)) {
      const longer = whole + letter;
      if (!known.has(longer)) {
        known.add(longer);
        tokens.push(longer);
        merges.push(`${whole} ${letter}`);
      }
      whole = longer;
    }
  }
  for (let spare = 0; tokens.length % 16 !== 0; spare++) tokens.push(`<|spare_${spare}|>`);
  const added = SPECIALS.map((content) => ({
    id: tokens.indexOf(content),
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  }));
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
  return {
    tokenizer: {
      version: '1.0',
      truncation: null,
      padding: null,
      added_tokens: added,
      normalizer: null,
      pre_tokenizer: byteLevel,
      post_processor: null,
      decoder: byteLevel,
      model: { type: 'BPE', dropout: null, unk_token: null, vocab: Object.fromEntries(tokens.map((token, id) => [token, id])), merges },
    },
    tokenizerConfig: {
      added_tokens_decoder: Object.fromEntries(added.map(({ id, ...rest }) => [String(id), rest])),
      additional_special_tokens: SPECIALS.slice(2),
      chat_template: CHAT_TEMPLATE,
      clean_up_tokenization_spaces: false,
      eos_token: '<|end|>',
      model_max_length: 4096,
      pad_token: '<|pad|>',
      tokenizer_class: 'PreTrainedTokenizerFast',
    },
  };
}
