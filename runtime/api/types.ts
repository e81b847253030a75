// The types that a user of the runtime writes: actor classes, handles whose methods answer with refs, options.
import type { CannotBeSent, Obstacle } from './serializable.ts';

/**
 * A class that can be an actor. Its public methods are what a handle answers, except its lifecycle: `restore(state)` and `start()` after the
 * constructor, `checkpoint()` for the state that restore() gets, `drain()` before a planned end, `stop()` at every end.
 */
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

/**
 * What a streaming method (a generator) answers. The call is made at once; items come as far ahead of the reader as `streamWindow` allows.
 * `break` out of the loop, `return()` or `await using` tells the actor to stop. Read by one reader.
 */
export interface ObjectStream<T> extends AsyncIterable<T, undefined> {
  next(): Promise<IteratorResult<T, undefined>>;
  return(): Promise<IteratorResult<T, undefined>>;
  [Symbol.asyncIterator](): ObjectStream<T>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Methods that belong to the runtime, and names that would make a handle look like something else. */
export type ReservedMethod = 'start' | 'stop' | 'drain' | 'checkpoint' | 'restore' | 'then' | 'toJSON' | 'constructor';

type Argument<A> = [Obstacle<A>] extends [never] ? A | ObjectRef<A> : CannotBeSent<Obstacle<A>>;
/** Parameters that each may be a ref instead. */
export type ArgumentsOf<P extends readonly unknown[]> = { [I in keyof P]: Argument<P[I]> };

/** Generators answer with streams, everything else with a ref. */
export type AnswerOf<R> = 0 extends 1 & R
  ? ObjectRef<R>
  : [R] extends [never]
    ? ObjectRef<never>
    : R extends AsyncIterable<infer T> | IterableIterator<infer T>
      ? ObjectStream<Awaited<T>>
      : ObjectRef<Awaited<R>>;

/** The remote face of an instance I: each public method, answering with a ref; generators with a stream. */
export type HandleOf<I> = HandleMethods<I> & { readonly [handleBrand]: I };

type HandleMethods<I> = {
  readonly [K in keyof I as K extends ReservedMethod ? never : I[K] extends (...args: never[]) => unknown ? K : never]: I[K] extends (
    ...args: infer P
  ) => infer R
    ? (...args: ArgumentsOf<P>) => AnswerOf<R>
    : never;
};

/** Handle of a definition (`ActorHandle<typeof Counter>`), of a class, or of an instance type. */
export type ActorHandle<T> =
  T extends ActorDefinition<infer C> ? HandleOf<InstanceType<C>> : T extends ActorClass ? HandleOf<InstanceType<T>> : HandleOf<T>;

/** Any handle. */
export type AnyHandle = { readonly [handleBrand]: unknown };

export type Isolation = 'process' | 'thread' | 'shared';

/** What an actor, a bundle or a task reserves. Fractions count to 1/10000. */
export interface ResourceOptions {
  /** Processors reserved; default 0: an actor that reserves nothing is always placed. */
  cpus?: number;
  /** GPUs reserved; whole ones are assigned by number (`currentActor().gpuIds`). */
  gpus?: number;
  /** Bytes reserved, and the limit of the process: the actor that goes beyond it is ended, with `outOfMemory` in its death. */
  memory?: number;
  /** Any other amounts that nodes declare. */
  resources?: Record<string, number>;
}

/** Where something may be placed. */
export interface PlacementOptions extends ResourceOptions {
  /** Labels that the node must have: `{ zone: 'a', disk: '!hdd', kind: 'in(x,y)', tier: '!in(z)' }`. */
  labels?: Record<string, string>;
  /**
   * `hybrid` (default): fill nodes up to half, then the least used. `spread`: the least used. `{ node }`: that one only, with `soft` any
   * other if it is gone or full.
   */
  strategy?: 'hybrid' | 'spread' | { node: string; soft?: boolean };
  /** Take the resources from this group's bundle instead of from a node. */
  placementGroup?: { readonly id: string };
  /** Which bundle of the group; default the first with room. */
  bundle?: number;
}

/** Resources of one bundle of a placement group. */
export interface BundleOptions extends ResourceOptions {
  /** Labels that its node must have. */
  labels?: Record<string, string>;
}

export interface PlacementGroupOptions {
  /**
   * `PACK` (default): on as few nodes as it can. `SPREAD`: on as many. `STRICT_PACK`: on one node or not at all. `STRICT_SPREAD`: each bundle
   * on a node of its own, or not at all.
   */
  strategy?: 'PACK' | 'SPREAD' | 'STRICT_PACK' | 'STRICT_SPREAD';
  name?: string;
  /** As for spawn. */
  lifetime?: 'owned' | 'detached';
}

export interface SpawnOptions<Args extends readonly unknown[] = readonly unknown[]> extends PlacementOptions {
  /** Constructor arguments; every incarnation gets the same. */
  args?: ArgumentsOf<Args>;
  /** Unique in the run; default `<kind>-<id>`. */
  name?: string;
  /** With `name`: answer the living actor of that name and definition if there is one. Atomic in the run. */
  getIfExists?: boolean;
  /** `owned` (default): ends with the actor or driver that spawned it. `detached`: ends with the cluster (needs a head of its own). */
  lifetime?: 'owned' | 'detached';
  /** `process` (default): a process of its own. `thread`: a thread of this process. `shared`: one of many light actors in a worker process. */
  isolation?: Isolation;
  /** Threads that the actor's native work may use; actors read it as `currentActor().threads`. Default: `cpus` rounded down, at least 1. */
  threads?: number;
  /** Restarts within restartWindowMs before the actor is given up. Default 0. */
  maxRestarts?: number;
  restartWindowMs?: number;
  /** First wait before a restart; doubles with each restart in the window, up to 30 s. Default 100. */
  restartBackoffMs?: number;
  /** Async methods that may be under way at once. Default 1: one call ends before the next starts. */
  maxConcurrency?: number;
  /** Calls of one caller that may wait in the mailbox. Default 10,000. */
  maxPending?: number;
  /** What happens to calls beyond maxPending. `wait` (default): they wait at the caller. `reject`: they fail at once with ActorBusyError. */
  onFull?: 'wait' | 'reject';
  /** Environment variables on top of the driver's (process isolation only). */
  env?: Record<string, string>;
  /** Working directory (process isolation only); default the driver's. */
  cwd?: string;
  /** Node flags on top of the driver's (process isolation only), such as `--max-old-space-size=4096`. */
  execArgv?: readonly string[];
  /** Saves what the actor's checkpoint() answers this often; the next incarnation's restore() gets the last one. Default: only at drain. */
  checkpointIntervalMs?: number;
  /** Ends an incarnation whose event loop was blocked, or whose process was stopped, for so long. Default: it is only reported. */
  unresponsiveMs?: number;
  /** URLs of modules that the worker imports before the actor is constructed: those that register what its arguments name. */
  imports?: readonly string[];
}

/** Names of the methods of C that its handles answer. */
export type MethodOf<C extends ActorClass> = keyof HandleMethods<InstanceType<C>> & string;

export interface ActorOptions<C extends ActorClass = ActorClass> {
  /**
   * Calls of these methods have a limit of their own, so that they never wait behind others, and no order between groups. What is in no
   * group has the `maxConcurrency` of spawn. A call can ask for a group with `withOptions(handle, { concurrencyGroup })`.
   */
  concurrencyGroups?: Record<string, { maxConcurrency: number; methods?: readonly MethodOf<C>[] }>;
}

export interface KillOptions {
  /** Start the next incarnation; it counts as none of its restarts. */
  restart?: boolean;
  /** First let accepted calls finish, run drain(), and save what checkpoint() answers; calls that come meanwhile fail. */
  drain?: boolean;
  /** Time for its end. Default 1 s, with `drain` 30 s. */
  timeoutMs?: number;
}

export interface CallOptions {
  /** Deadline of each call made through the handle; calls nested in it inherit what is left. */
  timeoutMs?: number;
  signal?: AbortSignal;
  /**
   * How often a call is executed again after its actor died under it; waiting for the next incarnation costs nothing. Default 0: at most
   * once. Each retry carries the same idempotency key: what an incarnation has answered already is not run again.
   */
  maxRetries?: number;
  /** Also retry errors that the method throws: those for which this is true. */
  retryOn?: (error: Error) => boolean;
  /** Run in this concurrency group of the actor, whatever its definition says. */
  concurrencyGroup?: string;
  /** The method's `currentActor().signal` aborts when the call is cancelled with `cancel(ref)`; a deadline or a signal implies it. Costs a little. */
  cancellable?: boolean;
  /** Streaming methods: items that may be under way before the actor waits for the reader. Default 64. */
  streamWindow?: number;
}

/** When channels are closed. */
export interface ChannelOptions {
  /** Milliseconds without use after which a channel is closed, if nothing is pending or lent. Default 60,000; Infinity: never. */
  idleMs?: number;
  /** How many one worker may have open; beyond it the least recently used idle one closes, or frames go by way of the driver. Default 512. */
  most?: number;
}

export interface InitOptions {
  /** Processors of this node for placement; default all. */
  cpus?: number;
  gpus?: number;
  /** Bytes of memory of this node for placement; default what is available. */
  memory?: number;
  /** Other amounts that this node has. */
  resources?: Record<string, number>;
  /** Labels of this node, for selectors. */
  labels?: Record<string, string>;
  /**
   * Folder of a running head on this host (`sinkflex head`), or the URL where it listens for other hosts (`wss://host:port`; `ws://` on
   * loopback). Default: head and agent live in this process and end with it.
   */
  address?: string;
  /** File with the token of a cluster on another host; default SINKFLEX_TOKEN_FILE, or the token itself in SINKFLEX_TOKEN. */
  tokenFile?: string;
  /** `host:port` where workers of other hosts find those of this one. Default: a free port of loopback if the head is there, else they are gone to. */
  listen?: string;
  /** PEM files: certificate and key of this host, needed to listen off loopback, and who may have signed those of others. */
  tlsCert?: string;
  tlsKey?: string;
  tlsCa?: string;
  /** Shared memory for large values, bytes; default 30 % of the machine's. Beyond 80 % of it, values that nobody reads go to disk. */
  objectStoreMemory?: number;
  /** Where values go that have no room in memory; default the run's folder. */
  spillFolder?: string;
  /** Idle workers kept ready, so that spawn need not start one. Default: one process once the first process actor was spawned. */
  warmWorkers?: { process?: number; thread?: number };
  /** Record the start and end of every call, for `timeline`. Costs about half a microsecond a call. Default false. */
  timeline?: boolean;
  /** Port on loopback for Prometheus (`/metrics`, with the token of the run's folder) and health; 0: any free one. Default: no listener. */
  metricsPort?: number;
  /** File (mode 0600) with the token of the metrics listener; default SINKFLEX_METRICS_TOKEN_FILE, or else a new token each run. */
  metricsTokenFile?: string;
  /** Worker processes that actors with isolation `shared` are spread over. Default 1. */
  sharedWorkers?: number;
  /** Unanswered bytes on one channel before calls reject with ActorBusyError. Default 1 GiB. */
  maxInFlightBytes?: number;
  /** Of the channels between workers. */
  channels?: ChannelOptions;
  /** Where lines that actors write go, without the newline; default the driver's stderr with a `[name pid]` prefix. */
  onOutput?: (line: ActorOutput) => void;
}

export interface ActorOutput {
  name: string;
  pid: number;
  stream: 'stdout' | 'stderr';
  line: string;
}

/** `blocked`: the event loop does not turn. `stopped`: the kernel has stopped the process. */
export type Health = 'ok' | 'blocked' | 'stopped';

export interface ActorInfo {
  id: number;
  name: string;
  kind: string;
  isolation: Isolation;
  pid: number | undefined;
  incarnation: number;
  /** `pending`: no node has room; explain() says why. */
  state: 'pending' | 'starting' | 'alive' | 'restarting' | 'stopping' | 'dead';
  /** Of its worker: `blocked` when its event loop does not turn, `stopped` when the kernel has stopped the process. */
  health: Health;
  node: string;
  restarts: number;
  /** Why the last incarnation ended. */
  cause?: string;
}

export interface CurrentActor<T = object> {
  readonly name: string;
  readonly kind: string;
  readonly incarnation: number;
  /** Threads that its native work may use. */
  readonly threads: number;
  /** Numbers of the GPUs that were assigned to it. */
  readonly gpuIds: readonly number[];
  /** A handle of this actor, to give to others. */
  readonly self: ActorHandle<T>;
  /** Aborts when the call under way is aborted or past its deadline, and when the actor is stopped. */
  readonly signal: AbortSignal;
  /** Saves what its checkpoint() answers now; resolves when that is on its way to the agent. */
  checkpoint(): Promise<void>;
}
