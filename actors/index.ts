/** The RL library: environments, language, rollouts, trajectories, learning, and the pipeline that joins them. */
export * from './archive/index.ts';
export * from './environment/index.ts';
export { ActorsError, type ActorsErrorCode, actorsErrorCodes, didYouMean } from './errors.ts';
export * from './language/index.ts';
export * from './pipeline/index.ts';
export * from './reference/index.ts';
export * from './reward/index.ts';
export * from './rollout/index.ts';
export * from './sandbox/index.ts';
export * from './serving/index.ts';
export * from './supervised/index.ts';
export * from './tasks/index.ts';
export * from './trainer/index.ts';
export * from './trajectory/index.ts';
