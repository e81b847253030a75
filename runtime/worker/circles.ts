// Calls that wait for themselves: an actor that runs one call at a time and, in it, waits for a call that is queued behind it, at itself or
// round by way of others. Nothing ends such a wait, so whoever has waited for a while follows the calls that it waits for, from worker to
// worker, and says so when it comes back to where it began. Calls pay nothing for it: it starts from a timer.
//
// A warning and no error: whether a method awaits what it has called cannot be seen.
import { performance } from 'node:perf_hooks';
import { ActorClient } from './client.ts';
import type { Connection } from './connection.ts';
import type { ActorHost } from './host.ts';
import type { InboundCall } from './inbound-call.ts';
import { TRACE } from './protocol.ts';
import type { Session } from './session.ts';

/** A call that ran for so long while others wait behind it is followed; again after twice as long. */
const AFTER_MS = 2000;
/** Calls of one call that are followed. */
const MOST_CALLS = 32;
const MOST_STEPS = 16;
const LONGEST_NAME = 300;

interface Origin {
  /** The worker and its number for the call that began to look. */
  worker: number;
  token: number;
  /** What waits for what, so far. */
  path: string[];
}

export class Circles {
  readonly #session: Session;
  /** Calls of this worker that others are asked about. */
  readonly #asked = new Map<number, InboundCall>();
  /** When a call is followed next; Infinity: it was told. */
  readonly #due = new WeakMap<InboundCall, number>();
  #tokens = 0;

  constructor(session: Session) {
    this.#session = session;
    session.circles = this;
  }

  /** Now and then. */
  look(now = performance.now()): void {
    for (const [token, call] of this.#asked) if (!isRunning(call)) this.#asked.delete(token);
    for (const host of this.#session.hosts.values()) {
      if (host.runningCount === 0 || host.queuedCount === 0) continue;
      for (const call of host.running) {
        if (call.lane?.maxConcurrency !== 1 || call.lane.waiting === 0 || now < (this.#due.get(call) ?? call.startedAt + AFTER_MS))
          continue;
        this.#due.set(call, now + (now - call.startedAt));
        const token = ++this.#tokens;
        this.#asked.set(token, call);
        this.#follow(host, { worker: this.#session.worker, token, path: [nameOf(call)] });
      }
    }
  }

  /** Asks about every call that the one call of this actor has made. */
  #follow(host: ActorHost, { worker, token, path }: Origin): void {
    // Which of several calls has made one is not known.
    if (host.runningCount !== 1) return;
    let left = MOST_CALLS;
    for (const connection of this.#session.connections()) {
      for (const ref of connection.unanswered()) {
        if (!(ref.client instanceof ActorClient) || (ref.caller === undefined ? host.shared : ref.caller !== host)) continue;
        connection.send([TRACE, ref.callId, ref.client.target, worker, token, path]);
        if (--left === 0) return;
      }
    }
  }

  /** Another worker, or this one, asks what becomes of a call that it has made. */
  onTrace(connection: Connection, number: number, [actor, worker, token, path]: unknown[]): void {
    const host = typeof actor === 'number' ? this.#session.hosts.get(actor) : undefined;
    if (host === undefined || typeof worker !== 'number' || typeof token !== 'number' || !isPath(path)) return;
    const same = (call: InboundCall): boolean => call.connection === connection && call.call === number;
    for (const call of host.running) {
      if (!same(call)) continue;
      this.#follow(host, { worker, token, path: [...path, nameOf(call)] });
      return;
    }
    for (const call of host.queued()) {
      if (!same(call)) continue;
      const { lane } = call;
      if (lane?.maxConcurrency !== 1) return;
      for (const blocker of host.running) {
        if (blocker.lane !== lane) continue;
        if (worker === this.#session.worker && this.#asked.get(token) === blocker) this.#tell(blocker, [...path, nameOf(call)]);
        else this.#follow(host, { worker, token, path: [...path, `${nameOf(call)}, behind ${nameOf(blocker)}`] });
      }
      return;
    }
  }

  #tell(call: InboundCall, path: string[]): void {
    if (this.#due.get(call) === Number.POSITIVE_INFINITY) return;
    this.#due.set(call, Number.POSITIVE_INFINITY);
    const { name } = call.host;
    process.stderr.write(
      `[sinkflex] calls wait for each other: ${path.join(' -> ')}. ${name} runs one call at a time, so the last waits for the first to end: ` +
        `spawn ${name} with a larger maxConcurrency, put one of the methods into a concurrency group, or give the calls a deadline\n`,
    );
  }
}

function isRunning(call: InboundCall): boolean {
  for (const each of call.host.running) if (each === call) return true;
  return false;
}

function nameOf({ host, method }: InboundCall): string {
  return `${host.name}.${method}()`.slice(0, LONGEST_NAME);
}

function isPath(path: unknown): path is string[] {
  return (
    Array.isArray(path) && path.length < MOST_STEPS && path.every((step) => typeof step === 'string' && step.length <= 3 * LONGEST_NAME)
  );
}
