// What a training run tells whoever watches it: phases, progress with live numbers, notes; and the result at its end.
import type { FaultPlanInput, FaultReport } from '../../runtime/index.ts';
import type { Interval } from './statistics.ts';

/** The parts of a run, in their order; validations stand between GRPO steps. */
export type Phase = 'start' | 'rollout' | 'warm start' | 'grpo' | 'validation' | 'save' | 'fine-tuning';

/** Live numbers. A watcher shows those that it knows and that are there. */
export interface ProgressNumbers {
  /** Rolling training score (share of the possible reward). */
  score?: number;
  /** Last validation score. */
  val?: number;
  loss?: number;
  /** Tokens of the trained sequences, prompts and observations among them, a second of the whole step. */
  tokensPerSecond?: number;
  /** Mean age of trained tokens, in versions. */
  staleness?: number;
  [name: string]: number | undefined;
}

export type ProgressEvent =
  /** A phase begins; `total` steps, tasks or episodes (0: unknown). `label` says which one, such as "before" for a validation. */
  | { kind: 'begin'; phase: Phase; total: number; label?: string; budgetSeconds?: number }
  | { kind: 'advance'; phase: Phase; done: number; numbers?: ProgressNumbers }
  | { kind: 'end'; phase: Phase; seconds: number; numbers?: ProgressNumbers }
  /** Actors came, went or restarted: all of the run as they are now. */
  | { kind: 'actors'; states: { name: string; state: string }[] }
  /** Something worth a line: an actor restarted, a rollback, a warning of the store. */
  | { kind: 'note'; level: 'info' | 'warning'; text: string };

export type ProgressListener = (event: ProgressEvent) => void;

/** How a run is started: `train(config, options)` gives a TrainingResult, or rejects with one typed error. */
export interface TrainingOptions {
  /** Name for the run folder and its config.yaml. */
  preset: string;
  onProgress?: ProgressListener;
  /** Ends everything within two seconds; the run rejects with SINKFLEX_ABORTED. */
  signal?: AbortSignal;
  /** What is to go wrong in the run: steps are those of GRPO. The report is in the run folder (faults.json), also if the run fails. */
  faults?: FaultPlanInput;
}

/** How a fixed policy scores on the held-out tasks: what a score must beat to mean anything. */
export interface Baseline {
  name: string;
  score: number;
}

/** Scores on tasks beside the held-out ones. */
export interface AlsoScored {
  name: string;
  tasks: number;
  score: Interval;
}

/** Fixed policies that say where the scale begins and ends. */
const SCALE: ReadonlySet<string> = new Set(['do-nothing', 'expert']);

/** The best of the fixed scripts: a score that a policy without insight reaches. */
export function bestFixedScript(baselines: readonly Baseline[]): Baseline | undefined {
  return baselines.filter((b) => !SCALE.has(b.name)).sort((a, b) => b.score - a.score)[0];
}

/** What a finished run hands back. */
export interface TrainingResult {
  /** Path of the run folder. */
  folder: string;
  mode: 'sync' | 'async';
  seed: number;
  /** Validation before the first step and after the last one; null where it was switched off. */
  before: Interval | null;
  after: Interval;
  /** mean@n of the validations: `n` samples a task at `temperature`. */
  validation: { tasks: number; n: number; temperature: number };
  /** pass@k and pass^k of the last validation, where val.n is above 1. */
  passRates: { k: number; passAtK: Interval; passHatK: Interval }[];
  /** Other tasks that the environment has its policies scored on, at the end. */
  also: AlsoScored[];
  /** Means of what the environment counted beside the score in the last validation: violations of its policy and the like. */
  diagnostics: Record<string, number>;
  /** What the environment says of every score: version of the tasks, basis, user, what doing nothing scores. */
  labels: Record<string, string>;
  /** Fixed policies on the same held-out tasks, `do-nothing` and `expert` among them. */
  baselines: Baseline[];
  steps: number;
  parameters: number;
  /** Trajectories trained, and tokens generated while training (validation apart). */
  trajectories: number;
  tokens: number;
  seconds: { warmStart: number; grpo: number; validation: number; total: number };
  /** Restarts of actors during the run. */
  restarts: number;
  /** What was to go wrong, and what came of it. */
  faults?: FaultReport;
}
