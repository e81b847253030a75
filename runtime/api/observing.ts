// How a driver lets itself be seen: its head and agent as what is observed, their changes as events, the lines of its actors as logs.
import { cpus } from 'node:os';
import type { Head } from '../head/index.ts';
import type { Agent } from '../node/index.ts';
import { actorEvent, EventLog, LogFolder, type Observable, type OpenObservatory, openObservatory } from '../observe/index.ts';
import { answer, stopWatchingLoop, watchLoop } from '../observe/worker-state.ts';
import type { Session } from '../worker/index.ts';
import type { ActorOutput, InitOptions } from './types.ts';

export interface Observed {
  head: Head;
  agent: Agent;
  session: Session;
}

export class Observing {
  readonly #folder: string;
  readonly #options: InitOptions;
  readonly #events = new EventLog();
  readonly #logs: LogFolder;
  #open: OpenObservatory | undefined;

  constructor(folder: string, options: InitOptions) {
    this.#folder = folder;
    this.#options = options;
    this.#logs = new LogFolder(folder);
  }

  /** Keeps the line. */
  readonly line = (output: ActorOutput): void => this.#logs.write(output);

  async open({ head, agent, session }: Observed): Promise<void> {
    watchLoop();
    const events = this.#events;
    events.add('run', 'run', 'started', { pid: process.pid });
    head.onActorChange((actor) => actorEvent(events, actor));
    agent.onWorkerChange(({ worker, isolation, pid }, end) => {
      events.add('worker', `${isolation}-${worker}`, end === undefined ? 'started' : 'ended', {
        ...(pid === undefined ? {} : { pid }),
        ...(end?.exitCode === undefined ? {} : { exitCode: end.exitCode }),
        ...(end?.signal === undefined ? {} : { signal: end.signal }),
      });
    });
    const source: Observable = {
      actors: () => head.list(),
      workers: () => [{ worker: 0, isolation: 'driver', pid: process.pid, actors: [] }, ...agent.workers()],
      nodes: () => [
        {
          node: 'local',
          state: 'up',
          labels: {},
          total: { cpus: cpus().length },
          free: { cpus: cpus().length },
          actors: head.list().length,
          leases: 0,
        },
      ],
      groups: () => [],
      why: () => undefined,
      ask: async (worker, question, timeoutMs) => (worker === 0 ? answer(session, question) : agent.ask(worker, question, timeoutMs)),
    };
    this.#open = await openObservatory({
      folder: this.#folder,
      source,
      events,
      logs: this.#logs,
      metricsPort: this.#options.metricsPort,
    });
  }

  get observatory(): OpenObservatory {
    return this.#open!;
  }

  close(): void {
    stopWatchingLoop();
    this.#open?.close();
    this.#logs.close();
  }
}
