// Tasks that tasks call: the pool's owner runs them, and a task that waits for others does not keep its processors from them. A hidden
// actor of the owner takes these calls, so refs, deadlines, aborts and streams go the way that they go in any call.
import type { ActorSpec } from '../control/index.ts';
import { type ActorClient, ActorHost, type Session } from '../worker/index.ts';
import type { TaskName } from './definition.ts';
import type { Scheduler } from './scheduler.ts';
import type { TaskOptions } from './types.ts';

/** Options that travel with the call; the others are the caller's to keep. */
export type DeskOptions = Omit<TaskOptions, 'timeoutMs' | 'signal' | 'retryOn'> & { depth: number };

/** No actor of a run has a number below 0. */
function deskOf(worker: number): number {
  return -1 - worker;
}

let ownerDesk: { client: ActorClient; worker: number; owner: number } | undefined;

/** In a task thread: tasks that it calls are run by the owner of its pool. */
export function nestIn(session: Session, owner: number): void {
  ownerDesk = { client: session.client(deskOf(owner), 'tasks'), worker: session.worker, owner };
}

/** The way to the owner; undefined in threads that have pools of their own. */
export function desk(): { client: ActorClient; worker: number } | undefined {
  if (ownerDesk === undefined) return undefined;
  const { client, worker, owner } = ownerDesk;
  client.placed({
    actor: deskOf(owner),
    status: 'alive',
    incarnation: 1,
    worker: owner,
    name: 'tasks',
    failed: false,
    restarts: 0,
    window: Number.POSITIVE_INFINITY,
    maxPending: Number.POSITIVE_INFINITY,
    onFull: 'wait',
  });
  return { client, worker };
}

type Run = (name: TaskName, options: DeskOptions, args: unknown[]) => PromiseLike<unknown>;
type Stream = (name: TaskName, options: DeskOptions, args: unknown[]) => AsyncIterable<unknown>;

/** What a waiting task had taken is lent to the tasks that it waits for. */
class Desk {
  readonly #run: Run;
  readonly #stream: Stream;
  readonly #scheduler: Scheduler;
  /** Task thread -> calls that it waits for. */
  readonly #waiting = new Map<number, number>();

  constructor(run: Run, stream: Stream, scheduler: Scheduler) {
    this.#run = run;
    this.#stream = stream;
    this.#scheduler = scheduler;
  }

  #lend(worker: number): void {
    const before = this.#waiting.get(worker) ?? 0;
    this.#waiting.set(worker, before + 1);
    if (before > 0) return;
    this.#scheduler.lend();
  }

  #takeBack(worker: number): void {
    const left = (this.#waiting.get(worker) ?? 1) - 1;
    if (left > 0) this.#waiting.set(worker, left);
    else {
      this.#waiting.delete(worker);
      this.#scheduler.takeBack();
    }
  }

  async run(worker: number, name: TaskName, options: DeskOptions, ...args: unknown[]): Promise<unknown> {
    const answer = this.#run(name, options, args);
    this.#lend(worker);
    try {
      return await answer;
    } finally {
      this.#takeBack(worker);
    }
  }

  async *stream(worker: number, name: TaskName, options: DeskOptions, ...args: unknown[]): AsyncGenerator<unknown, void> {
    this.#lend(worker);
    try {
      yield* this.#stream(name, options, args);
    } finally {
      this.#takeBack(worker);
    }
  }
}

export function openDesk(session: Session, run: Run, stream: Stream, scheduler: Scheduler): void {
  const spec: ActorSpec = {
    actor: deskOf(session.worker),
    name: 'tasks',
    kind: 'Tasks',
    definition: '',
    module: '',
    exportName: '',
    methods: ['run', 'stream'],
    streams: ['stream'],
    args: { header: new Uint8Array(), sections: new Uint8Array() },
    // Its calls need a scope each, since many are under way.
    isolation: 'shared',
    request: { resources: {}, labels: {}, strategy: 'hybrid' },
    getIfExists: false,
    lifetime: 'owned',
    threads: 1,
    maxRestarts: 0,
    restartWindowMs: 0,
    restartBackoffMs: 0,
    maxConcurrency: Number.MAX_SAFE_INTEGER,
    maxPending: Number.MAX_SAFE_INTEGER,
    onFull: 'wait',
    concurrencyGroups: {},
    execArgv: [],
    checkpointIntervalMs: 0,
    unresponsiveMs: 0,
    env: {},
    imports: [],
  };
  const host = new ActorHost(spec, 1, []);
  session.hosts.set(spec.actor, host);
  host.adopt(new Desk(run, stream, scheduler));
}
