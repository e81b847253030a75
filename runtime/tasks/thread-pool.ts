// Task threads of this process: piscina runs them, admission is ours. Cancelling is a shared flag first; a task that does not heed it within
// its grace is ended with its thread.
import type { Piscina } from 'piscina';
import { RuntimeFailure } from '../api/errors.ts';
import { keep } from '../api/values.ts';
import { decodeError } from '../wire/index.ts';
import type { Session } from '../worker/index.ts';
import type { Holder, TaskCall } from './call.ts';
import { type FlatReply, flatBatch, type Kept, type Outcome, pack, replyOf, type SentTask, unpack } from './envelope.ts';
import { Guests } from './guests.ts';
import { type Executor, MOST_LEASES } from './scheduler.ts';
import { Slots } from './slots.ts';
import type { ThreadData } from './thread-main.ts';

/** Cells of threads that were ended may still be written for a moment. */
const REUSE_AFTER_MS = 1000;
const extension = import.meta.url.endsWith('.ts') ? '.ts' : '.js';

/** The least that piscina needs of an AbortSignal: a real one for each batch would cost more than a quick task. */
class Abort {
  aborted = false;
  readonly reason = undefined;
  #listener: (() => void) | undefined;
  addEventListener(_name: string, listener: () => void): void {
    this.#listener = listener;
  }
  removeEventListener(): void {
    this.#listener = undefined;
  }
  abort(): void {
    this.aborted = true;
    this.#listener?.();
  }
}

/** A call that was sent to a thread. */
class Sent implements Holder {
  readonly call: TaskCall;
  readonly slot: number;
  readonly #pool: ThreadPool;
  readonly #abort: Abort;
  #timer: NodeJS.Timeout | undefined;

  constructor(call: TaskCall, slot: number, pool: ThreadPool, abort: Abort) {
    this.call = call;
    this.slot = slot;
    this.#pool = pool;
    this.#abort = abort;
    call.sentTo(this);
  }

  abandoned(call: TaskCall): void {
    this.#pool.cancel(this.slot);
    this.#timer = setTimeout(() => this.#abort.abort(), call.options.cancelGraceMs);
    this.#timer.unref();
  }

  over(): void {
    clearTimeout(this.#timer);
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

export class ThreadPool implements Executor {
  readonly #session: Session;
  readonly #slots = new Slots();
  readonly #guests: Guests;
  readonly #measured: (task: string, ms: number, waited: boolean) => void;
  #pool: Promise<Piscina> | undefined;
  #closed = false;

  constructor(session: Session, measured: (task: string, ms: number, waited: boolean) => void) {
    this.#session = session;
    this.#guests = new Guests(session);
    this.#measured = measured;
  }

  async #open(): Promise<Piscina> {
    const { Piscina } = await import('piscina');
    const workerData: ThreadData = { channel: this.#guests.channelName, cells: this.#slots.cells, owner: this.#session.worker };
    const pool = new Piscina({
      filename: new URL(`./thread-main${extension}`, import.meta.url).href,
      minThreads: 0,
      maxThreads: MOST_LEASES,
      // Their values live as long as they do.
      idleTimeout: Number.POSITIVE_INFINITY,
      concurrentTasksPerWorker: 1,
      // Idle threads must answer: they own values, and others call what they spawned.
      atomics: 'disabled',
      recordTiming: false,
      trackUnmanagedFds: false,
      workerData,
      ...(extension === '.ts' ? {} : { execArgv: process.execArgv.filter((flag) => flag === '--enable-source-maps') }),
    });
    pool.on('workerDestroy', () => this.#guests.living(new Set(pool.threads.map((thread) => thread.threadId))));
    pool.on('error', (error: unknown) => void process.stderr.write(`[sinkflex] an idle task thread ended: ${describe(error)}\n`));
    return pool;
  }

  cancel(slot: number): void {
    this.#slots.cancel(slot);
    this.#guests.cancelled(slot);
  }

  async run(calls: TaskCall[]): Promise<void> {
    const abort = new Abort();
    const sent = calls.map((call) => new Sent(call, this.#slots.take(), this, abort));
    const kept = calls.map((): Kept => ({ refs: [], memory: [] }));
    let letGo = (): void => {};
    const { id, name, module } = calls[0]!.task;
    try {
      this.#pool ??= this.#open();
      const pool = await this.#pool;
      const tasks = sent.map(
        ({ call, slot }, i): SentTask => ({ slot, attempt: call.attempt, args: pack(call.args, kept[i]!), remainingMs: call.remainingMs }),
      );
      // A call that was given up no longer keeps its refs, and the thread may give one back before its reply says who it is.
      letGo = keep(kept.flatMap(({ refs }) => refs));
      const reply = replyOf(
        (await pool.run(flatBatch({ task: { id, name, module }, depth: calls[0]!.options.depth, tasks }), { signal: abort })) as FlatReply,
      );
      for (let i = 0; i < sent.length; i++) {
        // What did not begin was not read: that thread has nothing of it to give back.
        if (!('begun' in reply.outcomes[i]!)) for (const ref of kept[i]!.refs) this.#session.lend(ref, reply.worker);
        sent[i]!.over();
        this.#slots.give(sent[i]!.slot);
        this.#settle(calls[i]!, reply.outcomes[i]!);
      }
      this.#measured(id, reply.ms / calls.length, reply.waited);
    } catch (error) {
      const cause = this.#closed
        ? new RuntimeFailure('SINKFLEX_SHUT_DOWN', 'the runtime was shut down while the task was under way')
        : error;
      for (const { slot } of sent) setTimeout(() => this.#slots.give(slot), REUSE_AFTER_MS).unref();
      for (const each of sent) {
        each.over();
        if (this.#closed) each.call.ref.reject(cause);
        else if (this.#slots.begun(each.slot)) {
          each.call.begun();
          each.call.lost(cause);
        } else each.call.back();
      }
    } finally {
      letGo();
      for (const { memory } of kept) memory.length = 0;
    }
  }

  #settle(call: TaskCall, outcome: Outcome): void {
    if ('begun' in outcome) {
      call.back();
      return;
    }
    call.begun();
    if ('error' in outcome) call.threw(decodeError(outcome.error));
    else {
      // Decoded even if nobody waits: the refs in it are lent to us.
      const value = unpack(outcome.value);
      call.succeeded(value);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    const pool = await this.#pool?.catch(() => undefined);
    await pool?.destroy();
    this.#guests.close();
  }
}
