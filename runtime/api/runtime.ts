// What a user calls: the life of a run, actors, values.
import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';
import type { ActorSpec } from '../control/index.ts';
import { Agent, makeRunFolder, type Subscriber, sweepRunFolders } from '../node/index.ts';
import { PENDING, Ref } from '../objects/index.ts';
import { encodeAlone } from '../wire/index.ts';
import { actorScope, collectRefs, hasSession, Session, session } from '../worker/index.ts';
import { definitionOf } from './definition.ts';
import { CallTimeoutError, RuntimeFailure } from './errors.ts';
import { Handle, makeHandle } from './handle.ts';
import { checkCall, checkInit, checkSpawn } from './options.ts';
import type {
  ActorClass,
  ActorDefinition,
  ActorHandle,
  ActorInfo,
  ActorOutput,
  AnyHandle,
  CallOptions,
  CurrentActor,
  InitOptions,
  ObjectRef,
  SpawnOptions,
} from './types.ts';

interface Run {
  agent: Agent;
  session: Session;
  folder: string;
  onExit: () => void;
}
let run: Run | undefined;
let ending: Promise<void> | undefined;
let spawned = 0;
/** Refs among constructor arguments: every incarnation may fetch them again. */
const held = new Map<number, readonly Ref[]>();

function driver(): Run {
  if (run !== undefined) return run;
  if (hasSession()) throw new RuntimeFailure('SINKFLEX_DRIVER_ONLY', 'only the program that called init() can do this, not an actor');
  throw new RuntimeFailure('SINKFLEX_NOT_INITIALISED', 'call init() first');
}

/** Lent to nobody that could give it back: ours to end. */
const KEPT = -1;

function releaseArguments(actor: number): void {
  const refs = held.get(actor);
  if (refs === undefined) return;
  held.delete(actor);
  for (const ref of refs) if (ref.borrowed === undefined) session().loans.change(ref.id, KEPT, -1);
}

const toStderr = ({ name, pid, line }: ActorOutput): void => void process.stderr.write(`[${name} ${pid}] ${line}\n`);

/**
 * Starts a run in this process: it is the driver, and everything ends with it.
 *
 * @example
 * await init();
 * const counter = spawn(Counter);
 * console.log(await counter.add(2));
 * await shutdown();
 */
export async function init(options: InitOptions = {}): Promise<void> {
  const checked = checkInit(options);
  if (run === undefined && hasSession()) {
    throw new RuntimeFailure(
      'SINKFLEX_DRIVER_ONLY',
      'init() ran inside an actor: the module that defines the actor also starts the program. Move the definition to a module that only defines actors',
    );
  }
  if (run !== undefined) throw new RuntimeFailure('SINKFLEX_ALREADY_INITIALISED', 'init() was called before');
  if (!isMainThread) throw new RuntimeFailure('SINKFLEX_DRIVER_ONLY', 'init() runs in the main thread only');
  sweepRunFolders();
  const folder = makeRunFolder();
  const token = randomBytes(32);
  const agent = new Agent({
    folder,
    token,
    sharedWorkers: checked.sharedWorkers,
    maxInFlightBytes: checked.maxInFlightBytes,
    onOutput: options.onOutput ?? toStderr,
    onDead: releaseArguments,
  });
  const self: Subscriber = { placed: (place) => own.placed(place), killed: (request) => own.killed(request) };
  const own = new Session(
    { worker: 0, folder, token, maxInFlightBytes: checked.maxInFlightBytes },
    { send: (message) => agent.receive(message, self) },
  );
  const onExit = (): void => {
    agent.destroy();
    rmSync(folder, { recursive: true, force: true });
  };
  process.once('exit', onExit);
  run = { agent, session: own, folder, onExit };
  await own.open();
}

/** Ends every actor (stop() hooks get the time), then the run. Leaves nothing behind. Without a run it does nothing. */
export function shutdown(options: { timeoutMs?: number } = {}): Promise<void> {
  if (ending !== undefined) return ending;
  if (run === undefined) {
    if (hasSession())
      return Promise.reject(
        new RuntimeFailure('SINKFLEX_DRIVER_ONLY', 'shutdown() is for the program that called init(), not for an actor'),
      );
    return Promise.resolve();
  }
  const { agent, session: own, folder, onExit } = run;
  ending = (async () => {
    try {
      await agent.close(options.timeoutMs ?? 5000);
    } finally {
      own.close();
      rmSync(folder, { recursive: true, force: true });
      process.off('exit', onExit);
      held.clear();
      run = undefined;
      ending = undefined;
    }
  })();
  return ending;
}

/**
 * Starts an actor and answers its handle at once; calls made before it is ready wait. In an actor as well as in the driver.
 *
 * @example
 * const worker = spawn(Worker, { args: [options], maxRestarts: 3, maxConcurrency: 8 });
 */
export function spawn<C extends ActorClass>(
  definition: ActorDefinition<C>,
  ...rest: [] extends ConstructorParameters<C>
    ? [options?: SpawnOptions<ConstructorParameters<C>>]
    : [options: SpawnOptions<ConstructorParameters<C>> & { args: ConstructorParameters<C> }]
): ActorHandle<ActorDefinition<C>> {
  const { id, kind, module, methods } = definitionOf(definition);
  const options = (rest[0] ?? {}) as SpawnOptions;
  const { name: wanted, ...checked } = checkSpawn(options);
  const here = session();
  // Numbers are unique in the run: each worker counts in a range of its own.
  const actor = here.worker * 2 ** 24 + ++spawned;
  const name = wanted ?? `${kind}-${actor}`;
  if (run?.agent.nameTaken(name))
    throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `an actor named ${name} is alive: names are unique in a run`);
  const refs: Ref[] = [];
  const outer = collectRefs(refs);
  let args: { header: Uint8Array; sections: Uint8Array };
  try {
    const encoded = encodeAlone(options.args ?? []);
    args = { header: encoded.header, sections: encoded.sections };
  } finally {
    collectRefs(outer);
  }
  if (refs.length > 0) {
    held.set(actor, refs);
    for (const ref of refs) if (ref.borrowed === undefined) here.lend(ref, KEPT);
  }
  const spec: ActorSpec = {
    ...checked,
    actor,
    name,
    kind,
    definition: id,
    module,
    exportName: kind,
    methods: [...methods],
    concurrencyGroups: {},
    args,
  };
  here.link.send({ t: 'spawn', spec });
  return makeHandle(here.client(actor, name), kind, methods) as unknown as ActorHandle<ActorDefinition<C>>;
}

