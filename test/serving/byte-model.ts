// A tiny qwen2 with random weights and a tokenizer of bytes, or of pieces of a text, in a folder as the hub has them.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseModelConfig, WeightStore } from '../../kernels/index.ts';

/** GPT-2's mapping of bytes to printable characters. */
function byteCharacters(): string[] {
  const printable = (b: number): boolean => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCodePoint(printable(b) ? b : next++));
}

export const specials = ['<|endoftext|>', '<|im_start|>', '<|im_end|>'];
const calls = ['<tool_call>', '</tool_call>'];

const template = `{%- if tools %}{{ '<|im_start|>system\\n' }}{%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{%- endfor %}Calls go between <tool_call> and </tool_call>.{{ '<|im_end|>\\n' }}{%- endif %}{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content }}{%- for call in message.tool_calls or [] %}{{ '<tool_call>' + call.function.name + call.function.arguments.x | string + '</tool_call>' }}{%- endfor %}{{ '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}`;

/** Tokens and merges for the most frequent words of a text, each after its beginnings. */
function piecesOf(text: string, count: number): { tokens: string[]; merges: string[] } {
  const bytes = byteCharacters();
  const often = new Map<string, number>();
  for (const [word] of text.matchAll(/ ?[A-Za-z_]+/g)) if (word.length > 1) often.set(word, (often.get(word) ?? 0) + 1);
  const chosen = [...often].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, count);
  const tokens: string[] = [];
  const merges: string[] = [];
  const known = new Set<string>();
  for (const [word] of chosen) {
    const letters = [...Buffer.from(word)].map((b) => bytes[b]!);
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
  return { tokens, merges };
}

/** Writes the folder; `seed` is that of the weights. `text`: its words become tokens, so that prompts are as short as with real tokenizers. */
export function writeByteModel(folder: string, seed = 3, o: { text?: string } = {}): void {
  const pieces = piecesOf(o.text ?? '', 1500);
  const words = [...byteCharacters(), ...specials, ...calls, ...pieces.tokens];
  const added = [...specials, ...calls].map((content) => ({
    id: words.indexOf(content),
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: specials.includes(content),
  }));
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: pieces.merges.length > 0 };
  const tokenizer = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: added,
    normalizer: null,
    pre_tokenizer: byteLevel,
    post_processor: null,
    decoder: byteLevel,
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      vocab: Object.fromEntries(words.map((word, i) => [word, i])),
      merges: pieces.merges,
    },
  };
  const config = parseModelConfig({
    model_type: 'qwen2',
    vocab_size: words.length,
    hidden_size: 32,
    intermediate_size: 48,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    max_position_embeddings: 65536,
    rms_norm_eps: 1e-6,
    rope_theta: 10000,
    initializer_range: 0.2,
    tie_word_embeddings: true,
    eos_token_id: words.indexOf('<|im_end|>'),
  });
  const store = WeightStore.create(config, { slots: 1 });
  store.initialise(seed);
  store.saveFolder(folder);
  store.close();
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(tokenizer));
  writeFileSync(join(folder, 'tokenizer_config.json'), JSON.stringify({ eos_token: '<|im_end|>', tokenizer_class: 'Qwen2Tokenizer' }));
  writeFileSync(join(folder, 'chat_template.jinja'), template);
  writeFileSync(
    join(folder, 'generation_config.json'),
    JSON.stringify({ temperature: 0.7, top_k: 20, eos_token_id: [words.indexOf('<|endoftext|>')] }),
  );
}
