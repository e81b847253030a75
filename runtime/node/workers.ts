// The workers of one node: which carries what, how they are, and how they end. What they say and what becomes of the actors in them is the
// agent's affair.
import { unlink } from 'node:fs';
import { RuntimeFailure } from '../api/errors.ts';
import type { ActorSpec, FromAgent, ToAgent } from '../control/index.ts';
import { currentOrders } from '../links/index.ts';
import { removeSpilled } from '../objects/index.ts';
import type { Question } from '../observe/questions.ts';
import { stackFolder } from '../observe/stack-sample.ts';
import { socketPath } from '../wire/index.ts';
import type { AgentOptions } from './agent.ts';
import type { Health, WorkerEnd } from './carrier.ts';
import type { HeadPlace } from './heartbeat.ts';
import { Janitor } from './janitor.ts';
import { MemoryGroups } from './memory-limit.ts';
import { WorkerPool } from './pool.ts';
import type { PooledWorker } from './pooled-worker.ts';
import { Questions } from './questions.ts';
import { type WorkerInfo, type WorkerRecord, workerInfo } from './records.ts';
import { warnOfHealth } from './warnings.ts';
import type { WorkerNumbers } from './worker-numbers.ts';
import { birthOf, workerRequest } from './worker-request.ts';

export interface WorkersEvents {
  message(message: ToAgent, worker: WorkerRecord): void;
  /** Its process has a number now. */
  pid(worker: WorkerRecord): void;
  health(worker: WorkerRecord, health: Health): void;
  ended(worker: WorkerRecord, end: WorkerEnd): void;
}

export type OnWorkerChange = (worker: WorkerInfo, end: WorkerEnd | undefined) => void;

/** What an agent wants of whoever has its workers. */
export type WorkersFace = Pick<Workers, 'get' | 'list' | 'onChange' | 'for' | 'ask' | 'reply' | 'drain' | 'close' | 'destroy'> &
  Partial<Pick<Workers, 'beat'>>;

export class Workers {
  readonly #options: AgentOptions;
  readonly #numbers: WorkerNumbers;
  readonly #events: WorkersEvents;
  readonly #pool: WorkerPool;
  readonly #workers = new Map<number, WorkerRecord>();
  /** Those of them that many actors share. */
  readonly #shared = new Set<WorkerRecord>();
  readonly #questions = new Questions();
  readonly #listeners = new Set<OnWorkerChange>();
  #janitor: Janitor | undefined;
  #onEmpty: (() => void) | undefined;

  constructor(options: AgentOptions, numbers: WorkerNumbers, events: WorkersEvents) {
    this.#options = options;
    this.#numbers = numbers;
    this.#events = events;
    const folder = options.ownFolder ?? options.folder;
    this.#pool = new WorkerPool({
      janitor: () => (this.#janitor ??= new Janitor(folder, new MemoryGroups().prefix)),
      warm: options.warmWorkers,
      folder: options.folder,
    });
  }

  /** From now on the head hears that this node is there. */
  beat(head: HeadPlace): void {
    const { token, node, lease } = this.#options;
    this.#pool.beat({ head, token, node, ...(lease?.address === undefined ? {} : { lease: lease.address }) });
  }

  get(worker: number): WorkerRecord | undefined {
    return this.#workers.get(worker);
  }

  list(): WorkerInfo[] {
    return [...this.#workers.values()].map(workerInfo);
  }

  onChange(listener: OnWorkerChange): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** One that the actor can be started in. Throws if there cannot be one. */
  for(spec: ActorSpec): WorkerRecord {
    return (spec.isolation === 'shared' ? this.#leastLoaded() : undefined) ?? this.#start(spec);
  }

  #leastLoaded(): WorkerRecord | undefined {
    let least: WorkerRecord | undefined;
    for (const worker of this.#shared) if (least === undefined || worker.hosted.size < least.hosted.size) least = worker;
    return least !== undefined && least.hosted.size > 0 && this.#shared.size < this.#options.sharedWorkers ? undefined : least;
  }

  #start(spec: ActorSpec): WorkerRecord {
    const number = this.#numbers.next();
    const name = spec.isolation === 'shared' ? `shared-${number}` : spec.name;
    const record: WorkerRecord = {
      worker: number,
      name,
      isolation: spec.isolation,
      hosted: new Set(),
      health: 'ok',
      carrier: undefined as unknown as PooledWorker,
      send: (message: FromAgent) => record.carrier.send(message),
    };
    const request = workerRequest(spec, birthOf(this.#options, number, spec.isolation), name);
    record.carrier = this.#pool.acquire(request, {
      onMessage: (message) => this.#events.message(message, record),
      onLine: (stream, line) => this.#options.onOutput({ name, pid: record.carrier.pid ?? -1, stream, line }),
      onEnd: (end) => this.#ended(record, end),
      onHealth: (health, forMs) => this.#healthChanged(record, health, forMs),
      onPid: () => this.#events.pid(record),
    });
    this.#workers.set(number, record);
    for (const order of currentOrders()) record.send({ t: 'emulate', order });
    if (spec.isolation === 'shared') this.#shared.add(record);
    this.#tell(record);
    return record;
  }

  #tell(worker: WorkerRecord, end?: WorkerEnd): void {
    for (const listener of this.#listeners) listener(workerInfo(worker), end);
  }

  #healthChanged(worker: WorkerRecord, health: Health, forMs: number): void {
    worker.health = health;
    this.#events.health(worker, health);
    this.#tell(worker);
    void warnOfHealth(worker, forMs);
  }

  #ended(worker: WorkerRecord, end: WorkerEnd): void {
    const { folder, store } = this.#options;
    this.#workers.delete(worker.worker);
    this.#shared.delete(worker);
    if (store !== undefined) removeSpilled(store, worker.worker);
    this.#questions.workerEnded(worker.worker);
    // Processes that were killed had no time to take their listener away.
    for (const each of [folder, stackFolder(folder)]) unlink(socketPath(each, worker.worker), () => {});
    this.#tell(worker, end);
    this.#events.ended(worker, end);
    if (this.#workers.size === 0) this.#onEmpty?.();
  }

  /** Rejects with SINKFLEX_NO_ANSWER when the worker is blocked, stopped or gone. */
  ask(worker: number, question: Question, timeoutMs: number): Promise<unknown> {
    const record = this.#workers.get(worker);
    if (record === undefined) return Promise.reject(new RuntimeFailure('SINKFLEX_NO_ANSWER', `there is no worker ${worker}`));
    return this.#questions.ask(worker, timeoutMs, (request) => record.send({ t: 'query', request, question }));
  }

  reply(message: ToAgent & { t: 'reply' }, worker: number): void {
    this.#questions.reply(message, worker);
  }

  /** Nothing new will be wanted: warm workers go. */
  drain(): void {
    this.#pool.drain();
  }

  /** Ends every worker at once. Resolves when none is left. */
  async close(): Promise<void> {
    this.destroy();
    if (this.#workers.size > 0) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 5000);
        this.#onEmpty = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    await this.#pool.close();
    await this.#janitor?.close();
    if (this.#workers.size > 0) throw new RuntimeFailure('SINKFLEX_SHUT_DOWN', `${this.#workers.size} workers did not end`);
  }

  /** At the exit of the process: no time for anything else. `again`: there will be others. */
  destroy(again = false): void {
    if (!again) this.#pool.drain();
    for (const worker of this.#workers.values()) worker.carrier.destroy();
  }
}
