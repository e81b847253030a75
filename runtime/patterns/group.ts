// Groups: equal actors with ranks, called together. What one rank answers or throws is known by its rank; with `one-for-all` they live and
// die together, since the state of one is of no use without that of the others.
import { kill, ready, spawn } from '../api/actors.ts';
import { checkKnown, checkTimeout, type Known } from '../api/check.ts';
import { definitionOf } from '../api/definition.ts';
import { RuntimeFailure } from '../api/errors.ts';
import { SPAWN } from '../api/options.ts';
import type {
  ActorClass,
  ActorDefinition,
  ActorHandle,
  AnyHandle,
  ArgumentsOf,
  KillOptions,
  ObjectRef,
  ReservedMethod,
  SpawnOptions,
} from '../api/types.ts';
import { put } from '../api/values.ts';
import { ofRank, Supervisor } from './supervisor.ts';

/** The methods of an instance, called on all ranks: the answers in rank order. */
export type GroupCalls<I> = {
  readonly [K in keyof I as K extends ReservedMethod ? never : I[K] extends (...args: never[]) => unknown ? K : never]: I[K] extends (
    ...args: infer P
  ) => infer R
    ? (...args: ArgumentsOf<P>) => Promise<Awaited<R>[]>
    : never;
};

export interface GroupOptions<C extends ActorClass> extends Omit<SpawnOptions<ConstructorParameters<C>>, 'args' | 'name'> {
  /** Constructor arguments of all, or of each rank. */
  args?: ArgumentsOf<ConstructorParameters<C>> | ((rank: number) => ArgumentsOf<ConstructorParameters<C>>);
  /** Members are named `<name>-<rank>`. */
  name?: string;
  /**
   * `one-for-one` (default): a member that dies comes back alone, within its own budget. `one-for-all`: all are restarted when one dies,
   * within the budget of the group (maxRestarts, restartWindowMs); when that is spent, all are ended.
   */
  supervision?: 'one-for-one' | 'one-for-all';
}

type InstanceOf<D> = D extends ActorDefinition<infer C> ? InstanceType<C> : never;

export class ActorGroup<I extends object> {
  /** By rank. */
  readonly members: readonly ActorHandle<I>[];
  /** Calls of all ranks with the same arguments; a value is encoded once a rank. */
  readonly call: GroupCalls<I>;
  /** The same, with each argument encoded once for all. */
  readonly broadcast: GroupCalls<I>;
  readonly #first: number;
  readonly #supervisor: Supervisor | undefined;

  /** A group of actors that are there already; ranks count from `first`. */
  constructor(members: readonly ActorHandle<I>[], first = 0, supervisor?: unknown) {
    this.members = [...members];
    this.#first = first;
    this.#supervisor = supervisor as Supervisor | undefined;
    const face = (share: boolean): GroupCalls<I> =>
      new Proxy(Object.create(null), {
        get: (_target, method) => (typeof method === 'string' && this.#answers(method) ? this.#caller(method, share) : undefined),
      }) as GroupCalls<I>;
    this.call = face(false);
    this.broadcast = face(true);
  }

  #answers(method: string): boolean {
    return this.members.length > 0 && method in (this.members[0] as object) && method !== 'constructor';
  }

