/** Language: tokenizers, chat templates, conversations as token ids, and reading what the policy wrote. */
export { type WordFormat, type WordParameter, wordParser } from './parse.ts';
