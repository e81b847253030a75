/** Learning: advantages, losses and their registries, the trainer actor and its checkpoints. */
export {
  type AdvantageEstimator,
  type AdvantageInput,
  type AdvantageOptions,
  advantageEstimator,
  advantageEstimatorNames,
  registerAdvantageEstimator,
} from './advantages.ts';
export { type AggregationMode, aggregationModes } from './aggregation.ts';
export { type CheckpointState, modelFolder, readCheckpoint, sweepCheckpoints, writeCheckpoint } from './checkpoint.ts';
export {
  checkpointName,
  checkpointSteps,
  newestWhole,
  setAside,
  verifyCheckpoint,
  type WholeCheckpoint,
} from './checkpoint-manifest.ts';
export { type KlEstimator, klDerivative, klEstimator, klValue } from './kl.ts';
export { type Correction, corrections, type Rejection, rejections } from './off-policy.ts';
export { type PolicyLoss, type PolicyLossOptions, policyLoss, policyLossNames, registerPolicyLoss } from './policy-losses.ts';
export { aggregationOf, objectiveOptions, type Recipe, refuseRouterLoss } from './recipe.ts';
export { learningRate, type Schedule } from './schedule.ts';
export { maskTruncated, overlongPenalty, type ShapingOptions, shapeRewards } from './shaping.ts';
export { crossEntropy, type DemonstrationBatch, DemonstrationOrder, type MaskedSequence, packDemonstrations } from './supervised.ts';
export { Trainer, TrainerActor } from './trainer.ts';
export type { SftOptions, TrainerOptions, UpdateResult } from './trainer-types.ts';
export { type Metrics, spread } from './update-metrics.ts';
