/** The recipe of an update as plain data: what the trainer needs of a configuration, checked once before anything starts. */
import type { ModelConfig, MomentDtype } from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';
import { advantageEstimator } from './advantages.ts';
import type { AggregationMode } from './aggregation.ts';
import { klLossEstimator } from './kl.ts';
import type { ObjectiveOptions } from './objective.ts';
import { type CorrectionOptions, refuseDoubleCorrection } from './off-policy.ts';
import { policyLoss } from './policy-losses.ts';
import type { ShapingOptions } from './shaping.ts';

export interface Recipe {
  advantage: { estimator: string; normalizeByStd: boolean; std: 'sample' | 'population' };
  loss: { mode: string; clipLow: number; clipHigh: number; dualClip: number | null; aggregation: AggregationMode; horizon: number };
  /** What happens to the rewards before advantages are taken. */
  shaping: ShapingOptions;
  kl: { coefficient: number; estimator: string };
  entropyCoefficient: number;
  /** Weight of the router's load-balancing loss; absent: 0. Of models with experts only. */
  routerAuxLossCoefficient?: number;
  correction: CorrectionOptions;
  /** o := b: the ratio is taken against the sampling policy, without recomputation. */
  oldIsBehaviour: boolean;
  /** Passes over a batch. */
  epochs: number;
  /** Prompts of one optimiser step; null takes the whole batch. */
  miniBatchPrompts: number | null;
  /** Tokens of one forward and backward pass. */
  microBatchTokens: number;
  /** Sequences of one pass at most; null: as many as the tokens allow. */
  microBatchSequences?: number | null;
  /** Routing replay: passes send tokens to the experts that the rollout chose, where trajectories tell them. */
  routerReplay?: boolean;
  /** Keep each layer's input only, and run the layers again in the backward. Changes memory and time, never results. */
  gradientCheckpointing?: boolean;
  optimizer: {
    gradClip: number;
    weightDecay: number;
    betas: [number, number];
    eps: number;
    /** What AdamW's moments are kept in; absent: float32. */
    moments?: MomentDtype;
    /** Of the stochastic rounding of bfloat16 weights. */
    seed?: number;
  };
  /** Temperature of the rollouts: log-probabilities are taken at it. */
  temperature: number;
}

/** The loss that a recipe describes; throws for whatever in it is unknown or makes no sense. */
export function objectiveOptions(r: Recipe): ObjectiveOptions {
  advantageEstimator(r.advantage.estimator);
  refuseDoubleCorrection(r.oldIsBehaviour, r.correction);
  if (!(r.temperature > 0))
    throw new ActorsError(
      'SINKFLEX_LOSS_OPTION',
      'rollout.temperature must be above 0 for training: greedy rollouts have no exploration and no meaningful ratio.',
    );
  return {
    policyLoss: policyLoss(r.loss.mode),
    clipLow: r.loss.clipLow,
    clipHigh: r.loss.clipHigh,
    dualClip: r.loss.dualClip,
    correction: r.correction,
    klCoefficient: r.kl.coefficient,
    klEstimator: klLossEstimator(r.kl.estimator),
    entropyCoefficient: r.entropyCoefficient,
  };
}

/** A dense model has no router whose load could be balanced. */
export function refuseRouterLoss(coefficient: number, model: Pick<ModelConfig, 'model_type' | 'num_local_experts'>, option: string): void {
  if (coefficient === 0 || model.num_local_experts > 0) return;
  throw new ActorsError(
    'SINKFLEX_LOSS_OPTION',
    `${option} = ${coefficient} weighs the load of experts, and this model (${model.model_type}) has none: set it to 0.`,
  );
}

/** GSPO fixes its own aggregation. */
export function aggregationOf(r: Recipe): AggregationMode {
  return policyLoss(r.loss.mode).aggregation ?? r.loss.aggregation;
}
