/** Pass rates as the samplers know them: by arm (a row of a file, or a level), older results counting less. */

/** [weight, weighted sum of pass rates] by arm. */
export type EstimateState = Record<string, [number, number]>;

export class Estimates {
  readonly #decay: number;
  #arms = new Map<number, { weight: number; sum: number }>();

  /** `decay`: what a group's result still counts when the next one comes. */
  constructor(decay: number) {
    this.#decay = decay;
  }

  /** Rewards are shares of a solved task: what is outside [0, 1] counts as its nearer end. */
  add(arm: number, rewards: readonly number[]): void {
    if (rewards.length === 0) return;
    const rate = rewards.reduce((sum, r) => sum + Math.min(1, Math.max(0, r)), 0) / rewards.length;
    const a = this.#arms.get(arm) ?? { weight: 0, sum: 0 };
    this.#arms.set(arm, { weight: a.weight * this.#decay + 1, sum: a.sum * this.#decay + rate });
  }

  rate(arm: number): number | undefined {
    const a = this.#arms.get(arm);
    return a && a.sum / a.weight;
  }

  /** Groups that the estimate rests on, older ones counting less. */
  weight(arm: number): number {
    return this.#arms.get(arm)?.weight ?? 0;
  }

  state(): EstimateState {
    return Object.fromEntries([...this.#arms].sort(([a], [b]) => a - b).map(([arm, a]) => [arm, [a.weight, a.sum]]));
  }

  restore(state: EstimateState): void {
    this.#arms = new Map(Object.entries(state).map(([arm, [weight, sum]]) => [Number(arm), { weight, sum }]));
  }
}
