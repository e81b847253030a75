// Collective operations among members in any threads and processes of a host, over shared memory: all-reduce and its relatives, for
// data-parallel training. The protocol: kernels/memory/collective.h.
import { awaitNative, callNative, SinkflexError } from './errors.ts';
import { addon } from './native.ts';

/** A group, as plain data for its members. Good while the process that made it lives, until all have joined. */
export interface CollectiveGroup {
  readonly members: number;
  readonly address: { pid: number; startTime: string; fd: number; nonce: string };
}

/** `died`: a member's process, thread or object is gone. `left`: it called leave(). `deadline`, `aborted`: it gave up waiting. */
export type CollectiveEnd = 'died' | 'left' | 'deadline' | 'aborted';

export interface CollectiveBrokenDetails {
  reason: CollectiveEnd;
  /** The member whose end it was. */
  rank: number;
  /** Its process; absent if it had not joined. */
  pid?: number;
  /** Who had not come to the operation. */
  missing: number[];
}

export type Reduction = 'sum' | 'mean' | 'min' | 'max';

export interface CollectiveOptions {
  /** How long to wait for the others; default 10 minutes. Past it the group is broken for all. */
  timeoutMs?: number;
  /** Aborting breaks the group for all. */
  signal?: AbortSignal;
}

export type NumberArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | Uint8Array
  | Uint16Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array;

interface NativeGroup {
  address(): CollectiveGroup['address'];
  settled(): boolean;
  close(): void;
}
type Outcome = Promise<undefined | (Omit<CollectiveBrokenDetails, 'reason'> & { reason: number; message: string })>;
interface NativeMember {
  barrier(timeoutMs: number): Outcome;
  allReduce(timeoutMs: number, data: Float32Array, fold: number): Outcome;
  reduceScatter(timeoutMs: number, data: Float32Array, out: Float32Array, fold: number): Outcome;
  allGather(timeoutMs: number, data: Uint8Array, out: Uint8Array): Outcome;
  broadcast(timeoutMs: number, data: Uint8Array, root: number): Outcome;
  abort(given: boolean): void;
  leave(): void;
}
const native = addon as unknown as {
  CollectiveGroup: new (members: number, chunkBytes: number) => NativeGroup;
  CollectiveMember: new (address: CollectiveGroup['address'], rank: number) => NativeMember;
};

const DEFAULT_TIMEOUT_MS = 600_000;
/** Large enough that a meeting costs little beside the copy, small enough that what is staged stays in a shared cache. */
const CHUNK_BYTES = 1024 * 1024;
const ends: readonly (CollectiveEnd | undefined)[] = [undefined, 'died', 'left', 'deadline', 'aborted'];
const folds: Readonly<Record<Reduction, number>> = { sum: 0, mean: 1, min: 2, max: 3 };

/** Groups made here that not all have joined yet, and when they were made: their memory is reached through this process. */
const open = new Map<NativeGroup, number>();
/** A group that nobody came to is let go of: whoever comes later is told that it is gone. */
const KEPT_MS = 900_000;
let sweeper: NodeJS.Timeout | undefined;
const SWEEP_MS = 200;

function sweep(): void {
  for (const [group, madeAt] of open) {
    if (!group.settled() && performance.now() - madeAt < KEPT_MS) continue;
    group.close();
    open.delete(group);
  }
  if (open.size > 0) return;
  clearInterval(sweeper);
  sweeper = undefined;
}

/**
 * Makes a group of so many members. Give it to them as an argument; each joins with a rank of its own, within a quarter of an hour.
 *
 * @example
 * const group = createCollective(4);
 * await Promise.all(trainers.map((trainer, rank) => trainer.join(group, rank)));
 */
export function createCollective(members: number, options: { chunkBytes?: number } = {}): CollectiveGroup {
  const group = callNative(() => new native.CollectiveGroup(members, options.chunkBytes ?? CHUNK_BYTES));
  open.set(group, performance.now());
  sweeper ??= setInterval(sweep, SWEEP_MS).unref();
  return { members, address: group.address() };
}

/**
 * Takes a rank of the group, and waits until all members have. SINKFLEX_COLLECTIVE_GONE when whoever made the group is dead;
 * SINKFLEX_COLLECTIVE_BROKEN, naming who is missing, when not all come in time.
 *
 * @example
 * const collective = await joinCollective(group, rank, { timeoutMs: 30_000 });
 * await collective.allReduce(gradients, 'mean');
 */
export async function joinCollective(group: CollectiveGroup, rank: number, options: CollectiveOptions = {}): Promise<Collective> {
  const collective = new Collective(group, rank);
  await collective.barrier(options);
  return collective;
}

/** Where the slice of `rank` starts and ends in what reduceScatter reduces. */
export function collectiveSlice(length: number, rank: number, members: number): { start: number; end: number } {
  return { start: Math.floor((length * rank) / members), end: Math.floor((length * (rank + 1)) / members) };
}

