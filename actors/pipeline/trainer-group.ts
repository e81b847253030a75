/**
 * The trainers of a run as one: every call goes to all of them, which do it together, and the first answers. When one of them is lost the step
 * is lost with it; `rewind` and `begin` bring them together anew.
 */
import { isSinkflexError } from '../../kernels/index.ts';
import { type ActorHandle, createCollective, type ObjectRef, put, ready } from '../../runtime/index.ts';
import type { CheckpointState, SftOptions, TrainerActor, UpdateResult } from '../trainer/index.ts';
import type { PackedTrajectories } from '../trajectory/index.ts';

type Handle = ActorHandle<typeof TrainerActor>;
type Demonstrations = Parameters<Handle['sft']>[0];

/** A trainer that died is there again within this, or it does not come back. */
const READY_MS = 60_000;

export class TrainerGroup {
  readonly members: readonly Handle[];

  constructor(members: readonly Handle[]) {
    this.members = members;
  }

  get #first(): Handle {
    return this.members[0]!;
  }

  sft(batch: Demonstrations, o: SftOptions): PromiseLike<Awaited<ReturnType<Handle['sft']>>> {
    if (this.members.length === 1) return this.#first.sft(batch, o);
    const step = this.#all((t) => t.sft(batch, o));
    // Steps are sent ahead: those behind one that failed are not waited for.
    step.catch(() => {});
    return step;
  }

  async update(packed: PackedTrajectories, o: { lr: number }, scores?: ObjectRef<Float32Array>): Promise<UpdateResult> {
    if (this.members.length === 1) return scores ? this.#first.update(packed, o, scores) : this.#first.update(packed, o);
    // Once in shared memory for all of them.
    const shared = put(packed);
    try {
      return await this.#all((t) => (scores ? t.update(shared, o, scores) : t.update(shared, o)));
    } finally {
      shared.release();
    }
  }

  /** The moments of all trainers in files of their own, beside the place of a checkpoint; none where one trainer has them all. */
  async saveShards(checkpoint: string): Promise<string[]> {
    if (this.members.length === 1) return [];
    return Promise.all(this.members.map((t) => t.saveShard(checkpoint)));
  }

  /** Begins before it returns: calls after it change nothing of what is saved. */
  save(...args: Parameters<Handle['save']>): PromiseLike<CheckpointState> {
    return this.#first.save(...args);
  }

  async rewind(dir: string, lineage: number): Promise<CheckpointState> {
    await this.#meet();
    return this.#all((t) => t.rewind(dir, lineage));
  }

  /** Whether the successor of a lost trainer found the whole state of this version in the slots. Of several, each has moments of its own. */
  async resume(at: { lineage: number; version: number }): Promise<boolean> {
    return this.members.length === 1 && (await this.#first.resume(at));
  }

  async begin(): Promise<void> {
    await this.#meet();
    await this.#all((t) => t.begin());
  }

  async resetOptimizer(): Promise<void> {
    await this.#all((t) => t.resetOptimizer());
  }

  async #meet(): Promise<void> {
    if (this.members.length === 1) return;
    await Promise.all(this.members.map((t) => ready(t, { timeoutMs: READY_MS })));
    const group = createCollective(this.members.length);
    await this.#all((t) => t.join(group));
  }

  /** What the first answers, when all have; the failure of one that did not only hear of another's. */
  async #all<T>(call: (trainer: Handle) => PromiseLike<T>): Promise<T> {
    const answers = await Promise.allSettled(this.members.map(call));
    const failures = answers.flatMap((a) => (a.status === 'rejected' ? [a.reason as unknown] : []));
    if (failures.length > 0) throw failures.find((e) => !(isSinkflexError(e) && e.code === 'SINKFLEX_COLLECTIVE_BROKEN')) ?? failures[0];
    return (answers[0] as PromiseFulfilledResult<T>).value;
  }
}
