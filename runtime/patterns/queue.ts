// Queue: a bounded first-in first-out queue as an actor, so that its handle can be given to producers and consumers anywhere.
import { currentActor, spawn, withOptions } from '../api/actors.ts';
import { checkKnown, type Known, ms } from '../api/check.ts';
import { defineActor } from '../api/definition.ts';
import { RuntimeFailure } from '../api/errors.ts';
import { SPAWN } from '../api/options.ts';
import type { ActorHandle, SpawnOptions } from '../api/types.ts';
import { onAbort } from '../worker/index.ts';

export interface WaitOptions {
  /** How long to wait for room or an item. Default: as long as the call's own deadline allows; 0: not at all. */
  timeoutMs?: number;
}

/** Somebody who waits; it is in at most one list. */
interface Waiter {
  /** Whether it waits no more. */
  tryAgain(): boolean;
}

export class QueueActor<T = unknown> {
  readonly #maxSize: number;
  #items: T[] = [];
  #head = 0;
  readonly #getters = new Set<Waiter>();
  readonly #putters = new Set<Waiter>();
  #closed = false;

  constructor(maxSize = Number.POSITIVE_INFINITY) {
    this.#maxSize = maxSize;
  }

  /** Waits for room. Rejects with SINKFLEX_QUEUE_TIMEOUT, or SINKFLEX_QUEUE_CLOSED. */
  async put(item: T, options: WaitOptions = {}): Promise<void> {
    await this.putMany([item], options);
  }

  /** All together, as soon as there is room for all; more than the queue's size at once never have it. */
  async putMany(items: readonly T[], options: WaitOptions = {}): Promise<void> {
    checkWait('put', options);
    if (items.length > this.#maxSize)
      throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `${items.length} items never have room in a queue of ${this.#maxSize}`);
    await this.#when(
      () => {
        if (this.#closed) throw closed();
        if (this.size() + items.length > this.#maxSize) return undefined;
        this.#items.push(...items);
        return { value: undefined };
      },
      this.#putters,
      options,
      'room',
    );
  }

  /** The oldest item; waits for one. */
  async get(options: WaitOptions = {}): Promise<T> {
    const [item] = await this.getMany(1, options);
    return item as T;
  }

  /** Waits for one item, then takes as many as there are, at most `most`. */
  async getMany(most: number, options: WaitOptions = {}): Promise<T[]> {
    checkWait('get', options);
    return this.#when(
      () => {
        if (this.size() > 0) return { value: this.#take(most) };
        if (this.#closed) throw closed();
        return undefined;
      },
      this.#getters,
      options,
      'an item',
    );
  }

  #take(most: number): T[] {
    const items = this.#items.slice(this.#head, this.#head + most);
    this.#head += items.length;
    if (this.#head === this.#items.length) {
      this.#items = [];
      this.#head = 0;
    } else if (this.#head >= 1024 && this.#head * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return items;
  }

  size(): number {
    return this.#items.length - this.#head;
  }

  /** No more items are taken; those that are there can still be got, then get() rejects with SINKFLEX_QUEUE_CLOSED. */
  close(): void {
    this.#closed = true;
    this.#serve();
  }

  checkpoint(): { items: T[]; closed: boolean } {
    return { items: this.#items.slice(this.#head), closed: this.#closed };
  }

  restore(state: { items: T[]; closed: boolean }): void {
    this.#items = state.items;
    this.#closed = state.closed;
  }

  /** Something has changed: those that wait try again, first come first served, as long as it helps anybody. */
  #serve(): void {
    for (let helped = true; helped; ) {
      helped = false;
      for (const waiters of [this.#getters, this.#putters]) {
        for (const waiter of waiters) {
          if (!waiter.tryAgain()) break;
          helped = true;
        }
      }
    }
  }

  /** What `attempt` answers, as soon as it answers anything. Who comes while others wait waits behind them. */
  async #when<R>(attempt: () => { value: R } | undefined, waiters: Set<Waiter>, { timeoutMs }: WaitOptions, what: string): Promise<R> {
    const now = waiters.size === 0 ? attempt() : undefined;
    if (now !== undefined) {
      this.#serve();
      return now.value;
    }
    const late = (): RuntimeFailure => new RuntimeFailure('SINKFLEX_QUEUE_TIMEOUT', `the queue had not ${what} within ${timeoutMs} ms`);
    if (timeoutMs === 0) throw late();
    const { signal } = currentActor();
    return new Promise<R>((resolve, reject) => {
      const end = (settle: () => void): true => {
        waiters.delete(waiter);
        clearTimeout(timer);
        stop();
        settle();
        return true;
      };
      const waiter: Waiter = {
        tryAgain() {
          try {
            const done = attempt();
            return done === undefined ? false : end(() => resolve(done.value));
          } catch (error) {
            return end(() => reject(error));
          }
        },
      };
      waiters.add(waiter);
      const timer = timeoutMs === undefined ? undefined : setTimeout(() => end(() => reject(late())), timeoutMs);
      // A caller that has gone takes nothing along.
      const stop = onAbort(signal, () => end(() => reject(signal.reason as Error)));
    });
  }
}

function checkWait(what: string, options: WaitOptions): void {
  checkKnown(`${what} of a queue`, options, { timeoutMs: true });
  ms('timeoutMs', options.timeoutMs, 0);
}

function closed(): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_QUEUE_CLOSED', 'the queue was closed');
}

export const Queue = defineActor(import.meta.url, 'Queue', QueueActor);

export type QueueHandle<T> = ActorHandle<QueueActor<T>>;

export interface QueueOptions extends Omit<SpawnOptions, 'args' | 'maxConcurrency'> {
  /** Items that it holds before put() waits. Default: no limit. */
  maxSize?: number;
}

const { args: _args, maxConcurrency: _maxConcurrency, ...OF_SPAWN } = SPAWN;
const QUEUE: Known<QueueOptions> = { maxSize: true, ...OF_SPAWN };

/**
 * A queue as an actor of its own, by default in a shared worker. Its handle is an argument like any other.
 *
 * @example
 * const queue = createQueue<Sample>({ maxSize: 100 });
 * producer.fill(queue);
 * const batch = await queue.getMany(32, { timeoutMs: 1000 });
 */
export function createQueue<T>(options: QueueOptions = {}): QueueHandle<T> {
  checkKnown('createQueue', options, QUEUE);
  const { maxSize = Number.POSITIVE_INFINITY, isolation = 'shared', ...rest } = options;
  if (maxSize !== Number.POSITIVE_INFINITY && (!Number.isSafeInteger(maxSize) || maxSize < 1))
    throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `maxSize is ${maxSize}; it must be an integer of at least 1`);
  const queue = spawn(Queue, { ...rest, isolation, args: [maxSize], maxConcurrency: Number.POSITIVE_INFINITY });
  // So that a get() whose caller is gone is known to be.
  return withOptions(queue, { cancellable: true }) as unknown as QueueHandle<T>;
}
