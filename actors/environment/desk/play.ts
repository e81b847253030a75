/** Whole episodes of scripted agents: demonstrations for the warm start, and the fixed policies that stand beside every score. */

import { wordParser } from '../../language/index.ts';
import type { DemonstrateOptions, Demonstration, Message } from '../types.ts';
import { CLOSE, type DeskCounts, DeskEnvironment } from './environment.ts';
import { agent, type Habits, NO_SLIPS, type Slips, slips } from './expert.ts';
import type { DeskTask } from './task.ts';
import { TOOLS } from './words.ts';

export const parseDesk = wordParser({ tools: TOOLS, closing: CLOSE });

export interface Played extends Demonstration {
  counts: DeskCounts;
}

/** Plays one task with a scripted agent. `habits` may look at the task: a fixed policy may know things that a policy cannot. */
export function play(
  seed: number,
  o: { slips?: Slips; habits?: (task: DeskTask) => Habits; options?: Record<string, unknown> } = {},
): Played {
  const environment = new DeskEnvironment(o.options);
  const { observation } = environment.reset({ seed });
  const messages: Message[] = observation.slice();
  const habits = o.habits?.(environment.task!);
  const speaker = agent(observation[0]!.content, observation[1]!.content, o.slips ?? NO_SLIPS, habits);
  for (let said = speaker.next(); ; ) {
    if (said.done) throw new Error('desk: the scripted agent fell silent before the end of the call');
    messages.push({ role: 'assistant', content: said.value });
    const { observation, reward, terminated, truncated, info } = environment.step(parseDesk(said.value));
    messages.push(...observation);
    if (terminated || truncated) {
      const { rewardParts, ...counts } = info as unknown as DeskCounts & { rewardParts: Record<string, number> };
      return { messages, reward, solved: reward === 1, rewardParts, turns: counts.turns, counts };
    }
    said = speaker.next(observation.map((m) => m.content).join(' '));
  }
}

/** An episode of the expert that errs; the same arguments give the same episode. */
export function demonstrate(seed: number, noiseSeed: number, o: DemonstrateOptions = {}): Played {
  const noise = o.noise ?? 1;
  return play(seed, { slips: noise === 0 ? NO_SLIPS : slips(noiseSeed, seed, noise), ...(o.options ? { options: o.options } : {}) });
}

/** Eight fixed policies: each ignores one rule and follows the others as the expert does. */
export const FIXED_POLICIES: Record<string, (task: DeskTask) => Habits> = {
  'never refund': () => ({ treatment: 'none' }),
  'always full': () => ({ treatment: 'full' }),
  'always half': () => ({ treatment: 'half' }),
  'always flat': () => ({ treatment: 'flat' }),
  'ignore standing': () => ({ standing: 'gold' }),
  'ignore light': () => ({ part: 'brake' }),
  'refund without flag': () => ({ flag: false }),
  'no identification': (task) => {
    const { standing, ride } = task.riders[task.caller]!;
    return { identify: { standing, ride } };
  },
};

/** Closes the call at once, having done nothing. */
export function doNothing(seed: number, options?: Record<string, unknown>): number {
  const environment = new DeskEnvironment(options);
  environment.reset({ seed });
  return environment.step(parseDesk('done refund 0')).reward;
}
