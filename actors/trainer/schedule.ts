/** The course of the learning rate: linear warm-up, then constant, linear or cosine. Pure: a resumed run asks for the same step. */

export interface Schedule {
  lr: number;
  warmupSteps: number;
  kind: 'constant' | 'linear' | 'cosine';
  /** Share of lr at the last step (linear, cosine). */
  minRatio: number;
  totalSteps: number;
}

/** Learning rate of optimiser step `step` (from 0). */
export function learningRate(s: Schedule, step: number): number {
  const warm = s.warmupSteps > 0 ? Math.min(1, (step + 1) / s.warmupSteps) : 1;
  const span = Math.max(1, s.totalSteps - s.warmupSteps);
  const done = Math.min(1, Math.max(0, step - s.warmupSteps) / span);
  const shape =
    s.kind === 'constant'
      ? 1
      : s.kind === 'linear'
        ? 1 - (1 - s.minRatio) * done
        : s.minRatio + ((1 - s.minRatio) * (1 + Math.cos(Math.PI * done))) / 2;
  return s.lr * warm * shape;
}
