// How a run in its driver lets itself be seen: its head and agent as what is observed, their changes as events, the lines of its actors as
// logs.
import type { Head } from '../head/index.ts';
import type { Agent } from '../node/index.ts';
import { answerQuestion, type Options } from '../observe/answers.ts';
import { EventLog, LogFolder, type OpenObservatory, openObservatory, watchAgent, watchHead } from '../observe/index.ts';
import type { Question } from '../observe/questions.ts';
import { answer, record, stopRecording, stopWatchingLoop, watchLoop } from '../observe/worker-state.ts';
import type { Session } from '../worker/index.ts';
import { RuntimeFailure } from './errors.ts';
import type { ActorOutput, InitOptions } from './types.ts';

export interface Observed {
  readonly head: Head | undefined;
  readonly agent: Agent | undefined;
  readonly session: Session;
}

export class Observing {
  readonly #folder: string;
  readonly #events = new EventLog();
  readonly #logs: LogFolder;
  #open: OpenObservatory | undefined;

  constructor(folder: string) {
    this.#folder = folder;
    this.#logs = new LogFolder(folder);
  }

  /** Keeps the line. */
  readonly line = (output: ActorOutput): void => this.#logs.write(output);

  async open({ head, agent, session }: Observed, options: InitOptions): Promise<void> {
    if (head === undefined || agent === undefined) return;
    watchLoop();
    if (options.timeline) record();
    const events = this.#events;
    events.add('run', 'run', 'started', { pid: process.pid });
    watchAgent(agent, events, this.#logs);
    const source = {
      ...watchHead(head, events),
      workers: () => ({
        workers: [
          { worker: 0, name: 'driver', isolation: 'driver' as const, pid: process.pid, health: 'ok' as const, actors: [] },
          ...agent.workers(),
        ],
        silent: [],
      }),
      ask: async (worker: number, question: Question, timeoutMs: number) =>
        worker === 0 ? answer(session, question) : agent.ask(worker, question, timeoutMs),
      stack: (worker: number, timeoutMs: number) => agent.stack({ worker }, timeoutMs),
    };
    const { metricsPort, metricsTokenFile } = options;
    this.#open = await openObservatory({ folder: this.#folder, source, events, logs: this.#logs, metricsPort, metricsTokenFile });
  }

  ask(question: string, options: Options): unknown {
    if (this.#open === undefined) throw new RuntimeFailure('SINKFLEX_NOT_INITIALISED', 'init() has not ended yet');
    return answerQuestion(this.#open.observatory, question, options);
  }

  get metricsPort(): number | undefined {
    return this.#open?.metricsPort;
  }

  close(): void {
    stopWatchingLoop();
    stopRecording();
    this.#open?.close();
    this.#logs.close();
  }
}
