// What an incarnation has done for calls that their callers may make again, by caller and idempotency key: a call that comes a second time
// is not run a second time, but gets the answer of the first. An answer is forgotten when its caller says that it has it.
import { type Encoded, type ErrorData, encodeAlone, encodeError } from '../wire/index.ts';
import type { Connection } from './connection.ts';
import type { InboundCall } from './inbound-call.ts';

interface Entry {
  /** Runs, or waits for its turn. */
  task: InboundCall | undefined;
  value: Encoded | undefined;
  error: ErrorData | undefined;
}

/** A caller that never acknowledges costs no more than that; what is forgotten of it may run again. */
const MOST = 20_000;
/** A call whose caller's channel broke goes on for so long, for the caller to ask again. */
const GRACE_MS = 5000;
/** Answers to a caller whose channel broke are kept so long, unless it comes back. */
const KEPT_MS = 60_000;

export class Answered {
  /** Caller's worker -> key -> what became of it; keys ascend. */
  readonly #callers = new Map<number, Map<number, Entry>>();

  get size(): number {
    let size = 0;
    for (const entries of this.#callers.values()) size += entries.size;
    return size;
  }

  /** Whether the call came before; then it is, or will be, answered. */
  repeated(connection: Connection, call: number, key: number, lowestKey: number): boolean {
    this.forget(connection.peer, lowestKey);
    const entry = this.#callers.get(connection.peer)?.get(key);
    if (entry === undefined) return false;
    const { task, value, error } = entry;
    // One that waits for its turn would come before those that the caller sent ahead of it and that were lost: its place is here now.
    if (task !== undefined && task.startedAt === 0) return false;
    if (task !== undefined) task.redirect(connection, call);
    else if (error !== undefined) connection.failWith(call, error);
    else connection.answer(call, value);
    return true;
  }

  begun(task: InboundCall, key: number): void {
    task.key = key;
    const caller = task.connection.peer;
    let entries = this.#callers.get(caller);
    if (entries === undefined) {
      entries = new Map();
      this.#callers.set(caller, entries);
    }
    entries.set(key, { task, value: undefined, error: undefined });
    if (entries.size > MOST) entries.delete(entries.keys().next().value!);
  }

  /** It will not run: its caller's channel broke before its turn. */
  dropped(task: InboundCall): void {
    const entries = this.#callers.get(task.connection.peer);
    if (entries?.get(task.key)?.task === task) entries.delete(task.key);
  }

  /** Answers what to send. */
  keep(task: InboundCall, value: unknown): unknown {
    const entry = this.#callers.get(task.connection.peer)?.get(task.key);
    if (entry === undefined || task.stream !== undefined) return value;
    try {
      entry.value = encodeAlone(value);
    } catch {
      return value; // sending it will fail in the same way, and say so
    }
    entry.task = undefined;
    return entry.value;
  }

  keepError(task: InboundCall, error: unknown): void {
    const entry = this.#callers.get(task.connection.peer)?.get(task.key);
    if (entry === undefined) return;
    entry.task = undefined;
    entry.error = encodeError(error);
  }

  /** The caller has the answers to all keys below. */
  forget(caller: number, lowestKey: number): void {
    const entries = this.#callers.get(caller);
    if (entries === undefined) return;
    for (const key of entries.keys()) {
      if (key >= lowestKey) return;
      entries.delete(key);
    }
    if (entries.size === 0) this.#callers.delete(caller);
  }

  /** The caller's channel broke. It may come back and ask again. */
  callerLost(caller: number, gone: () => boolean): void {
    if (!this.#callers.has(caller)) return;
    setTimeout(() => {
      if (gone()) this.#callers.delete(caller);
    }, KEPT_MS).unref();
  }

  /** The channel of a call ended. Its caller may be gone, or come back and ask again. */
  orphaned(task: InboundCall): void {
    const { connection } = task;
    setTimeout(() => {
      if (task.connection === connection) task.abort();
    }, GRACE_MS).unref();
  }
}
