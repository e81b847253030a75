// The agent of one node: starts, watches and ends what the head wants there, and reports. Never on the path of a call, never runs user
// code, decides nothing.
import { os } from '../../kernels/host.ts';
import { RuntimeFailure } from '../api/errors.ts';
import type { ActorOutput } from '../api/types.ts';
import {
  type ChannelBirth,
  type Clock,
  type Died,
  deadline,
  type EndData,
  type FromAgent,
  type FromHead,
  type HeadLink,
  type NodeId,
  type StoreBirth,
  systemClock,
  type ToAgent,
} from '../control/index.ts';
import type { HostWay } from '../links/index.ts';
import type { Question } from '../observe/questions.ts';
import type { StackSample } from '../observe/stack-sample.ts';
import { encodeError } from '../wire/index.ts';
import { answerQuery } from './answer-query.ts';
import type { WorkerEnd } from './carrier.ts';
import { Directory, type Subscriber } from './directory.ts';
import { Guests } from './guests.ts';
import type { HeadPlace } from './heartbeat.ts';
import { HeldBundles } from './held-bundles.ts';
import { HOST_LEASE_MS, type Lease } from './lease-cell.ts';
import { LeaseWatch } from './lease-watch.ts';
import { asHosted, endOf, type HostedRecord, type WorkerInfo, type WorkerRecord } from './records.ts';
import { WorkerNumbers } from './worker-numbers.ts';
import { type OnWorkerChange, Workers, type WorkersEvents, type WorkersFace } from './workers.ts';

/** Between a polite end and a sure one, on top of the grace that stop() gets. */
export const HARD_AFTER_MS = 250;

/** Of an incarnation that was to be stopped and does not run here. */
const NOT_HERE: EndData = { lastStderr: [], constructorFailed: false };

export interface AgentOptions {
  node: NodeId;
  /** What it has for placement, and its labels. */
  total: Record<string, number>;
  labels: Record<string, string>;
  /** Where the sockets of the run are. */
  folder: string;
  /** To the workers of other hosts, if there are others. */
  way?: Pick<HostWay, 'socket' | 'direct' | 'info' | 'heard'>;
  /** Until when this host may act; absent: as long as this process lives. */
  lease?: Lease;
  /** The lease is over, and something ran here. */
  onFenced?: (why: string) => void;
  /** What is removed when this process was killed; default `folder`. Given by agents that have joined a head of its own. */
  ownFolder?: string;
  token: Buffer;
  sharedWorkers: number;
  maxInFlightBytes: number;
  /** Of the channels of its workers, where that is not the usual. */
  channels?: ChannelBirth;
  /** The object store of this host; absent: large values travel in the frames. */
  store?: StoreBirth;
  warmWorkers: { process?: number | undefined; thread?: number | undefined };
  /** Workers record calls. */
  timeline?: boolean;
  onOutput: (line: ActorOutput) => void;
  /** The head wants the node drained, or the end of all. */
  onDrain?: (graceMs: number) => void;
  onShutdown?: () => void;
  clock?: Clock;
  /** Who starts and watches the workers; default: this host. */
  makeWorkers?: (numbers: WorkerNumbers, events: WorkersEvents) => WorkersFace;
  /** Of this agent; default: the process that it runs in. */
  process?: { pid: number; start: string };
}

export class Agent {
  readonly #options: AgentOptions;
  readonly #head: HeadLink;
  readonly #directory: Directory;
  /** By actor: the incarnation that runs here. */
  readonly #hosted = new Map<number, HostedRecord>();
  readonly #workers: WorkersFace;
  readonly #clock: Clock;
  readonly #guests: Guests;
  readonly #numbers: WorkerNumbers;
  readonly #bundles = new HeldBundles();
  /** Ends that the head has not heard yet. */
  readonly #ends = new Map<string, Died>();
  readonly #lease: LeaseWatch | undefined;
  #closed = false;
  #closing: Promise<void> | undefined;
  #onIdle: (() => void) | undefined;

