/** The desk's tokenizer: an ordinary Hugging Face WordLevel tokenizer and an ordinary chat template, generated from the domain's words. */
import type { TokenizerFiles } from '../../language/index.ts';
import { MARKS, tokenizerFiles } from '../generated-tokenizer.ts';
import { deskWords } from './words.ts';

export const SPECIALS = {
  pad: MARKS.pad,
  unk: '<|unk|>',
  end: MARKS.end,
  system: MARKS.system,
  user: MARKS.user,
  assistant: MARKS.assistant,
  tool: MARKS.tool,
} as const;

/** tokenizer.json and tokenizer_config.json; the same bytes each time. */
export function deskTokenizer(): TokenizerFiles {
  const specials = Object.values(SPECIALS);
  return tokenizerFiles({
    tokens: [...specials, ...'0123456789', ...deskWords()],
    specials,
    unknown: SPECIALS.unk,
    preTokenizer: { type: 'Sequence', pretokenizers: [{ type: 'WhitespaceSplit' }, { type: 'Digits', individual_digits: true }] },
    decoder: { type: 'WordPiece', prefix: '##', cleanup: false },
    model: (vocab) => ({ type: 'WordLevel', vocab, unk_token: SPECIALS.unk }),
    maxLength: 1024,
  });
}
