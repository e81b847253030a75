/**
 * The trajectory queue: AReaL's admission rule, and acceptance in task-index order.
 *
 *   capacity = min(max_concurrent - running, (eta + step + 1) * batch - (accepted + waiting + running))
 *
 * counted in trajectories; whole groups are admitted, in index order, while capacity holds one. A finished group waits until every group
 * before it is settled, then it is accepted or filtered; batches are the accepted groups in that order. The price is that one slow group
 * holds back the acceptance (not the sampling) of those behind it; what it buys is that no batch favours short episodes and that eta = 0
 * equals the synchronous run token for token. A group occupies `groupSize` places however many members it still has.
 */
import { ActorsError } from '../errors.ts';
import { type Ledger, trajectoryKey } from './ledger.ts';
import { hasValidReward, type Trajectory, type TrajectoryGroup } from './types.ts';

export interface QueueOptions {
  /** Samples of a group, at most where `samplesOf` is given. */
  groupSize: number;
  /** Samples of the group of a task; asked once, when it is admitted. */
  samplesOf?: (task: number) => number;
  /** Groups of a training batch. */
  batchGroups: number;
  /** eta: training steps that a batch may lag behind. */
  staleness: number;
  /** Trajectories that may be unfinished at once. */
  maxConcurrent: number;
  ledger: Ledger;
  /** Why a group must not be trained, or undefined. Judged in index order. */
  filter?: (group: TrajectoryGroup) => string | undefined;
  /** Batches' worth of groups that may be drawn to fill one batch before it is closed short. */
  maxGeneratedBatches?: number;
}

export interface Batch {
  /** Training step (from 0) that this batch is for. */
  step: number;
  groups: TrajectoryGroup[];
  /** First task index that no batch so far has drawn: where a restored run goes on. */
  cursor: number;
  /** Groups drawn for this batch, the filtered included. */
  drawn: number;
  /** Filtered groups by reason. */
  filtered: Record<string, number>;
  /** Scores of everything drawn, filtered groups included: the score of the policy and not of the selection. In task order. */
  results: { task: number; rewards: number[] }[];
}

export class TrajectoryQueue {
  readonly #o: QueueOptions;
  #step = 0;
  #next = 0;
  #running = 0;
  #accepted = 0;
  /** Finished groups that wait for an earlier one. */
  readonly #finished = new Map<number, TrajectoryGroup>();
  readonly #dispatched = new Set<number>();
  /** Of groups that are not settled. */
  readonly #sizes = new Map<number, number>();
  /** Task index up to which everything is settled. */
  #frontier = 0;
  #open: Batch;
  #closed: Batch[] = [];
  #closedCount = 0;
  #closedCursor = 0;

  constructor(o: QueueOptions) {
    this.#o = o;
    if (o.maxConcurrent < o.groupSize) {
      throw new ActorsError(
        'SINKFLEX_QUEUE_CAPACITY',
        `${o.maxConcurrent} trajectories may run at once, fewer than the ${o.groupSize} of one group: raise rollout.max_num_seqs or lower rollout.n.`,
      );
    }
    this.#open = this.#newBatch();
  }

