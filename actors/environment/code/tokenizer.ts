/** The tokenizer of code-bytes: bytes, with merges that make common pieces of its tasks one token each, in Hugging Face's format. */
import type { TokenizerFiles } from '../../language/index.ts';
import { MARKS, tokenizerFiles } from '../generated-tokenizer.ts';
import { PIECES } from './pieces.ts';

/** Each byte as the character that byte-level vocabularies write for it. */
export function byteCharacters(): string[] {
  const printable = (b: number): boolean => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCodePoint(printable(b) ? b : next++));
}

/** tokenizer.json and tokenizer_config.json; the same bytes each time. */
export function codeTokenizer(): TokenizerFiles {
  const bytes = byteCharacters();
  const specials = Object.values(MARKS);
  const tokens: string[] = [...specials, ...bytes];
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
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
  return tokenizerFiles({
    tokens,
    specials,
    preTokenizer: byteLevel,
    decoder: byteLevel,
    model: (vocab) => ({ type: 'BPE', dropout: null, unk_token: null, vocab, merges }),
    maxLength: 4096,
  });
}
