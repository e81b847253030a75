/** Rewards: composition by weights and gates of rules, verifiers, models and judges. docs/rewards.md describes it. */
export { RewardComposition } from './compose.ts';
export { EngineStates, type EngineStatesOptions } from './engine-states.ts';
export { type JudgeOptions, JudgeReward } from './judge.ts';
export { type ModuleRewardOptions, moduleReward } from './module-reward.ts';
export { fitHead, type HiddenStates, headValue, type LinearHead, modelReward, readHead, writeHead } from './reward-model.ts';
export { RewardedEnvironment } from './rewarded.ts';
export { environmentReward, RULES, ruleReward } from './rules.ts';
export { checkReward, composeReward, RewardComponentSettings, type RewardSettings, rewardNames } from './settings.ts';
export type * from './types.ts';
