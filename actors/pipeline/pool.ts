/**
 * The rollout actors as one pool: work goes to the actor with the fewest episodes under way, as late as possible, and what a dead actor
 * had is begun anew (same keys, so the same episodes). Where an episode runs does not change it: see the numeric contract.
 */
import { isSinkflexError, type SinkflexError } from '../../kernels/index.ts';
import type { Task } from '../tasks/index.ts';
import type { Trajectory } from '../trajectory/index.ts';

/** Tasks with `samples` episodes each. */
export interface Assignment {
  tasks: ({ index: number } & Task)[];
  samples: number;
  /** `train` keys derive from the run's seed, `validation` ones from a constant. */
  phase: 'train' | 'validation';
  temperature: number;
}

/** The one method of a rollout actor that the pool needs. */
export interface RolloutWorker {
  readonly name: string;
  rollout(assignment: Assignment, signal: AbortSignal): PromiseLike<Trajectory[]>;
}

interface Job {
  assignment: Assignment;
  episodes: number;
  signal: AbortSignal;
  resolve: (t: Trajectory[]) => void;
  reject: (e: unknown) => void;
  /** The actor that had it is gone; it will be handed out again. */
  onLost: (() => void) | undefined;
}

interface Place {
  worker: RolloutWorker;
  load: number;
  retired: boolean;
}

/** Places by load, so that thousands of actors cost no more than a few to choose from. */
class ByLoad {
  readonly #buckets: Set<Place>[] = [];
  /** No place has a smaller load. */
  #lowest = 0;

  constructor(places: readonly Place[]) {
    for (const p of places) this.add(p);
  }

  add(p: Place): void {
    this.#bucket(p.load).add(p);
    this.#lowest = Math.min(this.#lowest, p.load);
  }

  /** The place with the fewest episodes, or undefined where all are retired. */
  least(): Place | undefined {
    for (; this.#lowest < this.#buckets.length; this.#lowest++) {
      const bucket = this.#buckets[this.#lowest];
      if (bucket && bucket.size > 0) return bucket.values().next().value;
    }
    return undefined;
  }

  move(p: Place, by: number): void {
    this.#bucket(p.load).delete(p);
    p.load += by;
    if (p.retired) return;
    this.#bucket(p.load).add(p);
    this.#lowest = Math.min(this.#lowest, p.load);
  }

  retire(p: Place): void {
    p.retired = true;
    this.#bucket(p.load).delete(p);
  }

  #bucket(load: number): Set<Place> {
    this.#buckets[load] ??= new Set();
    return this.#buckets[load];
  }
}

/** Errors after which the same call may be made again: the incarnation is gone, another one comes. */
export function isLoss(e: unknown): boolean {
  if (!isSinkflexError(e) || isFinal(e)) return false;
  return e.code === 'SINKFLEX_ACTOR_DIED' || e.code === 'SINKFLEX_CALL_TIMEOUT' || e.code === 'SINKFLEX_OBJECT_LOST';
}

/** No other incarnation comes: the restarts are spent, or the actor was ended. */
export function isFinal(e: unknown): boolean {
  return isSinkflexError(e) && e.details?.final === true;
}

export class RolloutPool {
  readonly #places: Place[];
  readonly #byLoad: ByLoad;
  /** Places that are not retired. */
  #living: number;
  readonly #limit: number;
  readonly #waiting: Job[] = [];

  /** `episodes`: how many one actor runs at once; it is given half as many again, so that none of its places stays empty. */
  constructor(workers: readonly RolloutWorker[], episodes: number) {
    this.#places = workers.map((worker) => ({ worker, load: 0, retired: false }));
    this.#living = workers.length;
    this.#byLoad = new ByLoad(this.#places);
    this.#limit = Math.ceil(episodes * 1.5);
  }

  /** One more from now on. */
  add(worker: RolloutWorker): void {
    const place = { worker, load: 0, retired: false };
    this.#places.push(place);
    this.#living++;
    this.#byLoad.add(place);
    this.#hand();
  }

  /** Episodes that may be handed out at once. */
  get capacity(): number {
    return this.#limit * this.#living;
  }

  get running(): number {
    return this.#places.reduce((n, w) => n + w.load, 0);
  }

  run(assignment: Assignment, signal: AbortSignal, onLost?: () => void): Promise<Trajectory[]> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ assignment, episodes: assignment.tasks.length * assignment.samples, signal, resolve, reject, onLost });
      this.#hand();
    });
  }

  #hand(): void {
    while (this.#waiting.length > 0) {
      const job = this.#waiting[0]!;
      if (job.signal.aborted) {
        this.#waiting.shift();
        job.reject(job.signal.reason);
        continue;
      }
      const free = this.#byLoad.least();
      // An idle actor takes work of any size, else one group larger than the limit would wait for ever.
      if (!free || (free.load > 0 && free.load + job.episodes > this.#limit)) return;
      this.#waiting.shift();
      this.#byLoad.move(free, job.episodes);
      free.worker.rollout(job.assignment, job.signal).then(
        (trajectories) => {
          this.#byLoad.move(free, -job.episodes);
          job.resolve(trajectories);
          this.#hand();
        },
        (e: unknown) => {
          this.#byLoad.move(free, -job.episodes);
          this.#failed(free, job, e);
          // In a turn of its own: actors that fail at once must not keep the loop from learning why.
          setImmediate(() => this.#hand());
        },
      );
    }
  }

  #failed(by: Place, job: Job, e: unknown): void {
    if (job.signal.aborted) {
      job.reject(job.signal.reason);
      return;
    }
    const spent = isFinal(e) && (e as SinkflexError).details?.actor === by.worker.name;
    if (spent && !by.retired) {
      this.#byLoad.retire(by);
      this.#living--;
    }
    if (spent && this.#places.every((w) => w.retired)) {
      const queued = this.#waiting.splice(0);
      for (const q of [job, ...queued]) q.reject(e);
      return;
    }
    if (!spent && !isLoss(e)) {
      job.reject(e);
      return;
    }
    job.onLost?.();
    // In front: an earlier task must not fall behind those that were admitted after it.
    this.#waiting.unshift(job);
  }
}
