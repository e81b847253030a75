// Where the agent gets its workers from: a warm one if one fits, else a new one, of which only so many start at a time. Warm workers
// belong to nobody, are seen by nobody, and are not started before there is a sign that they will be of use.
import { availableParallelism } from 'node:os';
import type { EnvironmentChange, FromAgent, ToAgent } from '../control/index.ts';
import type { Adoption, CarrierEvents, Spare, WorkerCarrier, WorkerRequest } from './carrier.ts';
import type { Janitor } from './janitor.ts';
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
  readonly #waiting: Deferred[] = [];
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

  /** Throws if there is no such folder as the request's; everything else that goes wrong is reported as the worker's end. */
  acquire(request: WorkerRequest, events: CarrierEvents): WorkerCarrier {
    checkFolder(request.cwd);
    const kind: Kind = request.birth.isolation === 'thread' ? 'thread' : 'process';
    const warm = this.#take(kind, request);
    const watched: CarrierEvents = {
      ...events,
      onMessage: (message: ToAgent) => {
        if (message.t === 'started') this.#workerSettled(kind);
        events.onMessage(message);
      },
      onEnd: (end) => {
        events.onEnd(end);
        this.#refillLater();
      },
    };
    if (warm !== undefined) {
      const change = environmentChange(warm.env, { ...process.env, ...request.env });
      return warm.spare.adopt(adoption(request, change, warm.cwd), watched);
    }
    if (this.#starting.size < this.#limit) return this.#startFor(kind, request, watched);
    const deferred = new Deferred(() => this.#startFor(kind, request, watched), watched);
    this.#waiting.push(deferred);
    return deferred;
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

  /** Resolves when no spare is left. */
  async close(): Promise<void> {
    this.drain();
    if (this.#spares.process.length + this.#spares.thread.length > 0) await new Promise<void>((resolve) => (this.#emptied = resolve));
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

  #startFor(kind: Kind, request: WorkerRequest, events: CarrierEvents): WorkerCarrier {
    let spare: Spare;
    if (kind === 'thread') spare = startThread(request.label, threadNeedsLoader(request.module));
    else {
      const { label, env, cwd } = request;
      spare = startProcess({ label, flags: processFlags(processEntry, request), env, cwd }, this.#options.janitor());
    }
    this.#occupy(spare);
    return spare.adopt(adoption(request, { set: {}, unset: [] }, undefined), events);
  }

  #occupy(spare: Spare): void {
    this.#starting.add(spare);
    const free = (): void => {
      clearTimeout(timer);
      if (!this.#starting.delete(spare)) return;
      while (this.#starting.size < this.#limit && this.#waiting.length > 0) this.#waiting.shift()!.begin();
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
        if (spare.ready) this.#losses = 0;
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
    return startProcess({ label, flags, env: {}, cwd: undefined }, this.#options.janitor());
  }
}

function adoption(request: WorkerRequest, environment: EnvironmentChange, at: string | undefined): Adoption {
  const cwd = request.cwd ?? (at === undefined || request.birth.isolation === 'thread' ? undefined : process.cwd());
  if (at !== undefined && cwd !== undefined && cwd !== at) environment.cwd = cwd;
  return { birth: request.birth, label: request.label, environment };
}

/** A worker that waits for its turn to be started. */
class Deferred implements WorkerCarrier {
  readonly #start: () => WorkerCarrier;
  readonly #events: CarrierEvents;
  #carrier: WorkerCarrier | undefined;
  #unsent: FromAgent[] = [];
  #destroyed = false;

  constructor(start: () => WorkerCarrier, events: CarrierEvents) {
    this.#start = start;
    this.#events = events;
  }

  get pid(): number | undefined {
    return this.#carrier?.pid;
  }

  begin(): void {
    if (this.#destroyed) return;
    try {
      this.#carrier = this.#start();
    } catch (error) {
      setImmediate(() => this.#events.onEnd({ exitCode: -1, lastStderr: [], error }));
      return;
    }
    this.#events.onPid?.();
    for (const message of this.#unsent.splice(0)) this.#carrier.send(message);
  }

  send(message: FromAgent): void {
    if (this.#carrier === undefined) this.#unsent.push(message);
    else this.#carrier.send(message);
  }

  destroy(): void {
    if (this.#carrier !== undefined) this.#carrier.destroy();
    else if (!this.#destroyed) {
      this.#destroyed = true;
      setImmediate(() => this.#events.onEnd({ signal: 'SIGKILL', lastStderr: [] }));
    }
  }
}
