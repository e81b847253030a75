/**
 * Tasks in, batches out: admission, dispatch to the pool, acceptance in index order. Both modes run on this; they differ in how far it may
 * run ahead. All state is in the queue and the ledger; this only moves it along when something happened.
 */
import { ActorsError } from '../errors.ts';
import type { DrawnTask, TaskSource } from '../tasks/index.ts';
import { type Batch, type Ledger, type Trajectory, TrajectoryQueue, zeroSpread } from '../trajectory/index.ts';
import type { TrainingConfig } from './config.ts';
import type { RolloutPool } from './pool.ts';

export interface DataflowOptions {
  queue: TrajectoryQueue;
  ledger: Ledger;
  pool: RolloutPool;
  temperature: number;
  /** Training task `index`. */
  taskOf: (index: number) => DrawnTask;
  onGroup?: (trajectories: Trajectory[]) => void;
  onLost?: (task: number) => void;
}

/** The queue that the settings describe. `capacity`: episodes that may be under way at once. */
export function openQueue(
  config: TrainingConfig,
  o: { tasks: TaskSource; ledger: Ledger; pool: Pick<RolloutPool, 'capacity'> },
): TrajectoryQueue {
  const { filter_groups: filter } = config.algorithm;
  return new TrajectoryQueue({
    groupSize: config.rollout.n,
    samplesOf: (index) => o.tasks.draw(index).samples,
    batchGroups: config.data.train_batch_size,
    staleness: config.mode === 'sync' ? 0 : config.async_training.staleness_threshold,
    // Hosts come and go.
    get maxConcurrent() {
      return Math.max(o.pool.capacity, config.rollout.n);
    },
    ledger: o.ledger,
    ...(filter.enable ? { filter: zeroSpread } : {}),
    maxGeneratedBatches: filter.max_num_gen_batches,
  });
}

export class Dataflow {
  readonly #o: DataflowOptions;
  #lineage = new AbortController();
  #paused = false;
  #failure: unknown;
  #waiter: { resolve: (b: Batch) => void; reject: (e: unknown) => void } | undefined;

  constructor(o: DataflowOptions) {
    this.#o = o;
  }

  /** Admits and dispatches whatever may be. */
  pump(): void {
    if (this.#paused || this.#failure !== undefined) return;
    const { queue } = this.#o;
    for (let task = queue.admit(); task !== undefined; task = queue.admit()) this.#dispatch(task);
  }

  /** The next batch, in order. One caller at a time. */
  async nextBatch(): Promise<Batch> {
    this.pump();
    if (this.#failure !== undefined) throw this.#failure;
    const ready = this.#o.queue.takeBatch();
    if (ready) return this.#checked(ready);
    if (this.#waiter) throw new Error('nextBatch is called by one loop only');
    return new Promise((resolve, reject) => {
      this.#waiter = { resolve, reject };
    });
  }

  /** Admits nothing new until `resume`; what runs goes on. */
  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.pump();
  }

  /** Abandons everything under way and goes on from a checkpoint. */
  rollback(step: number, cursor: number): void {
    this.#lineage.abort(new ActorsError('SINKFLEX_ROLLOUT_ABANDONED', 'abandoned: the run went back to a checkpoint'));
    this.#lineage = new AbortController();
    this.#waiter = undefined;
    this.#o.ledger.rollback(step);
    this.#o.queue.restore(step, cursor);
  }

  /** The run ends: everything under way is abandoned. */
  stop(reason: string): void {
    this.#paused = true;
    this.#lineage.abort(new ActorsError('SINKFLEX_ROLLOUT_ABANDONED', `abandoned: ${reason}`));
    this.#o.ledger.abortAll(reason);
    this.#waiter = undefined;
  }

  #dispatch(task: number): void {
    const { queue, pool, temperature, taskOf } = this.#o;
    const { samples, ...drawn } = taskOf(task);
    const signal = this.#lineage.signal;
    const lost = () => {
      queue.redo(task, 'actor_died');
      this.#o.onLost?.(task);
    };
    pool.run({ tasks: [{ index: task, ...drawn }], samples, phase: 'train', temperature }, signal, lost).then(
      (trajectories) => {
        // A late answer of an abandoned lineage: its episodes are in the ledger as aborted.
        if (signal.aborted) return;
        this.#guard(() => {
          queue.finish({ task, group: trajectories[0]?.group ?? String(task), trajectories });
          this.#o.onGroup?.(trajectories);
          const batch = this.#waiter ? queue.takeBatch() : undefined;
          if (batch) {
            const checked = this.#checked(batch);
            this.#waiter!.resolve(checked);
            this.#waiter = undefined;
          }
          this.pump();
        });
      },
      (e: unknown) => {
        if (!signal.aborted) this.#fail(e);
      },
    );
  }

  /** A batch of which nothing is left because no reward was a number is a defect of the environment, not a batch. */
  #checked(batch: Batch): Batch {
    if (batch.groups.length === 0 && !batch.filtered.zero_std) {
      throw new ActorsError(
        'SINKFLEX_REWARD_INVALID',
        `none of the ${batch.drawn} groups drawn for step ${batch.step + 1} has two episodes with a finite reward: look at the environment's reward function and at the aborted counts in ledger.json.`,
      );
    }
    return batch;
  }

  #guard(action: () => void): void {
    try {
      action();
    } catch (e) {
      this.#fail(e);
    }
  }

  /** Nothing is swallowed: whoever waits for a batch, or asks for the next one, gets the error. */
  #fail(e: unknown): void {
    this.#failure ??= e;
    this.#waiter?.reject(e);
    this.#waiter = undefined;
  }
}
