/**
 * Advantages: one number a trajectory from the rewards of a batch, in float64. Groups are by group id with the size they really have.
 * Rewards that are NaN or infinite must not come here (they are excluded and reported before); a group under two members teaches nothing.
 */
import { ActorsError, didYouMean } from '../errors.ts';

export interface AdvantageInput {
  /** [s] */
  rewards: Float64Array;
  /** [s] group index, ascending. */
  groupOf: Int32Array;
  /** [s] T_i: tokens that the policy produced. */
  responseTokens: Int32Array;
}

export interface AdvantageOptions {
  /** Divide by the group's standard deviation (false: Dr. GRPO). */
  normalizeByStd: boolean;
  std: 'sample' | 'population';
}

/** Fills one advantage a trajectory; every produced token of it gets that value. */
export type AdvantageEstimator = (input: AdvantageInput, o: AdvantageOptions) => Float64Array;

/** eps_A */
export const advantageEpsilon = 1e-6;
/** Rewards of a group that lie within this range of each other count as equal: exact zeros instead of amplified rounding. */
const equalRange = 1e-9;

const estimators = new Map<string, AdvantageEstimator>();

/** Adds an estimator under a name that `algorithm.adv_estimator` may take. */
export function registerAdvantageEstimator(name: string, estimator: AdvantageEstimator): void {
  estimators.set(name, estimator);
}

export function advantageEstimator(name: string): AdvantageEstimator {
  const found = estimators.get(name);
  if (found) return found;
  const near = didYouMean(name, estimators.keys());
  throw new ActorsError(
    'SINKFLEX_RECIPE_UNKNOWN',
    `algorithm.adv_estimator=${name} is not known${near ? `: did you mean ${near}?` : ''} (there are ${[...estimators.keys()].join(', ')})`,
  );
}

export function advantageEstimatorNames(): string[] {
  return [...estimators.keys()];
}

interface Group {
  members: number[];
  mean: number;
  /** All rewards equal. */
  flat: boolean;
}

function groups({ rewards, groupOf }: AdvantageInput): Group[] {
  const byId = new Map<number, number[]>();
  groupOf.forEach((g, i) => {
    const members = byId.get(g);
    if (members) members.push(i);
    else byId.set(g, [i]);
  });
  return [...byId.values()].map((members) => {
    let sum = 0;
    let low = Infinity;
    let high = -Infinity;
    for (const i of members) {
      sum += rewards[i]!;
      low = Math.min(low, rewards[i]!);
      high = Math.max(high, rewards[i]!);
    }
    return { members, mean: sum / members.length, flat: high - low <= equalRange };
  });
}

/** (R - mean) / (std + eps), or R - mean (Dr. GRPO). */
registerAdvantageEstimator('grpo', (input, o) => {
  const out = new Float64Array(input.rewards.length);
  for (const g of groups(input)) {
    if (g.flat || g.members.length < 2) continue;
    let squares = 0;
    for (const i of g.members) squares += (input.rewards[i]! - g.mean) ** 2;
    const std = Math.sqrt(squares / (o.std === 'sample' ? g.members.length - 1 : g.members.length));
    for (const i of g.members) out[i] = (input.rewards[i]! - g.mean) / (o.normalizeByStd ? std + advantageEpsilon : 1);
  }
  return out;
});

/** R minus the mean of the others: (R - mean) G / (G - 1). */
registerAdvantageEstimator('rloo', (input) => {
  const out = new Float64Array(input.rewards.length);
  for (const g of groups(input)) {
    const n = g.members.length;
    if (g.flat || n < 2) continue;
    for (const i of g.members) out[i] = ((input.rewards[i]! - g.mean) * n) / (n - 1);
  }
  return out;
});

/**
 * REINFORCE++ for an outcome reward, gamma = 1: the return of every produced token is R (carried through masked tokens), whitened over
 * the tokens of the batch with the unbiased variance.
 */
registerAdvantageEstimator('reinforce_plus_plus', (input) => whiten(input.rewards, input.responseTokens));

/** REINFORCE++-baseline: R minus the mean of the group, then whitened over the tokens of the batch. */
registerAdvantageEstimator('reinforce_plus_plus_baseline', (input) => {
  const centred = new Float64Array(input.rewards.length);
  const tokens = new Int32Array(input.rewards.length);
  for (const g of groups(input)) {
    if (g.members.length < 2) continue;
    for (const i of g.members) {
      centred[i] = g.flat ? 0 : input.rewards[i]! - g.mean;
      tokens[i] = input.responseTokens[i]!;
    }
  }
  return whiten(centred, tokens);
});

/** (x - mean) / sqrt(var + 1e-8), each value counted as often as it has tokens; exact zeros where all are equal. */
function whiten(values: Float64Array, tokens: Int32Array): Float64Array {
  let count = 0;
  let sum = 0;
  for (let i = 0; i < values.length; i++) {
    count += tokens[i]!;
    sum += tokens[i]! * values[i]!;
  }
  const out = new Float64Array(values.length);
  if (count < 2) return out;
  const mean = sum / count;
  let squares = 0;
  for (let i = 0; i < values.length; i++) squares += tokens[i]! * (values[i]! - mean) ** 2;
  const variance = squares / (count - 1);
  if (variance <= equalRange ** 2) return out;
  for (let i = 0; i < values.length; i++) if (tokens[i]! > 0) out[i] = (values[i]! - mean) / Math.sqrt(variance + 1e-8);
  return out;
}

export interface GroupStatistics {
  groups: number;
  /** Groups whose rewards are all equal. */
  zeroStd: number;
  /** Mean over groups of the sample standard deviation of the reward. */
  rewardStd: number;
}

export function groupStatistics(input: AdvantageInput): GroupStatistics {
  const all = groups(input);
  let zeroStd = 0;
  let stds = 0;
  for (const g of all) {
    if (g.flat) zeroStd++;
    else {
      let squares = 0;
      for (const i of g.members) squares += (input.rewards[i]! - g.mean) ** 2;
      stds += Math.sqrt(squares / (g.members.length - 1));
    }
  }
  return { groups: all.length, zeroStd, rewardStd: all.length === 0 ? 0 : stds / all.length };
}
