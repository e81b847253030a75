// Where the agent gets its workers from: a warm one if one fits, else a new one, of which only so many start at a time. Warm workers
// belong to nobody, are seen by nobody, and are not started before there is a sign that they will be of use.
import { availableParallelism } from 'node:os';
import type { CarrierEvents, Spare, WorkerRequest } from './carrier.ts';
import type { Janitor } from './janitor.ts';
import { MemoryAccounts } from './memory-limit.ts';
import { Monitor } from './monitor.ts';
import { PooledWorker } from './pooled-worker.ts';
import { processEntry, startProcess } from './process-worker.ts';
import { checkFolder, type Environment, environmentChange, needsFreshProcess, needsLoader, processFlags } from './runtime-env.ts';
import { startThread, threadNeedsLoader } from './thread-worker.ts';

type Kind = 'process' | 'thread';

/** A spare is started this long after the last worker began to work: whoever was waiting for that comes first. */
const REFILL_AFTER_MS = 50;
/** Spares that end by themselves one after the other: something is wrong with them, so no more are started. */
const MAX_LOSSES = 3;
/** A worker that is not ready after this long no longer holds up those that wait for their start. */
const SLOT_MS = 10_000;

export interface PoolOptions {
  /** Of the run. */
  folder: string;
  janitor: () => Janitor;
  /** Spares to keep, from the start; undefined: one process after the first worker process, no thread. */
  warm: { process?: number | undefined; thread?: number | undefined };
}

interface Kept {
  spare: Spare;
  env: Environment;
  cwd: string;
}

export class WorkerPool {
  readonly #options: PoolOptions;
  readonly #spares: Record<Kind, Kept[]> = { process: [], thread: [] };
  readonly #wanted: Record<Kind, number>;
  /** Starts that wait for their turn. */
  readonly #waiting: (() => void)[] = [];
  readonly #monitor = new Monitor();
  #accounts: MemoryAccounts | undefined;
  readonly #starting = new Set<Spare>();
  readonly #limit = Math.max(4, 2 * availableParallelism());
  #refill: NodeJS.Timeout | undefined;
  #losses = 0;
  #closed = false;
  #emptied: (() => void) | undefined;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#wanted = { process: options.warm.process ?? 0, thread: options.warm.thread ?? 0 };
    if (this.#wanted.process + this.#wanted.thread > 0) this.#refillLater(0);
  }

  /** The head is to hear that this node is there. */
  beat(to: Parameters<Monitor['beat']>[0]): void {
    this.#monitor.beat(to);
  }

