// Which call is running: for currentActor(), and so that nested calls inherit the deadline and the abort of the call around them.
// Asynchronous context costs every promise of the process, so only calls that need it (a deadline, a signal, a shared worker) run in one.
import { AsyncLocalStorage } from 'node:async_hooks';

export interface Scope {
  readonly actor: ScopeActor;
  /** performance.now() at which the call's deadline passes; 0: none. */
  readonly expiresAt: number;
  readonly signal: AbortSignal;
  /** The call can be aborted, so nested calls must listen. */
  readonly abortable: boolean;
  /** The call has ended. What it started may go on in its context (a socket, a timer), but is no longer part of it. */
  over: boolean;
}

export interface ScopeActor {
  readonly name: string;
  readonly kind: string;
  readonly id: number;
  readonly incarnation: number;
  readonly threads: number;
  readonly gpuIds: readonly number[];
  readonly methods: readonly string[];
  readonly streams: readonly string[];
  /** Aborts when the incarnation is stopped. */
  readonly stopSignal: AbortSignal;
  /** Saves what the actor's checkpoint() answers. */
  checkpoint(): Promise<void>;
}

const storage = new AsyncLocalStorage<Scope>();
let synchronous: Scope | undefined;
/** In a worker with one actor, what holds whenever nothing closer does. */
let resident: Scope | undefined;

export function setResident(scope: Scope | undefined): void {
  resident = scope;
}

/** In a thread that runs one task at a time, what holds in everything that it does. */
let alone: Scope | undefined;

export function setAlone(scope: Scope | undefined): void {
  alone = scope;
}

/** The call that a nested call inherits from. */
export function callScope(): Scope | undefined {
  const scope = storage.getStore() ?? synchronous ?? alone;
  return scope?.over ? undefined : scope;
}

/** Whether this code runs in the context of some call: perhaps not the one that is about to run. */
export function insideSome(): boolean {
  return storage.getStore() !== undefined;
}

export function actorScope(): Scope | undefined {
  return storage.getStore() ?? synchronous ?? resident;
}

/** The synchronous part that follows, up to leave(), is in the scope; what it awaits is outside. */
export function enter(scope: Scope): Scope | undefined {
  const outer = synchronous;
  synchronous = scope;
  return outer;
}

export function leave(outer: Scope | undefined): void {
  synchronous = outer;
}

/** Runs it and everything it starts in the scope. */
export function runInside<T>(scope: Scope, body: () => T): T {
  return storage.run(scope, body);
}