  constructor(options: AgentOptions, head: HeadLink) {
    this.#options = options;
    this.#head = head;
    this.#directory = new Directory(head);
    this.#guests = new Guests(this.#directory);
    this.#numbers = new WorkerNumbers(() => head.send({ t: 'numbers' }));
    this.#clock = options.clock ?? systemClock;
    const makeWorkers = options.makeWorkers ?? ((numbers, events) => new Workers(options, numbers, events));
    this.#workers = makeWorkers(this.#numbers, {
      message: (message, worker) => this.receive(message, worker),
      pid: (worker) => {
        for (const hosted of worker.hosted) this.#sayHosted(hosted);
      },
      health: (worker, health) => {
        for (const { spec, incarnation } of worker.hosted) this.#head.send({ t: 'health', actor: spec.actor, incarnation, health });
      },
      ended: (worker, end) => this.#workerEnded(worker, end),
    });
    if (options.lease !== undefined)
      this.#lease = new LeaseWatch(options.lease, this.#clock, { over: () => this.#fence(), again: () => head.reconnect?.() });
  }

  /** Says to the head that it is there, for the first time or again, and what it has. */
  join(): void {
    const { node, total, labels } = this.#options;
    this.#lease?.joined();
    const own = this.#options.process ?? { pid: process.pid, start: os.processStartTime(process.pid) ?? '' };
    this.#head.send({
      t: 'join',
      node,
      pid: own.pid,
      processStart: own.start,
      total,
      labels,
      needsNumbers: this.#numbers.empty,
      ...(this.#options.way === undefined ? {} : { host: this.#options.way.info(this.#numbers.given) }),
      hosted: [...this.#hosted.values()].map(asHosted),
      ended: [...this.#ends.values()],
      bundles: this.#bundles.list(),
    });
    for (const hosted of this.#hosted.values()) this.#sayHealth(hosted);
    this.#directory.again();
  }

  /** From now on, for an agent in a process of its own: silence is noticed. */
  beat(head: HeadPlace): void {
    this.#workers.beat?.(head);
  }

  // --- what workers and the driver say

  receive(message: ToAgent, from: Subscriber): void {
    switch (message.t) {
      case 'spawn':
      case 'resolve':
      case 'kill':
      case 'ask':
        this.#directory.receive(message, from);
        return;
      case 'started':
      case 'checkpoint': {
        const hosted = this.#hostedBy(message.actor, message.incarnation, from);
        if (hosted === undefined) return;
        if (message.t === 'started') hosted.started = true;
        this.#head.send(message);
        return;
      }
      case 'ended': {
        const hosted = this.#hostedBy(message.actor, message.incarnation, from);
        if (hosted === undefined) return;
        hosted.ending = message;
        if (hosted.spec.isolation === 'shared') this.#ended(hosted, { lastStderr: [] });
        else this.#hardLater(hosted, HARD_AFTER_MS);
        return;
      }
      case 'fatal': {
        const worker = this.#workers.get(from.worker);
        if (worker !== undefined) worker.fatal = message;
        return;
      }
      case 'guest-join':
        this.#guests.join(this.#numbers.next(), from, message.request);
        return;
      case 'guest-left':
        this.#guests.left(message.worker, from);
        return;
      case 'guest': {
        const guest = this.#guests.unwrap(message, from);
        if (guest !== undefined) this.receive(message.message, guest);
        return;
      }
      case 'reply':
        this.#workers.reply(message, from.worker);
        return;
      case 'ready':
        return;
    }
  }

  /** Late words of an incarnation that is over, or of a worker that does not host it, are not heard. */
  #hostedBy(actor: number, incarnation: number, from: Subscriber): HostedRecord | undefined {
    const hosted = this.#hosted.get(actor);
    return hosted?.incarnation === incarnation && hosted.worker === from ? hosted : undefined;
  }

  // --- what the head says

  onHead(message: FromHead): void {
    switch (message.t) {
      case 'start':
        this.#start(message);
        return;
      case 'stop':
        this.#stop(message);
        return;
      case 'numbers':
        this.#numbers.add(message.first, message.last);
        return;
      case 'heard':
        this.#ends.delete(`${message.actor} ${message.incarnation}`);
        return;
      case 'prepare':
        this.#bundles.prepare(message);
        this.#head.send({ t: 'prepared', group: message.group, attempt: message.attempt, ok: true });
        return;
      case 'commit':
        return;
      case 'release':
        this.#bundles.release(message);
        return;
      case 'drain':
        this.#options.onDrain?.(message.graceMs);
        return;
      case 'query':
        void answerQuery(this, this.#head, message);
        return;
      case 'shutdown':
        this.#options.onShutdown?.();
        return;
      case 'spawned':
      case 'place':
      case 'killed':
      case 'answer':
        this.#directory.onHead(message);
        return;
      case 'dial':
      case 'host-gone':
        this.#options.way?.heard(message);
        if (message.t === 'host-gone') this.tell(message);
        return;
      default:
        return; // for drivers
    }
  }

  #start(message: Extract<FromHead, { t: 'start' }>): void {
    const { spec, incarnation } = message;
    const { actor } = spec;
    if (this.#closed || this.#lease?.holds === false) return; // and so is the node, in a moment
    const earlier = this.#hosted.get(actor);
    if ((earlier?.incarnation ?? 0) >= incarnation || this.#ends.has(`${actor} ${incarnation}`)) return;
    earlier?.worker.carrier.destroy();
    let worker: WorkerRecord;
    try {
      worker = this.#workers.for(spec);
    } catch (error) {
      // Not even a worker: as if it had died at once, so that its budget and backoff apply.
      const end: EndData = { exitCode: -1, lastStderr: [], constructorFailed: false, cause: encodeError(error) };
      this.#clock.after(0, () => this.#sayDied({ t: 'died', actor, incarnation, end }));
      return;
    }
    const hosted: HostedRecord = { spec, incarnation, worker, started: false, ending: undefined, cancelTimer: undefined };
    this.#hosted.set(actor, hosted);
    worker.hosted.add(hosted);
    if (spec.isolation === 'shared' && spec.unresponsiveMs > 0) worker.carrier.expect(spec.unresponsiveMs);
    this.#sayHosted(hosted);
    worker.send(message);
  }

  #sayHosted(hosted: HostedRecord): void {
    this.#head.send({ t: 'hosted', ...asHosted(hosted) });
    this.#sayHealth(hosted);
  }

  /** Until it says otherwise the head takes it to be well. */
  #sayHealth({ spec, incarnation, worker: { health } }: HostedRecord): void {
    if (health !== 'ok') this.#head.send({ t: 'health', actor: spec.actor, incarnation, health });
  }

  #sayDied(died: Died): void {
    this.#ends.set(`${died.actor} ${died.incarnation}`, died);
    // What still ran when the node was closed goes with the node.
    if (!this.#closed) this.#head.send(died);
  }

  #stop(message: Extract<FromHead, { t: 'stop' }>): void {
    const { actor, incarnation, graceMs } = message;
    const hosted = this.#hosted.get(actor);
    if (hosted === undefined || hosted.incarnation < incarnation) {
      // It never came here, or has ended: nobody starts it after this word, so the head need not wait.
      this.#sayDied(this.#ends.get(`${actor} ${incarnation}`) ?? { t: 'died', actor, incarnation, end: NOT_HERE });
      return;
    }
    if (hosted.incarnation > incarnation) return;
    hosted.worker.send(message);
    this.#hardLater(hosted, graceMs + HARD_AFTER_MS);
  }

  /** If it has not gone by then, its worker is destroyed; a shared one takes its other actors with it. */
  #hardLater(hosted: HostedRecord, ms: number): void {
    hosted.cancelTimer?.();
    hosted.cancelTimer = this.#clock.after(ms, () => hosted.worker.carrier.destroy());
  }

  #ended(hosted: HostedRecord, end: WorkerEnd, cause?: EndData['cause']): void {
    const { spec, incarnation, ending, worker } = hosted;
    hosted.cancelTimer?.();
    worker.hosted.delete(hosted);
    if (this.#hosted.get(spec.actor) === hosted) this.#hosted.delete(spec.actor);
    this.#sayDied({ t: 'died', actor: spec.actor, incarnation, end: endOf(ending, end, cause) });
    if (this.#hosted.size === 0) this.#onIdle?.();
  }

  #workerEnded(worker: WorkerRecord, end: WorkerEnd): void {
    this.#directory.gone(worker.worker);
    this.#guests.hostGone(worker.worker);
    const cause = worker.fatal?.error ?? (end.error === undefined ? undefined : encodeError(end.error));
    for (const hosted of [...worker.hosted]) this.#ended(hosted, end, cause);
  }

  /** All workers. */
  tell(message: FromAgent): void {
    for (const { worker } of this.#workers.list()) this.#workers.get(worker)?.send(message);
  }

  // --- for those who look

  workers(): WorkerInfo[] {
    return this.#workers.list();
  }

  /** Calls back when a worker was started, when its health changes, and with its end when it has ended. */
  onWorkerChange(listener: OnWorkerChange): () => void {
    return this.#workers.onChange(listener);
  }

  /** Rejects with SINKFLEX_NO_ANSWER when the worker is blocked, stopped or gone. */
  ask(worker: number, question: Question, timeoutMs: number): Promise<unknown> {
    return this.#workers.ask(worker, question, timeoutMs);
  }

  /** What the loop of a worker is executing, or of the worker that hosts an actor. Rejects with SINKFLEX_NO_ANSWER if it is not here. */
  stack(of: { worker: number } | { actor: number }, timeoutMs?: number): Promise<StackSample> {
    const record = 'worker' in of ? this.#workers.get(of.worker) : this.#hosted.get(of.actor)?.worker;
    const what = 'worker' in of ? `worker ${of.worker}` : `actor ${of.actor}`;
    if (record === undefined)
      return Promise.reject(new RuntimeFailure('SINKFLEX_NO_ANSWER', `${what} does not run in this process's node`));
    return record.carrier.stack(timeoutMs);
  }

  // --- its end

  /** Nothing new will be wanted: warm workers go. */
  drain(): void {
    this.#workers.drain();
  }

  /**
   * The node goes away: nothing is placed here any more, actors that can move have graceMs for it. When none is left or the time is up, the
   * rest is ended, and only then does the head hear of it: it may start them elsewhere at once. Rejects if a worker would not end.
   */
  async leave(graceMs: number): Promise<void> {
    this.drain();
    this.#head.send({ t: 'draining', graceMs });
    if (this.#hosted.size > 0) {
      const { over, clear } = deadline(this.#clock, graceMs);
      this.#onIdle = clear;
      await over;
    }
    await this.close();
    this.#head.send({ t: 'leaving' });
  }

  /** Ends every worker at once. Resolves when none is left. */
  close(): Promise<void> {
    this.#closed = true;
    this.#lease?.close();
    this.#closing ??= this.#workers.close();
    return this.#closing;
  }

  /** The lease of the host is over: nothing that runs here may act any more. */
  #fence(): void {
    const time = `${HOST_LEASE_MS / 1000} s`;
    if (this.#hosted.size > 0) this.#options.onFenced?.(`this host was cut off from the head for ${time}: what runs here ends`);
    const error = encodeError(new RuntimeFailure('SINKFLEX_UNREACHABLE', `its host was cut off for ${time} and stopped acting`));
    for (const { worker } of this.#hosted.values()) worker.fatal ??= { t: 'fatal', error };
    this.#workers.destroy(true);
  }

  /** At the exit of the process: no time for anything else. */
  destroy(): void {
    this.#workers.destroy();
  }
}
