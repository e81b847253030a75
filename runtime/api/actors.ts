// Actors as a user handles them: spawn, look up, wait for, end.
import type { ActorSpec, Found } from '../control/index.ts';
import { Ref } from '../objects/index.ts';
import { encodeAlone } from '../wire/index.ts';
import { type ActorClient, actorScope, collectRefs, session } from '../worker/index.ts';
import { checkTimeout } from './check.ts';
import { definitionOf, rootsOf } from './definition.ts';
import { RuntimeFailure } from './errors.ts';
import { Handle, handleOf, makeHandle } from './handle.ts';
import { checkCall, checkKill, checkSpawn } from './options.ts';
import { currentOwner } from './owner.ts';
import { currentRun, driver } from './run.ts';
import type {
  ActorClass,
  ActorDefinition,
  ActorHandle,
  ActorInfo,
  AnyHandle,
  ArgumentsOf,
  CallOptions,
  CurrentActor,
  KillOptions,
  ObjectRef,
  SpawnOptions,
} from './types.ts';
import { keep } from './values.ts';

let spawned = 0;

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
    : [options: SpawnOptions<ConstructorParameters<C>> & { args: ArgumentsOf<ConstructorParameters<C>> }]
): ActorHandle<ActorDefinition<C>> {
  const { id, kind, module, methods, streams, concurrencyGroups } = definitionOf(definition);
  const options = (rest[0] ?? {}) as SpawnOptions;
  const { name: wanted, ...checked } = checkSpawn(options);
  const here = session();
  // Numbers are unique in the run: each worker counts in a range of its own.
  const actor = here.worker * 2 ** 24 + ++spawned;
  const name = wanted ?? `${kind}-${actor}`;
  if (wanted !== undefined && !checked.getIfExists && currentRun()?.nameTaken(name))
    throw new RuntimeFailure('SINKFLEX_NAME_TAKEN', `an actor named ${name} is alive: names are unique in a run`);
  if (checked.lifetime === 'detached' && currentRun()?.head !== undefined)
    throw new RuntimeFailure('SINKFLEX_NO_HEAD', "lifetime 'detached' needs a head that outlives its drivers: init({ address })");
  const refs: Ref[] = [];
  const outer = collectRefs(refs);
  let args: { header: Uint8Array; sections: Uint8Array };
  try {
    const encoded = encodeAlone(options.args ?? []);
    args = { header: encoded.header, sections: encoded.sections };
  } finally {
    collectRefs(outer);
  }
  // Every incarnation may fetch them again.
  if (refs.length > 0) here.keptFor.set(actor, keep(refs));
  const spec: ActorSpec = {
    ...checked,
    actor,
    name,
    kind,
    definition: id,
    module,
    roots: rootsOf([module, ...checked.imports]),
    exportName: kind,
    methods: [...methods],
    streams: [...streams],
    concurrencyGroups,
    ...(checked.lifetime === 'owned' ? { owner: currentOwner() } : {}),
    args,
  };
  here.link.send({ t: 'spawn', spec, watch: refs.length > 0 });
  return makeHandle(here.client(actor, name), kind, { methods, streams }) as unknown as ActorHandle<ActorDefinition<C>>;
}

/**
 * A handle of the living actor of that name; rejects with SINKFLEX_UNKNOWN_ACTOR if there is none.
 *
 * @example
 * const counter = await getActor<typeof Counter>('counter');
 */
export async function getActor<T = object>(name: string): Promise<ActorHandle<T>> {
  const here = session();
  const found = (await here.ask({ q: 'find', name })) as Found;
  return makeHandle(here.client(found.actor, found.name), found.kind, found) as unknown as ActorHandle<T>;
}

/** Resolves when the constructor and start() have ended well; rejects with ActorFailedError when they have not. */
export function ready(handle: AnyHandle, options: { timeoutMs?: number } = {}): Promise<void> {
  return Handle.client(handleOf(handle)).ready(checkTimeout('ready', options));
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

/**
 * Gives up a call that this worker has made: it rejects with CallAbortedError. A call that has not started never runs; one that runs sees
 * `currentActor().signal` abort, if it was made with a deadline, a signal or `cancellable`. Answers false if the call was over already.
 *
 * @example
 * const answer = withOptions(solver, { cancellable: true }).solve(task);
 * if (await tooLate()) cancel(answer);
 */
export function cancel(ref: ObjectRef<unknown>): boolean {
  if (!(ref instanceof Ref)) throw new RuntimeFailure('SINKFLEX_BAD_OPTION', 'this is not a ref');
  return (ref.client as ActorClient | undefined)?.cancel(ref) ?? false;
}

/**
 * Ends an incarnation: its stop() gets a second. Resolves when it is gone, with `restart` when the next one is alive. With `drain` its
 * drain() runs, accepted calls finish and its checkpoint() is saved before, for which there is `timeoutMs` (default 30 s).
 *
 * @example
 * await kill(queue, { drain: true, restart: true }); // the next incarnation's restore() gets what checkpoint() answered
 */
export function kill(handle: AnyHandle, options: KillOptions = {}): Promise<void> {
  return session().kill(Handle.client(handleOf(handle)).id, checkKill(options));
}

/** Every actor of the run, the dead included. */
export function listActors(): ActorInfo[] {
  return driver().listActors();
}

/** Calls back at every change of any actor's state; answers how to stop that. */
export function onActorChange(listener: (actor: ActorInfo) => void): () => void {
  return driver().onActorChange(listener);
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
    gpuIds: actor.gpuIds,
    self: makeHandle(session().client(actor.id, actor.name), actor.kind, actor) as unknown as ActorHandle<T>,
    signal,
    checkpoint: () => actor.checkpoint(),
  };
}