  /** Throws if there is no such folder as the request's; everything else that goes wrong is reported as the worker's end. */
  acquire(request: WorkerRequest, events: CarrierEvents): PooledWorker {
    checkFolder(request.cwd);
    const kind: Kind = request.birth.isolation === 'thread' ? 'thread' : 'process';
    const pooled = { onStarted: () => this.#workerSettled(kind), onEnded: () => this.#refillLater() };
    this.#accounts ??= new MemoryAccounts();
    const worker = new PooledWorker(request, events, pooled, this.#monitor, this.#accounts);
    const warm = this.#take(kind, request);
    if (warm !== undefined) {
      const change = environmentChange(warm.env, { ...process.env, ...request.env });
      const cwd = request.cwd ?? process.cwd();
      if (kind === 'process' && cwd !== warm.cwd) change.cwd = cwd;
      worker.begin(warm.spare, change);
    } else if (this.#starting.size < this.#limit) this.#begin(kind, request, worker);
    else this.#waiting.push(() => !worker.over && this.#begin(kind, request, worker));
    return worker;
  }

  /** The spares as they are, for tests and for accounts of memory. */
  spares(): { process: number[]; thread: number } {
    return { process: this.#spares.process.flatMap(({ spare }) => spare.pid ?? []), thread: this.#spares.thread.length };
  }

  /** No spares from here on. */
  drain(): void {
    this.#closed = true;
    clearTimeout(this.#refill);
    for (const kind of ['process', 'thread'] as const) for (const { spare } of this.#spares[kind]) spare.destroy();
  }

  /** When no worker is left. Resolves when no spare is left either. */
  async close(): Promise<void> {
    this.drain();
    if (this.#spares.process.length + this.#spares.thread.length > 0) await new Promise<void>((resolve) => (this.#emptied = resolve));
    await this.#monitor.close();
  }

  #take(kind: Kind, request: WorkerRequest): Kept | undefined {
    const spares = this.#spares[kind];
    if (spares.length === 0) return undefined;
    if (kind === 'thread') {
      if (threadNeedsLoader(request.module) !== threadNeedsLoader('')) return undefined;
    } else if (request.execArgv.length > 0 || request.memory > 0) return undefined;
    else if (needsLoader(processEntry, request.module) !== needsLoader(processEntry, '')) return undefined;
    const target = { ...process.env, ...request.env };
    const fits = ({ env }: Kept): boolean => kind === 'thread' || !needsFreshProcess(environmentChange(env, target));
    let found = spares.findIndex((kept) => kept.spare.ready && fits(kept));
    if (found < 0) found = spares.findIndex(fits);
    if (found < 0) return undefined;
    const [kept] = spares.splice(found, 1);
    kept!.spare.onGone = undefined;
    return kept;
  }

  #begin(kind: Kind, request: WorkerRequest, worker: PooledWorker): void {
    try {
      const { label, env, cwd, module } = request;
      const spare =
        kind === 'thread'
          ? startThread(label, threadNeedsLoader(module))
          : startProcess({ label, flags: processFlags(processEntry, request), env, cwd, spare: false }, this.#options.janitor());
      this.#occupy(spare);
      worker.begin(spare, { set: {}, unset: [] });
    } catch (error) {
      worker.fail(error);
    }
  }

  #occupy(spare: Spare): void {
    this.#starting.add(spare);
    const free = (): void => {
      clearTimeout(timer);
      if (!this.#starting.delete(spare)) return;
      while (this.#starting.size < this.#limit && this.#waiting.length > 0) this.#waiting.shift()!();
    };
    const timer = setTimeout(free, SLOT_MS);
    timer.unref();
    spare.onReady = free;
  }

  #workerSettled(kind: Kind): void {
    if (kind === 'process' && this.#options.warm.process === undefined) this.#wanted.process = 1;
    this.#refillLater();
  }

  #refillLater(ms = REFILL_AFTER_MS): void {
    if (this.#closed || this.#losses >= MAX_LOSSES) return;
    clearTimeout(this.#refill);
    this.#refill = setTimeout(() => this.#refillNow(), ms);
    this.#refill.unref();
  }

  #refillNow(): void {
    // One after the other, and never beside workers that somebody waits for.
    if (this.#closed || this.#starting.size > 0 || this.#waiting.length > 0) return;
    for (const kind of ['process', 'thread'] as const) {
      if (this.#spares[kind].length >= this.#wanted[kind]) continue;
      const kept: Kept = { spare: this.#startSpare(kind), env: { ...process.env }, cwd: process.cwd() };
      const { spare } = kept;
      this.#spares[kind].push(kept);
      this.#occupy(spare);
      const free = spare.onReady!;
      spare.onReady = () => {
        free();
        if (spare.ready) {
          this.#losses = 0;
          spare.rehearse(this.#options.folder);
        }
        this.#refillLater(0);
      };
      spare.onGone = () => {
        this.#spares[kind].splice(this.#spares[kind].indexOf(kept), 1);
        this.#losses++;
        if (this.#spares.process.length + this.#spares.thread.length === 0) this.#emptied?.();
        this.#refillLater();
      };
      return;
    }
  }

  #startSpare(kind: Kind): Spare {
    const label = 'sinkflex:spare';
    if (kind === 'thread') return startThread(label, threadNeedsLoader(''));
    const flags = processFlags(processEntry, { module: '', execArgv: [], memory: 0 });
    return startProcess({ label, flags, env: {}, cwd: undefined, spare: true }, this.#options.janitor());
  }
}