function handleOf(value: AnyHandle): Handle {
  if (!(value instanceof Handle)) throw new RuntimeFailure('SINKFLEX_BAD_OPTION', 'this is not a handle of an actor');
  return value as Handle;
}

/** Resolves when the constructor and start() have ended well; rejects with ActorFailedError when they have not. */
export function ready(handle: AnyHandle, options: { timeoutMs?: number } = {}): Promise<void> {
  return Handle.client(handleOf(handle)).ready(options.timeoutMs);
}

/**
 * The same actor; calls made through the result have the deadline and the signal.
 *
 * @example
 * const answer = await withOptions(solver, { timeoutMs: 5000, signal }).solve(task);
 */
export function withOptions<H extends AnyHandle>(handle: H, options: CallOptions): H {
  return Handle.withOptions(handleOf(handle), checkCall(options)) as unknown as H;
}

/** Ends an incarnation: its stop() gets a second. Resolves when it is gone, with `restart` when the next one is alive. */
export function kill(handle: AnyHandle, options: { restart?: boolean } = {}): Promise<void> {
  return session().kill(Handle.client(handleOf(handle)).id, options.restart ?? false);
}

/** Every actor of the run, the dead included. */
export function listActors(): ActorInfo[] {
  return driver().agent.list();
}

/** Calls back at every change of any actor's state; answers how to stop that. */
export function onActorChange(listener: (actor: ActorInfo) => void): () => void {
  return driver().agent.onActorChange(listener);
}

/**
 * A copy of the value, encoded once, for any number of calls.
 *
 * @example
 * using batch = put(tokens);
 * await Promise.all(trainers.map((trainer) => trainer.step(batch)));
 */
export function put<T>(value: T): ObjectRef<Awaited<T>> {
  session();
  const refs: Ref[] = [];
  const outer = collectRefs(refs);
  try {
    const ref = new Ref();
    ref.resolve(encodeAlone(value));
    if (refs.length > 0) {
      ref.holds = refs;
      for (const inner of refs) if (inner.borrowed === undefined) session().lend(inner, KEPT);
    }
    return ref as unknown as ObjectRef<Awaited<T>>;
  } finally {
    collectRefs(outer);
  }
}

type Values<R extends readonly ObjectRef<unknown>[]> = { -readonly [I in keyof R]: R[I] extends ObjectRef<infer T> ? T : never };

/** The values of all refs; the first failure rejects. */
export function get<const R extends readonly ObjectRef<unknown>[]>(refs: R, options?: { timeoutMs?: number }): Promise<Values<R>>;
export function get<T>(ref: ObjectRef<T>, options?: { timeoutMs?: number }): Promise<T>;
export async function get(
  refs: ObjectRef<unknown> | readonly ObjectRef<unknown>[],
  options: { timeoutMs?: number } = {},
): Promise<unknown> {
  const all = Array.isArray(refs) ? Promise.all(refs as readonly ObjectRef<unknown>[]) : Promise.resolve(refs as ObjectRef<unknown>);
  const { timeoutMs } = options;
  if (timeoutMs === undefined) return all;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new CallTimeoutError('get()', timeoutMs, true)), timeoutMs);
  });
  try {
    return await Promise.race([all, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits until `numReturns` refs have settled (value or error), or the time is up; answers both groups in the order given. */
export function wait<T>(
  refs: readonly ObjectRef<T>[],
  options: { numReturns?: number; timeoutMs?: number } = {},
): Promise<{ done: ObjectRef<T>[]; pending: ObjectRef<T>[] }> {
  const wanted = Math.min(options.numReturns ?? 1, refs.length);
  const own = refs as unknown as readonly Ref[];
  return new Promise((resolve) => {
    let settled = 0;
    let timer: NodeJS.Timeout | undefined;
    let over = false;
    const finish = (): void => {
      over = true;
      clearTimeout(timer);
      resolve({ done: refs.filter((_, i) => own[i]!.state !== PENDING), pending: refs.filter((_, i) => own[i]!.state === PENDING) });
    };
    for (const ref of own) {
      ref.whenSettled(() => {
        settled++;
        if (!over && settled >= wanted) finish();
      });
    }
    if (!over && settled >= wanted) finish();
    else if (!over && options.timeoutMs !== undefined) timer = setTimeout(finish, options.timeoutMs);
  });
}

/** The actor whose code is running: after an await, too, in process and thread actors and in calls with a deadline or a signal. */
export function currentActor<T = object>(): CurrentActor<T> {
  const scope = actorScope();
  if (scope === undefined) throw new RuntimeFailure('SINKFLEX_NOT_INITIALISED', 'currentActor() is for code that runs inside an actor');
  const { actor, signal } = scope;
  return {
    name: actor.name,
    kind: actor.kind,
    incarnation: actor.incarnation,
    threads: actor.threads,
    gpuIds: [],
    self: makeHandle(session().client(actor.id, actor.name), actor.kind, actor.methods) as unknown as ActorHandle<T>,
    signal,
  };
}
