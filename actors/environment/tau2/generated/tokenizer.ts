/** A WordLevel tokenizer over the words of the domain, and its reader. */
import type { TokenizerFiles } from '../../../language/index.ts';
import { MARKS, tokenizerFiles } from '../../generated-tokenizer.ts';
import type { Action } from '../../types.ts';
import { CLOSINGS, words } from './words.ts';

const UNKNOWN = '<|unk|>';
const SPECIALS = [MARKS.pad, UNKNOWN, MARKS.end, MARKS.system, MARKS.user, MARKS.assistant, MARKS.tool];

/** tokenizer.json and tokenizer_config.json; the same bytes each time. */
export function generatedRetailTokenizer(): TokenizerFiles {
  return tokenizerFiles({
    tokens: [...SPECIALS, ...words()],
    specials: SPECIALS,
    unknown: UNKNOWN,
    preTokenizer: { type: 'WhitespaceSplit' },
    decoder: { type: 'WordPiece', prefix: '##', cleanup: false },
    model: (vocab) => ({ type: 'WordLevel', vocab, unk_token: UNKNOWN }),
    maxLength: 1024,
  });
}

/** One turn: `call ...`, or a closing. The environment reads the words themselves. */
export function parseGenerated(text: string): Action {
  const said = text.trim();
  if (said === '') return { text, toolCalls: [], finish: false, malformed: 'the turn is empty' };
  const [first, name, ...rest] = said.split(/\s+/);
  if (first === 'call' && name !== undefined) return { text: said, toolCalls: [{ name, arguments: { words: rest } }], finish: false };
  return { text: said, toolCalls: [], finish: (CLOSINGS as readonly string[]).includes(said) };
}
