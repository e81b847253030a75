/** Components that need nothing but the episode. */
import type { RewardComponent, ScoredEpisode } from './types.ts';

/** The environment's own score, or one of its parts. */
export function environmentReward(name: string, part?: string): RewardComponent {
  return { name, score: (e) => (part === undefined ? e.reward : (e.rewardParts[part] ?? Number.NaN)) };
}

const said = (e: ScoredEpisode): string[] => e.messages.filter((m) => m.role === 'assistant').map((m) => m.content);

/** Rules by name: each a value in [0, 1], 1 being good. */
export const RULES: Readonly<Record<string, (e: ScoredEpisode, argument: number) => number>> = {
  /** The agent itself brought the episode to an end. */
  finished: (e) => Number(e.terminated),
  /** Share of turns that could be read. */
  well_formed: (e) => (e.turns === 0 ? 1 : 1 - e.malformed / e.turns),
  /** 1 up to `argument` turns, falling to 0 at twice as many. */
  few_turns: (e, argument) => falling(e.turns, argument),
  /** 1 up to `argument` characters of the policy, falling to 0 at twice as many. */
  brief: (e, argument) =>
    falling(
      said(e).reduce((n, text) => n + text.length, 0),
      argument,
    ),
  /** Share of the policy's turns that differ from every earlier one. */
  no_repetition: (e) => {
    const turns = said(e);
    return turns.length === 0 ? 1 : new Set(turns).size / turns.length;
  },
};

const falling = (value: number, limit: number): number => Math.min(1, Math.max(0, 2 - value / limit));

export function ruleReward(name: string, rule: string, argument: number): RewardComponent {
  const score = RULES[rule]!;
  return { name, score: (e) => score(e, argument) };
}
