/** The desk: a bike-share company's help desk, where agent and caller must act together. docs/desk.md describes it. */
import type { EnvironmentEntry } from '../types.ts';
import { DeskEnvironment } from './environment.ts';
import { demonstrate, doNothing, FIXED_POLICIES, parseDesk, play } from './play.ts';
import { deskTokenizer } from './tokenizer.ts';

export { type DeskCounts, DeskEnvironment, type DeskRewardParts } from './environment.ts';
export { MISTAKES, type Mistake } from './expert.ts';
export { demonstrate, FIXED_POLICIES, type Played, play } from './play.ts';
export { DEFAULT_LEVEL, type DeskSettings, type DeskTask, deskSettings, generateTask, LEVELS } from './task.ts';
export { deskTokenizer } from './tokenizer.ts';

type Options = Record<string, unknown>;
const withOptions = (options?: Options) => (options ? { options } : {});

export const desk: EnvironmentEntry & Required<Pick<EnvironmentEntry, 'chat' | 'demonstrate' | 'baselines'>> = {
  name: 'desk',
  summary: 'dual-control help desk of a bike-share company: the caller acts on the bike, the agent on the books, the rules change per task',
  create: (options) => new DeskEnvironment(options),
  chat: { ...deskTokenizer(), parse: parseDesk },
  demonstrate,
  baselines: {
    'do nothing': doNothing,
    expert: (seed, options) => play(seed, withOptions(options)).reward,
    ...Object.fromEntries(
      Object.entries(FIXED_POLICIES).map(([name, habits]) => [
        name,
        (seed: number, options?: Options) => play(seed, { habits, ...withOptions(options) }).reward,
      ]),
    ),
  },
};
