/** Stored rollouts as a source of batches: the trajectories that a run trained in each step, in its order. */
import { ActorsError } from '../errors.ts';
import { type Batch, fromRecord, type Ledger, type Trajectory, type TrajectoryStore, trajectoryKey } from '../trajectory/index.ts';
import type { BatchSource } from './policy-steps.ts';

export class Replay implements BatchSource {
  /** The last step that was stored. */
  readonly last: number;
  readonly #store: TrajectoryStore;
  readonly #ledger: Ledger;
  #step: number;

  private constructor(store: TrajectoryStore, o: { last: number; after: number; ledger: Ledger }) {
    this.#store = store;
    this.last = o.last;
    this.#step = o.after;
    this.#ledger = o.ledger;
  }

  /** Batches of the steps after `after`. SINKFLEX_REPLAY where not all that was trained is stored, or nothing. */
  static async open(store: TrajectoryStore, o: { after: number; ledger: Ledger }): Promise<Replay> {
    const last = (await store.stepsOf('train')).at(-1) ?? 0;
    if (last <= o.after) throw new ActorsError('SINKFLEX_REPLAY', `${store.place} has no rollouts of steps after ${o.after}`);
    let stored = 0;
    for await (const _ of store.heads({ phase: 'train' })) stored++;
    const trained = await store.consumedCount();
    if (stored < trained)
      throw new ActorsError(
        'SINKFLEX_REPLAY',
        `${store.place} has ${stored} of the ${trained} trajectories that were trained: a run keeps all with trainer.max_trajectories_per_step=null`,
      );
    return new Replay(store, { ...o, last });
  }

  /** A step of which dynamic sampling had left nothing is an empty batch here too. */
  async nextBatch(): Promise<Batch> {
    const step = this.#step++;
    const groups = new Map<number, { task: number; group: string; trajectories: Trajectory[] }>();
    for await (const record of this.#store.read({ phase: 'train', steps: [step + 1, step + 1] })) {
      const t = fromRecord(record);
      this.#ledger.sample(trajectoryKey(t.task, t.sample));
      const group = groups.get(t.task);
      if (group) group.trajectories.push(t);
      else groups.set(t.task, { task: t.task, group: t.group, trajectories: [t] });
    }
    const all = [...groups.values()];
    const results = all.map((g) => ({ task: g.task, rewards: g.trajectories.map((t) => t.reward) }));
    return { step, groups: all, cursor: Math.max(-1, ...groups.keys()) + 1, drawn: all.length, filtered: {}, results };
  }

  pump(): void {}
}
