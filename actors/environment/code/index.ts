/** Code: an agent writes programs that run in a sandbox. docs/code.md describes it. */
import type { EnvironmentEntry } from '../types.ts';
import { CodeEnvironment, prepareCode } from './environment.ts';
import { parseCodeTurn } from './parse.ts';
import { demonstrate, handInNothing } from './play.ts';
import { codeTokenizer } from './tokenizer.ts';

export { searchNotes } from './corpus.ts';
export { CodeEnvironment, codeTools } from './environment.ts';
export { type Grade, grade } from './grade.ts';
export { type CodeOptions, codeOptions } from './options.ts';
export { parseCodeTurn } from './parse.ts';
export { type CodeLanguage, type CodeTask, FAMILIES, generateTask, isHeldOut } from './tasks.ts';
export { TEXTBOOK } from './textbook.ts';

const entry = {
  create: (options?: Record<string, unknown>) => new CodeEnvironment(options),
  prepare: prepareCode,
  demonstrate,
  baselines: {
    'hand in nothing': handInNothing,
    expert: (seed: number, options?: Record<string, unknown>) => demonstrate(seed, 0, { noise: 0, ...(options ? { options } : {}) }).reward,
  },
};

/** For models with a tokenizer and a chat template of their own. */
export const code: EnvironmentEntry = {
  name: 'code',
  summary: 'programs in Python or JavaScript, run in a sandbox and graded by hidden tests in another; takes the chat format of the model',
  ...entry,
};

/** For models that begin with random weights: a tokenizer of bytes and common words. */
export const codeBytes: EnvironmentEntry = {
  name: 'code-bytes',
  summary: 'the code environment with a small tokenizer of its own, for models that begin from nothing',
  ...entry,
  chat: { ...codeTokenizer(), parse: parseCodeTurn },
};
