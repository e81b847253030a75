/** A trajectory: the token ids of one episode exactly as the engine emitted or read them, with what the trainer needs beside each. */

/**
 * Why an episode ended. `stop`: the environment declared the end. `length`: the token budget was used up. `turns`: the turn budget was.
 * `aborted`: it was abandoned (rollback, shutdown). `error`: infrastructure failed beyond the retries. Never guessed from the last token.
 */
export type StopReason = 'stop' | 'length' | 'turns' | 'aborted' | 'error';

/** Wall-clock seconds; outside the promise of reproducibility. */
export interface TrajectorySeconds {
  /** When it began, since 1970; absent in what older versions stored. */
  began?: number;
  total: number;
  generate: number;
  environment: number;
}

export interface Trajectory {
  /** Index of the task in the run's task source; with `sample` it is the identity that all random keys derive from. */
  task: number;
  sample: number;
  /** Samples of one group share a prompt and are compared with each other. */
  group: string;
  /** What the environment was reset with. */
  seed: number;
  ids: Int32Array;
  /** 1 where the policy produced the token. */
  mask: Uint8Array;
  /**
   * Where the context was compacted: offsets at which a new sequence begins, ascending. Each sequence is a training sequence of its own; all
   * share the reward and the advantage of the episode. Absent where there is one sequence.
   */
  forks?: number[];
  /** log pi_behaviour at the sampling temperature over the full vocabulary; 0 where mask is 0. */
  logprobs: Float32Array;
  /** Version of the weight store that produced the token; -1 where mask is 0. */
  versions: Int32Array;
  /**
   * Routing replay: [n, layers, experts a token] the experts that each token went to when it was read; the largest value (255, 65535) where it
   * was not. Absent unless the run records them; stores leave them out.
   */
  experts?: Uint8Array | Uint16Array;
  lineage: number;
  reward: number;
  rewardParts: Record<string, number>;
  /** What the environment counted beside the score (policy violations and the like); no part of the reward. */
  diagnostics?: Record<string, number>;
  stopReason: StopReason;
  /** Turns of the policy. */
  turns: number;
  toolCalls: number;
  /** Turns that the parser refused. */
  malformed: number;
  /** How often the episode was begun anew because infrastructure failed. */
  redone: number;
  seconds: TrajectorySeconds;
}

/** The samples of one task, in sample order. A group may be short of members that infrastructure lost for good. */
export interface TrajectoryGroup {
  task: number;
  group: string;
  trajectories: Trajectory[];
}

/** Tokens that the policy produced (T_i). */
export function responseTokens(t: Trajectory): number {
  let n = 0;
  for (const m of t.mask) n += m;
  return n;
}

/** Tokens before the first one that the policy produced. */
export function promptTokens(t: Trajectory): number {
  const first = t.mask.indexOf(1);
  return first < 0 ? t.ids.length : first;
}

/** A NaN or infinite reward is an error of the reward function: reported and excluded, never trained. */
export function hasValidReward(t: Trajectory): boolean {
  return Number.isFinite(t.reward);
}
