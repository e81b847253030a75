// ActorPool: many values through a few equal actors. Work goes to whoever is free; values are taken from their source only as fast as they
// are worked off and read.
import { checkKnown, count } from '../api/check.ts';
import { ActorDiedError, ActorFailedError, RuntimeFailure } from '../api/errors.ts';
import type { AnyHandle } from '../api/types.ts';

export interface ActorPoolOptions {
  /** Calls that one actor may have under way at once. Default 1; more keep it busy while answers travel. */
  perActor?: number;
}

interface Member<H> {
  readonly actor: H;
  running: number;
  /** It will not come back, or was taken out. */
  gone: boolean;
}

type Source<V> = Iterable<V> | AsyncIterable<V>;

/**
 * @example
 * const pool = new ActorPool([spawn(Parser), spawn(Parser)], { perActor: 2 });
 * for await (const tree of pool.map(files, (parser, file) => parser.parse(file))) index(tree);
 */
export class ActorPool<H extends AnyHandle> {
  readonly #perActor: number;
  #members: Member<H>[] = [];
  /** Who waits for a free actor, first come first served. */
  #waiting: { take: (member: Member<H>) => void; fail: (error: Error) => void }[] = [];

  constructor(actors: readonly H[], options: ActorPoolOptions = {}) {
    checkKnown('ActorPool', options, { perActor: true });
    this.#perActor = count('perActor', options.perActor, 1, 1);
    for (const actor of actors) this.add(actor);
  }

  /** Actors that take work. */
  get size(): number {
    return this.#members.length;
  }

  /** Calls that could start at once. */
  get free(): number {
    return this.#members.reduce((sum, { running }) => sum + this.#perActor - running, 0);
  }

  add(actor: H): void {
    this.#members.push({ actor, running: 0, gone: false });
    this.#serve();
  }

  /** Gives it no more work; what it has goes on. */
  remove(actor: H): void {
    for (const member of this.#members) if (member.actor === actor) member.gone = true;
    this.#members = this.#members.filter(({ gone }) => !gone);
    if (this.#members.length > 0) return;
    for (const { fail } of this.#waiting.splice(0)) fail(nobody());
  }

  #serve(): void {
    while (this.#waiting.length > 0) {
      const member = this.#freest();
      if (member === undefined) return;
      member.running++;
      this.#waiting.shift()!.take(member);
    }
  }

  #freest(): Member<H> | undefined {
    let best: Member<H> | undefined;
    for (const member of this.#members)
      if (member.running < this.#perActor && (best === undefined || member.running < best.running)) best = member;
    return best;
  }

  #acquire(): Promise<Member<H>> {
    if (this.#members.length === 0) return Promise.reject(nobody());
    return new Promise((resolve, reject) => {
      this.#waiting.push({ take: resolve, fail: reject });
      this.#serve();
    });
  }

  /** Runs one call on the next free actor. An actor that is dead for good leaves the pool; the call that found out fails. */
  async submit<R>(call: (actor: H) => PromiseLike<R>): Promise<R> {
    const member = await this.#acquire();
    return this.#run(member, call);
  }

  async #run<R>(member: Member<H>, call: (actor: H) => PromiseLike<R>): Promise<R> {
    try {
      return await call(member.actor);
    } catch (error) {
      if ((error instanceof ActorDiedError && error.final) || error instanceof ActorFailedError) this.remove(member.actor);
      throw error;
    } finally {
      member.running--;
      this.#serve();
    }
  }

  /**
   * The answers in the order of the values. The first failure ends it, at its place in that order; calls under way finish unread. Values
   * are taken at most twice as many ahead of the reader as the pool can work on.
   */
  map<V, R>(values: Source<V>, call: (actor: H, value: V, index: number) => PromiseLike<R>): AsyncGenerator<R, void, undefined> {
    return this.#map(values, call, true);
  }

  /** The answers as they come. */
  mapUnordered<V, R>(values: Source<V>, call: (actor: H, value: V, index: number) => PromiseLike<R>): AsyncGenerator<R, void, undefined> {
    return this.#map(values, call, false);
  }

  async *#map<V, R>(
    values: Source<V>,
    call: (actor: H, value: V, index: number) => PromiseLike<R>,
    ordered: boolean,
  ): AsyncGenerator<R, void, undefined> {
    const source = Symbol.asyncIterator in values ? values[Symbol.asyncIterator]() : values[Symbol.iterator]();
    // Settled or not, in order of their values; each resolves with itself, so that it can be found again.
    const under: Promise<{ outcome: () => R; self: number }>[] = [];
    const numbers: number[] = [];
    let index = 0;
    let ended = false;
    try {
      for (;;) {
        while (!ended && under.length < Math.max(1, this.size) * this.#perActor * 2) {
          const step = await source.next();
          if (step.done === true) {
            ended = true;
            break;
          }
          const own = index++;
          numbers.push(own);
          under.push(
            this.submit((actor) => call(actor, step.value, own)).then(
              (value) => ({ outcome: () => value, self: own }),
              (error: unknown) => ({
                outcome: () => {
                  throw error;
                },
                self: own,
              }),
            ),
          );
        }
        if (under.length === 0) return;
        const { outcome, self } = ordered ? await under[0]! : await Promise.race(under);
        const at = numbers.indexOf(self);
        under.splice(at, 1);
        numbers.splice(at, 1);
        yield outcome();
      }
    } finally {
      await source.return?.();
    }
  }
}

function nobody(): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_POOL_EMPTY', 'the pool has no actor left');
}