  get step(): number {
    return this.#step;
  }
  get running(): number {
    return this.#running * this.#o.groupSize;
  }
  get waiting(): number {
    return this.#finished.size * this.#o.groupSize;
  }
  /** Groups of the batch that is filling, and whole batches ready. */
  get filling(): { groups: number; ready: number } {
    return { groups: this.#open.groups.length, ready: this.#closed.length };
  }

  capacity(): number {
    const { groupSize, batchGroups, staleness, maxConcurrent } = this.#o;
    const occupied = this.#accepted * groupSize + this.waiting + this.running;
    return Math.min(maxConcurrent - this.running, (staleness + this.#step + 1) * batchGroups * groupSize - occupied);
  }

  /** Admits the next task, or undefined while there is no room. The caller must dispatch it. */
  admit(): number | undefined {
    const { groupSize, staleness } = this.#o;
    if (this.capacity() < groupSize) return undefined;
    const open = staleness + this.#step + 1 - this.#closedCount;
    if (this.#next >= this.#closedCursor + open * this.#drawLimit()) return undefined;
    const task = this.#next++;
    this.#running++;
    this.#dispatched.add(task);
    const size = this.#o.samplesOf?.(task) ?? groupSize;
    this.#sizes.set(task, size);
    for (let s = 0; s < size; s++) this.#o.ledger.sample(trajectoryKey(task, s));
    return task;
  }

  /** The group's actor was lost: the same task begins anew with the same keys. */
  redo(task: number, reason: string): void {
    if (!this.#dispatched.has(task)) throw this.#unexpected(task, 'redone');
    for (let s = 0; s < this.#sizes.get(task)!; s++) {
      this.#o.ledger.abort(trajectoryKey(task, s), reason);
      this.#o.ledger.sample(trajectoryKey(task, s));
    }
  }

  /** A dispatched group came back, in any order. Members that infrastructure lost for good have stopReason `error`. */
  finish(group: TrajectoryGroup): void {
    if (!this.#dispatched.delete(group.task)) throw this.#unexpected(group.task, 'finished');
    this.#running--;
    this.#finished.set(group.task, group);
    for (let g = this.#finished.get(this.#frontier); g; g = this.#finished.get(this.#frontier)) {
      this.#finished.delete(this.#frontier);
      this.#frontier++;
      this.#settle(g);
    }
  }

  /** The next full batch, in order, or undefined. Its trajectories stay in flight until `trained`. */
  takeBatch(): Batch | undefined {
    return this.#closed.shift();
  }

  /** The optimiser consumed a batch. */
  trained(batch: Batch, lineage: number): void {
    const keys = batch.groups.flatMap((g) => g.trajectories.map((t) => trajectoryKey(t.task, t.sample)));
    this.#o.ledger.train(keys, { lineage, step: batch.step + 1 });
    this.#step = batch.step + 1;
  }

  /** A batch was not trained, and will not be. */
  discarded(batch: Batch, reason: string): void {
    for (const g of batch.groups) for (const t of g.trajectories) this.#o.ledger.filter(trajectoryKey(t.task, t.sample), reason);
    this.#step = batch.step + 1;
  }

  /** Goes on from a checkpoint taken after `step` steps whose batches had drawn the tasks before `cursor`. Whatever was under way is abandoned. */
  restore(step: number, cursor: number): void {
    this.#step = step;
    this.#next = cursor;
    this.#frontier = cursor;
    this.#running = 0;
    this.#accepted = step * this.#o.batchGroups;
    this.#finished.clear();
    this.#dispatched.clear();
    this.#sizes.clear();
    this.#closed = [];
    this.#closedCount = step;
    this.#closedCursor = cursor;
    this.#open = this.#newBatch();
  }

  #newBatch(): Batch {
    return { step: this.#closedCount, groups: [], cursor: this.#closedCursor, drawn: 0, filtered: {}, results: [] };
  }

  #drawLimit(): number {
    return this.#o.batchGroups * Math.max(1, this.#o.maxGeneratedBatches ?? 1);
  }

  #settle(group: TrajectoryGroup): void {
    const { ledger, batchGroups } = this.#o;
    const groupSize = this.#sizes.get(group.task)!;
    this.#sizes.delete(group.task);
    const open = this.#open;
    const kept: Trajectory[] = [];
    for (const t of group.trajectories) {
      const key = trajectoryKey(t.task, t.sample);
      for (let r = 0; r < t.redone; r++) {
        ledger.abort(key, 'environment');
        ledger.sample(key);
      }
      if (t.stopReason === 'error' || t.stopReason === 'aborted') ledger.abort(key, t.stopReason);
      else if (!hasValidReward(t)) ledger.filter(key, 'invalid_reward');
      else kept.push(t);
    }
    for (let s = 0; s < groupSize; s++) {
      if (!group.trajectories.some((t) => t.sample === s)) ledger.abort(trajectoryKey(group.task, s), 'lost');
    }
    const valid: TrajectoryGroup = { ...group, trajectories: kept.sort((a, b) => a.sample - b.sample) };
    open.results.push({ task: group.task, rewards: kept.map((t) => t.reward) });
    const reason = kept.length < Math.min(2, groupSize) ? 'too_few_valid' : this.#o.filter?.(valid);
    open.drawn++;
    if (reason === undefined) {
      open.groups.push(valid);
      this.#accepted++;
    } else {
      for (const t of kept) ledger.filter(trajectoryKey(t.task, t.sample), reason);
      open.filtered[reason] = (open.filtered[reason] ?? 0) + 1;
    }
    if (open.groups.length === batchGroups || open.drawn >= this.#drawLimit()) this.#close();
  }

  #close(): void {
    const open = this.#open;
    // A batch closed short still takes its whole place: otherwise the next ones would run ahead of the bound.
    this.#accepted += this.#o.batchGroups - open.groups.length;
    open.cursor = this.#frontier;
    this.#closed.push(open);
    this.#closedCount++;
    this.#closedCursor = this.#frontier;
    this.#open = this.#newBatch();
  }

  #unexpected(task: number, what: string): ActorsError {
    return new ActorsError(
      'SINKFLEX_LEDGER_UNKNOWN',
      `task ${task} cannot be ${what}: it is not being sampled. This is a defect of the dataflow; please report it.`,
      { details: { task } },
    );
  }
}

/** DAPO's dynamic sampling: a group whose rewards are all equal teaches nothing. */
export function zeroSpread(group: TrajectoryGroup): string | undefined {
  const first = group.trajectories[0]!.reward;
  return group.trajectories.every((t) => Math.abs(t.reward - first) <= 1e-9) ? 'zero_std' : undefined;
}
