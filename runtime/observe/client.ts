// An observer: attaches to a run from another process and asks it. Every question has a deadline, since a run that is blocked or stopped
// must not hang who looks at it.
import { lstatSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { os } from '../../kernels/host.ts';
import { checkKnown, ms } from '../api/check.ts';
import { RuntimeFailure } from '../api/errors.ts';
import type { Demand } from '../control/index.ts';
import { Channel, connect, decodeError } from '../wire/index.ts';
import type {
  ActorRow,
  EventInfo,
  GroupInfo,
  Listing,
  ListOptions,
  NodeInfo,
  ObjectInfo,
  StatusInfo,
  SummaryRow,
  TaskInfo,
  WorkerInfo,
} from './facts.ts';
import type { LogFile, LogTail } from './logs.ts';
import { ASK, DONE, FAILED, ITEMS, MORE, TOKEN_FILE } from './protocol.ts';
import type { FoundRun } from './runs.ts';
import type { StackSample } from './stack-sample.ts';
import type { TimelineData } from './timeline.ts';

/** On top of what the workers of the run get for their answers, twice (some questions take two rounds). */
const MARGIN_MS = 2000;
const WORKER_MS = 1000;

interface Asked {
  resolve: (value: unknown) => void;
  reject: (error: Error) => void;
  timer: NodeJS.Timeout;
}

/** `gaps`: how often lines had to make room before this end took them. */
export type OnLines = (lines: string[], gaps: number) => void;

/** Answers by the name of the question. */
export interface Questions {
  status: StatusInfo;
  actors: Listing<ActorRow>;
  tasks: Listing<TaskInfo>;
  objects: Listing<ObjectInfo>;
  workers: Listing<WorkerInfo>;
  nodes: Listing<NodeInfo>;
  groups: Listing<GroupInfo>;
  demand: Demand[];
  events: Listing<EventInfo> & { dropped: number };
  summary: Listing<SummaryRow>;
  metrics: string;
  timeline: TimelineData;
  stack: StackSample & { worker: string; pid: number | undefined };
  tail: LogTail;
  logs: LogFile[];
}

export class RunObserver {
  readonly run: FoundRun;
  readonly #channel: Channel;
  readonly #asked = new Map<number, Asked>();
  readonly #following = new Map<number, OnLines>();
  #next = 1;
  /** Resolves when the run has ended the connection. */
  readonly ended: Promise<void>;
  #onEnded: () => void = () => {};

  private constructor(run: FoundRun, transport: Awaited<ReturnType<typeof connect>>) {
    this.run = run;
    this.ended = new Promise((resolve) => {
      this.#onEnded = resolve;
    });
    this.#channel = new Channel(0, transport, {
      onMessage: (_channel, message) => this.#onMessage(message),
      onClose: () => this.#onClose(),
    });
    this.#channel.open();
  }

  /** Rejects with SINKFLEX_NO_ANSWER if nobody answers, SINKFLEX_AUTHENTICATION_FAILED if the token is not the run's. */
  static async attach(run: FoundRun): Promise<RunObserver> {
    const token = readToken(run.folder);
    try {
      return new RunObserver(run, await connect(run.folder, token, process.pid, 'observe'));
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT' || code === 'ECONNREFUSED')
        throw new RuntimeFailure(
          'SINKFLEX_NO_ANSWER',
          `nobody answers in ${run.folder}: the run of process ${run.pid} is starting or ending`,
          { cause: error },
        );
      if ((error as Error).message.includes('in time')) throw unresponsive(run, error);
      throw error;
    }
  }

  ask<Q extends keyof Questions>(question: Q, options: ListOptions & { name?: string; count?: number } = {}): Promise<Questions[Q]> {
    checkKnown(`the question ${question}`, options, { limit: true, where: true, timeoutMs: true, name: true, count: true });
    ms('timeoutMs', options.timeoutMs, 0);
    return this.#send(question, options) as Promise<Questions[Q]>;
  }

  #send(question: string, options: ListOptions & { name?: string; count?: number }): Promise<unknown> {
    if (this.#channel.closed) return Promise.reject(endedEarly(this.run));
    const request = this.#next++;
    return new Promise<unknown>((resolve, reject) => {
      const ms = 2 * (options.timeoutMs ?? WORKER_MS) + MARGIN_MS;
      const timer = setTimeout(
        () => {
          this.#asked.delete(request);
          reject(unresponsive(this.run));
        },
        Math.min(ms, 2 ** 31 - 1),
      );
      this.#asked.set(request, { resolve, reject, timer });
      this.#channel.send([ASK, request, question, options]);
    });
  }

  /** The last lines of a log, and then, once listen() is called, lines as they are written. */
  async follow(name: string, count?: number): Promise<{ tail: LogTail; listen: (onLines: OnLines) => void }> {
    const request = this.#next;
    const tail = (await this.#send('follow', { name, ...(count === undefined ? {} : { count }) })) as LogTail;
    const listen = (onLines: OnLines): void => {
      this.#following.set(request, onLines);
      this.#channel.send([MORE, request]);
    };
    return { tail, listen };
  }

  #onMessage([kind, request, value, gaps]: unknown[]): void {
    const asked = this.#asked.get(request as number);
    if (kind === ITEMS) {
      this.#following.get(request as number)?.(value as string[], gaps as number);
      this.#channel.send([MORE, request]);
    } else if (asked !== undefined) {
      this.#asked.delete(request as number);
      clearTimeout(asked.timer);
      if (kind === DONE) asked.resolve(value);
      else if (kind === FAILED) asked.reject(decodeError(value));
    }
  }

  #onClose(): void {
    for (const { reject, timer } of this.#asked.values()) {
      clearTimeout(timer);
      reject(endedEarly(this.run));
    }
    this.#asked.clear();
    this.#following.clear();
    this.#onEnded();
  }

  close(): void {
    this.#channel.close();
  }
}

function endedEarly({ pid }: FoundRun): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_NO_ANSWER', `the run of process ${pid} ended before it answered`);
}

function unresponsive(run: FoundRun, cause?: unknown): RuntimeFailure {
  const state = os.processState(run.pid);
  const what =
    state === 'T' || state === 't'
      ? 'the process is stopped (kill -CONT continues it)'
      : state === undefined || state === 'Z'
        ? 'the process has ended'
        : 'its event loop is blocked';
  return new RuntimeFailure('SINKFLEX_NO_ANSWER', `the run of process ${run.pid} did not answer in time: ${what}`, {
    ...(cause === undefined ? {} : { cause }),
    details: { pid: run.pid, state },
  });
}

/** The token of a folder that is this user's and closed to others; anything else is not ours to trust. */
function readToken(folder: string): Buffer {
  const about = lstatSync(folder);
  if (!about.isDirectory() || about.uid !== process.getuid?.() || (about.mode & 0o077) !== 0)
    throw new RuntimeFailure('SINKFLEX_AUTHENTICATION_FAILED', `${folder} is not a run folder that belongs to you alone`);
  const path = join(folder, TOKEN_FILE);
  if (statSync(path, { throwIfNoEntry: false }) === undefined)
    throw new RuntimeFailure('SINKFLEX_NO_RUN', `${folder} has no ${TOKEN_FILE}: it is no run folder, or the run is starting or ending`);
  return Buffer.from(readFileSync(path, 'utf8').trim(), 'hex');
}
