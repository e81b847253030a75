/** What a reward sees and what it is made of. Plain data: components run in worker threads and on other machines. */
import type { MaybePromise, Message } from '../environment/types.ts';

/** A finished episode, as rewards see it. */
export interface ScoredEpisode {
  environment: string;
  seed: number;
  /** Everything that was said, the policy's turns as `assistant`. */
  messages: readonly Message[];
  /** The environment's own score, and its named parts. */
  reward: number;
  rewardParts: Readonly<Record<string, number>>;
  /** It came to an end of its own; else a limit ended it. */
  terminated: boolean;
  /** Turns of the policy, and those that nobody could read. */
  turns: number;
  malformed: number;
  /** What the environment said at the end. */
  info: Readonly<Record<string, unknown>>;
}

/** One value of an episode. Rejects with SINKFLEX_REWARD_FAILED where its machinery failed; what is not finite is refused by who asks. */
export interface RewardComponent {
  readonly name: string;
  score(episode: ScoredEpisode, signal: AbortSignal): MaybePromise<number>;
  close?(): MaybePromise<void>;
}

/** How a component counts. Weights add up; gates decide first. */
export interface Weighted {
  component: RewardComponent;
  /** Of its value in the sum; 0 logs it alone. */
  weight: number;
  /** Where its value is below this, the whole reward is `closed` and no later component is asked. */
  gate?: number;
  /** Longest wait, milliseconds. */
  timeoutMs: number;
}

export interface Composed {
  reward: number;
  /** Value of each component that was asked. */
  parts: Record<string, number>;
  /** The gate that was shut. */
  shut?: string;
}
