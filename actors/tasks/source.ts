/** The task source of a run: training tasks by the index of the draw, held-out tasks by their number; from files, or from the environment's generator. */
import { trainingTask, validationTask } from '../environment/seeds.ts';
import { adaptiveGroupSize, makeSampler, type Sampler, type SamplerContext, type SamplerState } from './samplers.ts';
import type { Task, TaskResult, TaskRow } from './types.ts';

export interface TaskSourceOptions extends Omit<SamplerContext, 'arms' | 'levelOf'> {
  sampler: string;
  /** Rows of the training files; undefined draws generated tasks. */
  train: readonly TaskRow[] | undefined;
  /** Rows of the held-out files; undefined takes `heldOutSeeds`, or generated tasks. */
  heldOut: readonly TaskRow[] | undefined;
  heldOutSeeds: readonly number[] | undefined;
  /** Levels among which generated tasks are drawn; none leaves the level to the environment's options. */
  levels: readonly number[];
  /** Samples of a group; with `adaptive` the most. */
  samples: number;
  adaptive: { least: number; target: number } | undefined;
}

export interface DrawnTask extends Task {
  samples: number;
}

export class TaskSource {
  readonly #o: TaskSourceOptions;
  readonly #sampler: Sampler;
  /** Draws whose results are not learnt yet. */
  readonly #drawn = new Map<number, { arm: number; samples: number }>();

  constructor(o: TaskSourceOptions) {
    this.#o = o;
    const { train, levels } = o;
    const arms = train?.length ?? Math.max(1, levels.length);
    this.#sampler = makeSampler(o.sampler, { ...o, arms, levelOf: train ? (arm) => train[arm]!.level : (arm) => levels[arm] });
  }

  /** Training task `index`. The same again while its result is not learnt. */
  draw(index: number): DrawnTask {
    const { train, levels, seed, samples, adaptive } = this.#o;
    let drawn = this.#drawn.get(index);
    if (!drawn) {
      const arm = this.#sampler.draw(index);
      drawn = { arm, samples: adaptive ? adaptiveGroupSize(this.#sampler.rate(arm), { ...adaptive, most: samples }) : samples };
      this.#drawn.set(index, drawn);
    }
    const { arm, samples: size } = drawn;
    if (train) return { ...taskOf(train[arm]!, trainingTask(0, arm)), samples: size };
    const level = levels[arm];
    return { seed: trainingTask(seed, index), ...(level === undefined ? {} : { options: { level } }), samples: size };
  }

  /** A batch was trained: what its groups earned changes later draws. In the order of tasks, filtered groups included. */
  learn(results: readonly TaskResult[]): void {
    for (const { task, rewards } of results) {
      const drawn = this.#drawn.get(task);
      this.#drawn.delete(task);
      if (drawn) this.#sampler.learn(drawn.arm, rewards);
    }
  }

  metrics(): Record<string, number> {
    return this.#sampler.metrics();
  }

  heldOut(index: number): Task {
    const { heldOut, heldOutSeeds } = this.#o;
    if (heldOut) return taskOf(heldOut[index]!, validationTask(index));
    return { seed: heldOutSeeds?.[index] ?? validationTask(index) };
  }

  /** How many held-out tasks there are; without end where they are generated. */
  get heldOutCount(): number {
    return this.#o.heldOut?.length ?? this.#o.heldOutSeeds?.length ?? Number.POSITIVE_INFINITY;
  }

  state(): SamplerState {
    return this.#sampler.state();
  }

  /** Goes on from a checkpoint; what was drawn after it is drawn again. */
  restore(state: SamplerState): void {
    this.#drawn.clear();
    this.#sampler.restore(state);
  }
}

const taskOf = (row: TaskRow, seed: number): Task => ({
  seed: row.seed ?? seed,
  ...(row.options === undefined ? {} : { options: row.options }),
});