/**
 * One member. All members make the same calls in the same order, with the same sizes: else SINKFLEX_COLLECTIVE_MISMATCH for all of them.
 * Calls may be made without waiting for the earlier ones; they run in order. When a member dies, leaves, is aborted or runs out of time, all
 * get SINKFLEX_COLLECTIVE_BROKEN (details: CollectiveBrokenDetails), in the call under way or in the next, and the group is of no more use.
 * Until a call has settled, leave its arrays alone: do not write to them, and do not transfer them.
 */
export class Collective {
  readonly rank: number;
  readonly members: number;
  readonly #native: NativeMember;
  /** The operation before, ended in whatever way. */
  #last: Promise<unknown> = Promise.resolve();
  #left = false;

  /** Use joinCollective. */
  constructor(group: CollectiveGroup, rank: number) {
    this.#native = callNative(() => new native.CollectiveMember(group.address, rank));
    this.rank = rank;
    this.members = group.members;
  }

  /** Resolves when all members have called it. */
  barrier(options: CollectiveOptions = {}): Promise<void> {
    return this.#run(options, (timeoutMs) => this.#native.barrier(timeoutMs));
  }

  /**
   * Each element becomes the reduction of that element over all members, in place: for `sum` and `mean` added in the order of ranks, so the
   * bits are the same in each run and on each member.
   */
  async allReduce(data: Float32Array, reduction: Reduction = 'sum', options: CollectiveOptions = {}): Promise<Float32Array> {
    await this.#run(options, (timeoutMs) => this.#native.allReduce(timeoutMs, data, folds[reduction]));
    return data;
  }

  /** The slice of this rank (collectiveSlice) of the reduction. */
  async reduceScatter(data: Float32Array, reduction: Reduction = 'sum', options: CollectiveOptions = {}): Promise<Float32Array> {
    const { start, end } = collectiveSlice(data.length, this.rank, this.members);
    const out = new Float32Array(end - start);
    await this.#run(options, (timeoutMs) => this.#native.reduceScatter(timeoutMs, data, out, folds[reduction]));
    return out;
  }

  /** The arrays of all members, one after another in the order of ranks. */
  async allGather<T extends NumberArray>(data: T, options: CollectiveOptions = {}): Promise<T> {
    const out = new (data.constructor as new (length: number) => T)(data.length * this.members);
    await this.#run(options, (timeoutMs) => this.#native.allGather(timeoutMs, bytesOf(data), bytesOf(out)));
    return out;
  }

  /** Every member's array becomes that of `root`, in place. */
  async broadcast<T extends NumberArray>(data: T, root = 0, options: CollectiveOptions = {}): Promise<T> {
    await this.#run(options, (timeoutMs) => this.#native.broadcast(timeoutMs, bytesOf(data), root));
    return data;
  }

  /** What an operation runs with, asked when it is called: floors above add the deadline and the signal of what is under way. */
  protected options(given: CollectiveOptions): CollectiveOptions {
    return given;
  }

  /** Ends the group for all: those that still call something are told that this member left. */
  leave(): void {
    this.#left = true;
    this.#native.leave();
  }

  [Symbol.dispose](): void {
    this.leave();
  }

  /** One operation after another; the time for an operation starts with its turn. */
  #run(given: CollectiveOptions, start: (timeoutMs: number) => Outcome): Promise<void> {
    const options = this.options(given);
    const turn = this.#last.then(() => this.#one(options, start));
    this.#last = turn.catch(() => {});
    return turn;
  }

  async #one({ timeoutMs = DEFAULT_TIMEOUT_MS, signal }: CollectiveOptions, start: (timeoutMs: number) => Outcome): Promise<void> {
    if (this.#left) throw broken({ reason: 'left', rank: this.rank, missing: [] }, 'this member has left the collective');
    const abort = (): void => this.#native.abort(true);
    if (signal?.aborted) abort();
    else signal?.addEventListener('abort', abort, { once: true });
    try {
      const outcome = await awaitNative(callNative(() => start(timeoutMs)));
      if (outcome === undefined) return;
      const { message, reason, ...rest } = outcome;
      throw broken({ reason: ends[reason]!, ...rest }, message, signal?.aborted ? { cause: signal.reason } : {});
    } finally {
      signal?.removeEventListener('abort', abort);
      if (signal?.aborted) this.#native.abort(false);
    }
  }
}

const broken = (details: CollectiveBrokenDetails, message: string, options: { cause?: unknown } = {}): SinkflexError =>
  new SinkflexError('SINKFLEX_COLLECTIVE_BROKEN', message, { ...options, details: { ...details } });

const bytesOf = (data: NumberArray): Uint8Array => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
