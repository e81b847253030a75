/** tau2-retail-generated: tasks generated over the benchmark's retail database, for small models. docs/tau2.md describes it. */
import type { DemonstrateOptions, Demonstration, EnvironmentEntry, Message } from '../../types.ts';
import { tau2Data } from '../data.ts';
import { GeneratedEnvironment, officialSeed } from './environment.ts';
import { agent, type GeneratedSlips, NO_SLIPS, slips } from './expert.ts';
import { readOptions } from './options.ts';
import { generatedRetailTokenizer, parseGenerated } from './tokenizer.ts';

export { GeneratedEnvironment, officialSeed } from './environment.ts';
export { MISTAKES as GENERATED_MISTAKES } from './expert.ts';
export { type GeneratedTask, generateTask, shopOf, WISHES } from './task.ts';
export { generatedRetailTokenizer } from './tokenizer.ts';
export { words as generatedRetailWords } from './words.ts';

/** Plays one task with the scripted agent. */
function play(seed: number, slip: GeneratedSlips, options?: Record<string, unknown>): Demonstration {
  const environment = new GeneratedEnvironment(options);
  const { observation } = environment.reset({ seed });
  const messages: Message[] = [...observation];
  const speaker = agent(observation[1]!.content, slip);
  for (let said = speaker.next(), turns = 1; ; turns++) {
    if (said.done) throw new Error('tau2-retail-generated: the scripted agent fell silent');
    messages.push({ role: 'assistant', content: said.value });
    const step = environment.step(parseGenerated(said.value));
    messages.push(...step.observation);
    if (step.terminated || step.truncated) {
      const rewardParts = step.info.rewardParts as Record<string, number>;
      return { messages, reward: step.reward, solved: step.reward === 1, rewardParts, turns };
    }
    said = speaker.next(step.observation[0]!.content);
  }
}

/** Ends at once with one word, having done nothing. */
function idle(word: string) {
  return (seed: number, options?: Record<string, unknown>): number => {
    const environment = new GeneratedEnvironment(options);
    environment.reset({ seed });
    return environment.step(parseGenerated(word)).reward;
  };
}

export const retailGenerated: EnvironmentEntry = {
  name: 'tau2-retail-generated',
  summary: 'tasks generated over the database of tau2-bench retail, alone and in few words, for small models',
  create: (options) => new GeneratedEnvironment(options),
  chat: { ...generatedRetailTokenizer(), parse: parseGenerated },
  demonstrate: (seed: number, noiseSeed: number, { noise = 1, options }: DemonstrateOptions = {}) =>
    play(seed, noise === 0 ? NO_SLIPS : slips(noiseSeed, seed, noise), options),
  alsoScored: (options) => {
    const ids = tau2Data(readOptions(options).data, 'retail').split('test');
    return [{ name: 'tau2-retail test, compact', seeds: ids.map((_, i) => officialSeed(i)) }];
  },
  labels: (options) => ({
    benchmark: 'tau2-retail-generated',
    'task version': tau2Data(readOptions(options).data, 'retail').version,
    'reward basis': 'DB x TOLD',
    user: 'solo',
  }),
  baselines: {
    'do nothing': idle('done'),
    'deny all': idle('denied'),
    expert: (seed, options) => play(seed, NO_SLIPS, options).reward,
  },
};