  #caller(method: string, share: boolean): (...args: unknown[]) => Promise<unknown[]> {
    return async (...args) => {
      const shared = share ? args.map((arg) => (typeof arg === 'object' && arg !== null && !('then' in arg) ? put(arg) : arg)) : args;
      try {
        return await this.map((member) =>
          (member as unknown as Record<string, (...a: unknown[]) => ObjectRef<unknown>>)[method]!(...shared),
        );
      } finally {
        for (let i = 0; i < shared.length; i++) if (shared[i] !== args[i]) (shared[i] as ObjectRef<unknown>).release();
      }
    };
  }

  get size(): number {
    return this.members.length;
  }

  at(rank: number): ActorHandle<I> {
    const member = this.members[rank - this.#first];
    if (member === undefined)
      throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `the group has ranks ${this.#first} to ${this.#first + this.size - 1}, not ${rank}`);
    return member;
  }

  /** Ranks `from` up to, but not including, `to`; they keep their numbers. */
  slice(from: number, to = this.#first + this.size): ActorGroup<I> {
    return new ActorGroup(this.members.slice(from - this.#first, to - this.#first), from);
  }

  /**
   * Something of each rank, in rank order. The first failure rejects, with SINKFLEX_RANK_FAILED, whose details name the rank and whose
   * cause is what it failed with; the calls of the others go on. While all are restarted, nobody is called.
   *
   * @example
   * const losses = await group.map((member, rank) => member.step(shards[rank]));
   */
  async map<R>(call: (member: ActorHandle<I>, rank: number) => PromiseLike<R>): Promise<R[]> {
    if (this.#supervisor?.restarting === true) await this.#supervisor.settled();
    return Promise.all(
      this.members.map(async (member, index) => {
        const rank = this.#first + index;
        try {
          return await call(member, rank);
        } catch (error) {
          throw ofRank(rank, error);
        }
      }),
    );
  }

  /** Resolves when all are alive, after a restart of all too. */
  async ready(options: { timeoutMs?: number } = {}): Promise<void> {
    checkTimeout('ready of a group', options);
    await this.#supervisor?.settled();
    try {
      await this.map((member) => ready(member as AnyHandle, options));
    } catch (error) {
      // What the others were ended for says more than that they were.
      throw this.#supervisor?.failure ?? error;
    }
  }

  /** Ends all; with `restart` all at once begin anew. */
  async kill(options: KillOptions = {}): Promise<void> {
    if (options.restart !== true) this.#supervisor?.close();
    await Promise.all(this.members.map((member) => kill(member as AnyHandle, options)));
  }

  /** Calls back after each restart of all; the answer ends that. Only with `one-for-all`. */
  onRestart(listener: (restarts: number) => void): () => void {
    if (this.#supervisor === undefined)
      throw new RuntimeFailure('SINKFLEX_BAD_OPTION', "only a group with supervision 'one-for-all' is restarted as one");
    return this.#supervisor.onRestart(listener);
  }
}

const GROUP: Known<GroupOptions<ActorClass>> = { ...SPAWN, supervision: true };

/**
 * Starts `size` actors as one group.
 *
 * @example
 * const workers = spawnGroup(Worker, 4, { args: (rank) => [rank], supervision: 'one-for-all', maxRestarts: 3 });
 * const losses = await workers.broadcast.step(batch);
 */
export function spawnGroup<C extends ActorClass>(
  definition: ActorDefinition<C>,
  size: number,
  options: GroupOptions<NoInfer<C>> = {},
): ActorGroup<InstanceOf<ActorDefinition<C>>> {
  if (!Number.isSafeInteger(size) || size < 1)
    throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `the size of a group is ${size}; it must be an integer of at least 1`);
  checkKnown('spawnGroup', options, GROUP);
  const { args, name, supervision = 'one-for-one', ...rest } = options;
  if (supervision !== 'one-for-one' && supervision !== 'one-for-all')
    throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `supervision is ${String(supervision)}; it must be 'one-for-one' or 'one-for-all'`);
  definitionOf(definition);
  const together = supervision === 'one-for-all';
  const members = Array.from({ length: size }, (_, rank) => {
    const own = typeof args === 'function' ? args(rank) : args;
    const each = {
      ...rest,
      ...(name === undefined ? {} : { name: `${name}-${rank}` }),
      ...(own === undefined ? {} : { args: own }),
      // The budget is the group's, so no member has one.
      ...(together ? { maxRestarts: Number.POSITIVE_INFINITY } : {}),
    };
    return (spawn as (definition: unknown, options: unknown) => ActorHandle<ActorDefinition<C>>)(definition, each);
  });
  const budget = { restarts: rest.maxRestarts ?? 0, windowMs: rest.restartWindowMs ?? 60_000 };
  const supervisor = together ? new Supervisor(members, budget) : undefined;
  return new ActorGroup(members as never, 0, supervisor) as ActorGroup<InstanceOf<ActorDefinition<C>>>;
}
