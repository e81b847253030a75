/** An environment whose score is composed: it plays as before, and at its end the composition's reward takes the place of its own. */
import { isSinkflexError } from '../../kernels/index.ts';
import type { Action, Environment, Message, ResetOptions, ResetResult, StepResult } from '../environment/types.ts';
import type { RewardComposition } from './compose.ts';

export class RewardedEnvironment implements Environment {
  readonly #name: string;
  readonly #inner: Environment;
  readonly #composition: RewardComposition;
  #seed = 0;
  #messages: Message[] = [];
  #reward = 0;
  #turns = 0;
  #malformed = 0;

  constructor(name: string, inner: Environment, composition: RewardComposition) {
    this.#name = name;
    this.#inner = inner;
    this.#composition = composition;
  }

  async reset(o: ResetOptions): Promise<ResetResult> {
    const result = await this.#inner.reset(o);
    this.#seed = o.seed;
    this.#messages = [...result.observation];
    this.#reward = 0;
    this.#turns = 0;
    this.#malformed = 0;
    return result;
  }

  async step(action: Action): Promise<StepResult> {
    const step = await this.#inner.step(action);
    const calls = action.toolCalls.length > 0 ? { toolCalls: action.toolCalls } : {};
    this.#messages.push({ role: 'assistant', content: action.text, ...calls }, ...step.observation);
    this.#turns++;
    if (action.malformed !== undefined) this.#malformed++;
    this.#reward += step.reward;
    // The composition decides the whole score, so nothing is given out before the end.
    if (!step.terminated && !step.truncated) return { ...step, reward: 0 };
    const { rewardParts, ...info } = step.info;
    try {
      const { reward, parts, shut } = await this.#composition.score({
        environment: this.#name,
        seed: this.#seed,
        messages: this.#messages,
        reward: this.#reward,
        rewardParts: (rewardParts ?? {}) as Record<string, number>,
        terminated: step.terminated,
        turns: this.#turns,
        malformed: this.#malformed,
        info,
      });
      return {
        ...step,
        reward,
        info: { ...info, rewardParts: parts, environmentReward: this.#reward, ...(shut === undefined ? {} : { gate: shut }) },
      };
    } catch (cause) {
      // A value that is no number is the reward's defect: the episode goes on as one without a reward, which is reported and never trained.
      if (!isSinkflexError(cause) || cause.code !== 'SINKFLEX_REWARD_INVALID') throw cause;
      return { ...step, reward: Number.NaN, info: { ...info, rewardParts: {}, rewardError: cause.message } };
    }
  }

  async close(): Promise<void> {
    await this.#inner.close();
  }
}
