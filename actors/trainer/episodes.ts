/** Episodes and their sequences: usually one each; where the context was compacted, several that share one reward and one advantage. */
import type { PackedTrajectories } from '../trajectory/index.ts';

export class Episodes {
  /** [s] the episode of each sequence. */
  readonly of: Int32Array;
  /** The first sequence of each episode. */
  readonly #first: number[] = [];

  constructor({ tasks, samples }: Pick<PackedTrajectories, 'tasks' | 'samples'>) {
    this.of = new Int32Array(tasks.length);
    for (let i = 0; i < tasks.length; i++) {
      if (i === 0 || tasks[i] !== tasks[i - 1] || samples[i] !== samples[i - 1]) this.#first.push(i);
      this.of[i] = this.#first.length - 1;
    }
  }

  /** What all sequences of an episode have alike, once an episode. */
  once<A extends Float64Array | Int32Array>(values: A): A {
    return (values.constructor as unknown as { from(v: readonly number[]): A }).from(this.#first.map((i) => values[i]!));
  }

  /** Sums over the sequences of each episode. */
  sums(values: Int32Array): Int32Array {
    const out = new Int32Array(this.#first.length);
    for (let i = 0; i < values.length; i++) out[this.of[i]!]! += values[i]!;
    return out;
  }

  /** Shaped rewards of the episodes: what shaping took from any of their sequences is taken from the one reward. */
  shaped(rewards: Float64Array, shaped: Float64Array): Float64Array {
    const out = this.once(shaped);
    for (let i = 0; i < rewards.length; i++) if (i !== this.#first[this.of[i]!]) out[this.of[i]!]! += shaped[i]! - rewards[i]!;
    return out;
  }

  /** One value an episode as one value a sequence. */
  spread(values: Float64Array): Float64Array {
    return Float64Array.from(this.of, (e) => values[e]!);
  }
}
