// The types that a user of the runtime writes: actor classes, handles whose methods answer with refs, options.

/** A class that can be an actor. Its public methods are what a handle answers; `start` and `stop` are its lifecycle. */
// biome-ignore lint/suspicious/noExplicitAny: a constructor constraint must accept every parameter list; it never reaches a user's values
export type ActorClass = abstract new (...args: any[]) => object;

declare const definitionBrand: unique symbol;
declare const handleBrand: unique symbol;

/** The value of defineActor: what spawn takes. */
export interface ActorDefinition<C extends ActorClass> {
  /** Package-relative module and export: the only name of code that ever crosses a wire. */
  readonly id: string;
  readonly kind: string;
  readonly [definitionBrand]: C;
}

/**
 * A value that is, or will be, somewhere: await it, or pass it on to another call, and it goes straight from its owner to that callee.
 * Lazy: a ref that is only passed on never becomes an unhandled rejection.
 */
export interface ObjectRef<T> extends PromiseLike<T> {
  then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B>;
  catch<R = never>(onRejected?: ((reason: unknown) => R | PromiseLike<R>) | null): Promise<T | R>;
  finally(onFinally?: (() => void) | null): Promise<T>;
  /** Lets the owner forget the value. Garbage collection does the same, later. */
  release(): void;
  [Symbol.dispose](): void;
}

/** Methods that belong to the runtime, and names that would make a handle look like something else. */
export type ReservedMethod = 'start' | 'stop' | 'then' | 'toJSON' | 'constructor';

type Argument<A> = A | ObjectRef<A>;
type Arguments<P extends readonly unknown[]> = { [I in keyof P]: Argument<P[I]> };

/** The remote face of an instance I: each public method, answering with a ref. */
export type HandleOf<I> = {
  readonly [K in keyof I as K extends ReservedMethod ? never : I[K] extends (...args: never[]) => unknown ? K : never]: I[K] extends (
    ...args: infer P
  ) => infer R
    ? (...args: Arguments<P>) => ObjectRef<Awaited<R>>
    : never;
} & { readonly [handleBrand]: I };

/** Handle of a definition (`ActorHandle<typeof Counter>`), of a class, or of an instance type. */
export type ActorHandle<T> =
  T extends ActorDefinition<infer C> ? HandleOf<InstanceType<C>> : T extends ActorClass ? HandleOf<InstanceType<T>> : HandleOf<T>;

/** Any handle. */
export type AnyHandle = { readonly [handleBrand]: unknown };

export type Isolation = 'process' | 'thread' | 'shared';

export interface SpawnOptions<Args extends readonly unknown[] = readonly unknown[]> {
  /** Constructor arguments; every incarnation gets the same. */
  args?: Args;
  /** Unique in the run; default `<kind>-<id>`. */
  name?: string;
  /** `process` (default): a process of its own. `thread`: a thread of this process. `shared`: one of many light actors in a worker process. */
  isolation?: Isolation;
  /** Threads that the actor's native work may use; actors read it as `currentActor().cpus`. Default 1. */
  cpus?: number;
  /** Restarts within restartWindowMs before the actor is given up. Default 0. */
  maxRestarts?: number;
  restartWindowMs?: number;
  /** First wait before a restart; doubles with each restart in the window, up to 30 s. Default 100. */
  restartBackoffMs?: number;
  /** Async methods that may be under way at once. Default 1: one call ends before the next starts. */
  maxConcurrency?: number;
  /** Calls that may wait in the mailbox; more reject with ActorBusyError. Default: no bound. */
  maxPending?: number;
  /** Environment variables on top of the driver's (process isolation only). */
  env?: Record<string, string>;
  /** URLs of modules that the worker imports before the actor is constructed: those that register what its arguments name. */
  imports?: readonly string[];
}

export interface CallOptions {
  /** Deadline of each call made through the handle; calls nested in it inherit what is left. */
  timeoutMs?: number;
  signal?: AbortSignal;
}

export interface InitOptions {
  /** Processors that actors may count on; default all. Reported only; placement does not limit by it. */
  cpus?: number;
  /** Worker processes that actors with isolation `shared` are spread over. Default 1. */
  sharedWorkers?: number;
  /** Unanswered bytes on one channel before calls reject with ActorBusyError. Default 1 GiB. */
  maxInFlightBytes?: number;
  /** Where lines that actors write go, without the newline; default the driver's stderr with a `[name pid]` prefix. */
  onOutput?: (line: ActorOutput) => void;
}

export interface ActorOutput {
  name: string;
  pid: number;
  stream: 'stdout' | 'stderr';
  line: string;
}

export interface ActorInfo {
  id: number;
  name: string;
  kind: string;
  isolation: Isolation;
  pid: number | undefined;
  incarnation: number;
  state: 'starting' | 'alive' | 'restarting' | 'stopping' | 'dead';
  restarts: number;
  /** Why the last incarnation ended. */
  cause?: string;
}

export interface CurrentActor<T = object> {
  readonly name: string;
  readonly kind: string;
  readonly incarnation: number;
  readonly cpus: number;
  /** A handle of this actor, to give to others. */
  readonly self: ActorHandle<T>;
  /** Aborts when the call under way is aborted or past its deadline, and when the actor is stopped. */
  readonly signal: AbortSignal;
}
