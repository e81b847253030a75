// The agent of one host: runs what the control plane decides. Starts workers, watches them, tells everyone who calls an actor where it
// is, and ends everything at shutdown. Never on the path of a call, never runs user code.
import { RuntimeFailure } from '../api/errors.ts';
import type { ActorInfo, ActorOutput } from '../api/types.ts';
import {
  type ActorEffect,
  type ActorEvent,
  type ActorSpec,
  advance,
  born,
  type DeathData,
  type FromAgent,
  type Step,
  type ToAgent,
} from '../control/index.ts';
import type { Question } from '../observe/questions.ts';
import { encodeError } from '../wire/index.ts';
import type { WorkerCarrier, WorkerEnd } from './carrier.ts';
import { Janitor } from './janitor.ts';
import { forkWorker } from './process-worker.ts';
import { Questions } from './questions.ts';
import {
  type ActorRecord,
  infoOf,
  placeOf,
  type Subscriber,
  unknownPlace,
  type WorkerInfo,
  type WorkerRecord,
  workerInfo,
} from './records.ts';
import { startThread } from './thread-worker.ts';

const BACKOFF_MAX_MS = 30_000;
/** Between a polite end and a sure one, on top of the grace that stop() gets. */
const HARD_AFTER_MS = 250;
const KEPT_DEAD = 1000;
const EXPECTED_MS = 2000;
const NO_ARGS = { header: new Uint8Array(), sections: new Uint8Array() };

export interface AgentOptions {
  folder: string;
  token: Buffer;
  sharedWorkers: number;
  maxInFlightBytes: number;
  onOutput: (line: ActorOutput) => void;
  /** The actor needs its constructor arguments no more. */
  onDead: (actor: number) => void;
}

export class Agent {
  readonly #options: AgentOptions;
  readonly #actors = new Map<number, ActorRecord>();
  readonly #workers = new Map<number, WorkerRecord>();
  /** Actors that were asked for before their spawn arrived. */
  readonly #expected = new Map<number, Set<Subscriber>>();
  readonly #listeners = new Set<(info: ActorInfo) => void>();
  readonly #questions = new Questions();
  readonly #workerListeners = new Set<(worker: WorkerInfo, end: WorkerEnd | undefined) => void>();
  #nextWorker = 1; // 0 is the driver
  #janitor: Janitor | undefined;
  #closing = false;
  #onChange: (() => void) | undefined;

  constructor(options: AgentOptions) {
    this.#options = options;
  }

  // --- what workers and the driver ask

  receive(message: ToAgent, from: Subscriber, worker?: WorkerRecord): void {
    switch (message.t) {
      case 'spawn':
        this.spawn(message.spec);
        return;
      case 'resolve': {
        const actor = this.#actors.get(message.actor);
        if (actor === undefined) this.#expect(message.actor, from);
        else {
          actor.subscribers.add(from);
          from.placed(placeOf(actor));
        }
        return;
      }
      case 'kill': {
        const actor = this.#actors.get(message.actor);
        if (actor === undefined || actor.life.status === 'dead') from.killed(message.request);
        else {
          actor.killRequests.push({ subscriber: from, request: message.request });
          this.#event(actor, { type: 'kill', restart: message.restart });
        }
        return;
      }
      case 'started':
        this.#fromHost(message.actor, message.incarnation, worker, (actor) =>
          this.#event(actor, { type: 'started', incarnation: message.incarnation }),
        );
        return;
      case 'ended':
        this.#fromHost(message.actor, message.incarnation, worker, (actor) => {
          actor.ending = message;
          if (actor.spec.isolation === 'shared') this.#actorEnded(actor, { lastStderr: [] });
          else this.#hardLater(actor, HARD_AFTER_MS);
        });
        return;
      case 'fatal':
        if (worker !== undefined) worker.fatal = message;
        return;
      case 'reply':
        if (worker !== undefined) this.#questions.reply(message, worker.worker);
        return;
      case 'ready':
        return;
    }
  }

  /** The spawn may still be on its way from another worker, whose handle was quicker. */
  #expect(id: number, from: Subscriber): void {
    const waiting = this.#expected.get(id);
    if (waiting !== undefined) {
      waiting.add(from);
      return;
    }
    const subscribers = new Set([from]);
    this.#expected.set(id, subscribers);
    setTimeout(() => {
      if (this.#expected.get(id) !== subscribers) return;
      this.#expected.delete(id);
      for (const subscriber of subscribers) subscriber.placed(unknownPlace(id));
    }, EXPECTED_MS).unref();
  }

  /** Late words of an incarnation that is over, or of a worker that does not host it, are not heard. */
  #fromHost(id: number, incarnation: number, worker: WorkerRecord | undefined, act: (actor: ActorRecord) => void): void {
    const actor = this.#actors.get(id);
    if (actor !== undefined && actor.worker === worker && actor.life.incarnation === incarnation) act(actor);
  }

  spawn(spec: ActorSpec): void {
    const step = born({
      maxRestarts: spec.maxRestarts,
      windowMs: spec.restartWindowMs,
      backoffMs: spec.restartBackoffMs,
      backoffMaxMs: BACKOFF_MAX_MS,
    });
    const actor: ActorRecord = {
      spec,
      life: step.life,
      worker: undefined,
      ending: undefined,
      death: undefined,
      subscribers: this.#expected.get(spec.actor) ?? new Set(),
      killRequests: [],
      timer: undefined,
      graceMs: 1000,
    };
    this.#expected.delete(spec.actor);
    this.#actors.set(spec.actor, actor);
    if (this.#closing) {
      actor.death = { incarnation: 1, reason: 'shutdown', lastStderr: [] };
      actor.life = advance(
        advance(step.life, { type: 'kill', restart: false }, Date.now()).life,
        { type: 'died', incarnation: 1 },
        Date.now(),
      ).life;
      this.#announce(actor);
      return;
    }
    this.#apply(actor, step);
  }

  // --- running the state machine

  #event(actor: ActorRecord, event: ActorEvent): void {
    this.#apply(actor, advance(actor.life, event, Date.now()));
  }

  #apply(actor: ActorRecord, step: Step): void {
    actor.life = step.life;
    for (const effect of step.effects) this.#perform(actor, effect);
    const { status } = actor.life;
    if (actor.killRequests.length > 0 && (status === 'dead' || status === 'alive')) {
      for (const { subscriber, request } of actor.killRequests.splice(0)) subscriber.killed(request);
    }
    this.#onChange?.();
  }

  #perform(actor: ActorRecord, effect: ActorEffect): void {
    switch (effect.type) {
      case 'announce':
        this.#announce(actor);
        return;
      case 'start':
        clearTimeout(actor.timer);
        this.#start(actor);
        return;
      case 'wait':
        clearTimeout(actor.timer);
        actor.timer = setTimeout(() => this.#event(actor, { type: 'backoff-elapsed', incarnation: effect.incarnation }), effect.delayMs);
        return;
      case 'terminate':
        actor.worker?.carrier.send({ t: 'stop', actor: actor.spec.actor, incarnation: effect.incarnation, graceMs: actor.graceMs });
        this.#hardLater(actor, actor.graceMs + HARD_AFTER_MS);
        return;
    }
  }

  /** If it has not gone by then, its worker is destroyed; a shared one takes its other actors with it. */
  #hardLater(actor: ActorRecord, ms: number): void {
    clearTimeout(actor.timer);
    const worker = actor.worker;
    actor.timer = setTimeout(() => {
      if (actor.worker === worker) worker?.carrier.destroy();
    }, ms);
  }

  #announce(actor: ActorRecord): void {
    const place = placeOf(actor);
    for (const subscriber of actor.subscribers) subscriber.placed(place);
    if (this.#listeners.size > 0) {
      const info = infoOf(actor);
      for (const listener of [...this.#listeners]) listener(info);
    }
    if (actor.life.status === 'dead') {
      actor.spec = { ...actor.spec, args: NO_ARGS };
      this.#options.onDead(actor.spec.actor);
      this.#forgetOldest();
    }
  }

  #forgetOldest(): void {
    if (this.#actors.size <= KEPT_DEAD) return;
    for (const [id, actor] of this.#actors) {
      if (this.#actors.size <= KEPT_DEAD) return;
      if (actor.life.status === 'dead') this.#actors.delete(id);
    }
  }

  // --- workers

  #start(actor: ActorRecord): void {
    actor.ending = undefined;
    const { spec } = actor;
    let worker: WorkerRecord;
    try {
      worker = (spec.isolation === 'shared' ? this.#leastLoaded() : undefined) ?? this.#newWorker(spec);
    } catch (error) {
      // Not even a worker: as if it had died at once, so that its budget and backoff apply.
      actor.death = { incarnation: actor.life.incarnation, reason: 'exit', exitCode: -1, lastStderr: [], cause: encodeError(error) };
      setImmediate(() => this.#event(actor, { type: 'died', incarnation: actor.life.incarnation }));
      return;
    }
    actor.worker = worker;
    worker.actors.add(actor);
    worker.carrier.send({ t: 'start', spec, incarnation: actor.life.incarnation });
  }

  #leastLoaded(): WorkerRecord | undefined {
    const shared = [...this.#workers.values()].filter((worker) => worker.isolation === 'shared');
    if (shared.length < this.#options.sharedWorkers && shared.every((worker) => worker.actors.size > 0)) return undefined;
    return shared.reduce<WorkerRecord | undefined>(
      (least, worker) => (least === undefined || worker.actors.size < least.actors.size ? worker : least),
      undefined,
    );
  }

  #newWorker(spec: ActorSpec): WorkerRecord {
    const number = this.#nextWorker++;
    const { folder, token, maxInFlightBytes, onOutput } = this.#options;
    const birth = {
      worker: number,
      folder,
      token: new Uint8Array(token),
      agentPid: process.pid,
      isolation: spec.isolation,
      maxInFlightBytes,
    };
    const name = spec.isolation === 'shared' ? `shared-${number}` : spec.name;
    const send = (message: FromAgent): void => record.carrier.send(message);
    const record: WorkerRecord = {
      worker: number,
      isolation: spec.isolation,
      actors: new Set(),
      carrier: undefined as unknown as WorkerCarrier,
      subscriber: { placed: (place) => send({ t: 'place', place }), killed: (request) => send({ t: 'killed', request }) },
    };
    const options = { birth, label: `sinkflex:${name}`, env: spec.isolation === 'process' ? spec.env : {}, module: spec.module };
    const events = {
      onMessage: (message: ToAgent) => this.receive(message, record.subscriber, record),
      onLine: (stream: 'stdout' | 'stderr', line: string) => onOutput({ name, pid: record.carrier.pid ?? -1, stream, line }),
      onEnd: (end: WorkerEnd) => this.#workerEnded(record, end),
    };
    if (spec.isolation === 'thread') record.carrier = startThread(options, events);
    else {
      this.#janitor ??= new Janitor(folder);
      record.carrier = forkWorker(options, events, this.#janitor);
    }
    this.#workers.set(number, record);
    for (const listener of this.#workerListeners) listener(workerInfo(record), undefined);
    return record;
  }

  #workerEnded(worker: WorkerRecord, end: WorkerEnd): void {
    this.#workers.delete(worker.worker);
    this.#questions.workerEnded(worker.worker);
    for (const listener of this.#workerListeners) listener(workerInfo(worker), end);
    for (const actor of this.#actors.values()) actor.subscribers.delete(worker.subscriber);
    const cause = worker.fatal?.error ?? (end.error === undefined ? undefined : encodeError(end.error));
    for (const actor of [...worker.actors]) this.#actorEnded(actor, end, cause);
    this.#onChange?.();
  }

  #actorEnded(actor: ActorRecord, end: WorkerEnd, cause?: DeathData['cause']): void {
    const { life, ending } = actor;
    actor.worker?.actors.delete(actor);
    actor.worker = undefined;
    clearTimeout(actor.timer);
    const wanted = life.intent !== undefined;
    const because = ending?.error ?? cause;
    actor.death = {
      incarnation: life.incarnation,
      reason: ending?.reason === 'constructor' ? 'constructor' : wanted ? (this.#closing ? 'shutdown' : 'killed') : 'exit',
      ...(end.exitCode === undefined ? {} : { exitCode: end.exitCode }),
      ...(end.signal === undefined ? {} : { signal: end.signal }),
      lastStderr: [...end.lastStderr],
      ...(because === undefined ? {} : { cause: because }),
    };
    this.#event(actor, { type: 'died', incarnation: life.incarnation });
  }

  // --- what the driver sees

  list(): ActorInfo[] {
    return [...this.#actors.values()].map(infoOf);
  }

  nameTaken(name: string): boolean {
    for (const actor of this.#actors.values()) if (actor.spec.name === name && actor.life.status !== 'dead') return true;
    return false;
  }

  onActorChange(listener: (info: ActorInfo) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  workers(): WorkerInfo[] {
    return [...this.#workers.values()].map(workerInfo);
  }

  /** Calls back when a worker was started, and with its end when it has ended. */
  onWorkerChange(listener: (worker: WorkerInfo, end: WorkerEnd | undefined) => void): () => void {
    this.#workerListeners.add(listener);
    return () => this.#workerListeners.delete(listener);
  }

  /** Rejects with SINKFLEX_NO_ANSWER when the worker is blocked, stopped or gone. */
  ask(worker: number, question: Question, timeoutMs: number): Promise<unknown> {
    const record = this.#workers.get(worker);
    if (record === undefined) return Promise.reject(new RuntimeFailure('SINKFLEX_NO_ANSWER', `there is no worker ${worker}`));
    return this.#questions.ask(worker, question, timeoutMs, (message) => record.carrier.send(message));
  }

  /** Ends every actor: stop() hooks first, then whatever is left at once. Resolves when no worker is left. */
  async close(timeoutMs: number): Promise<void> {
    this.#closing = true;
    const graceMs = Math.max(0, timeoutMs - HARD_AFTER_MS);
    for (const actor of this.#actors.values()) {
      actor.graceMs = graceMs;
      this.#event(actor, { type: 'kill', restart: false });
    }
    const allDead = (): boolean => [...this.#actors.values()].every((actor) => actor.life.status === 'dead');
    await this.#until(allDead, timeoutMs);
    for (const worker of this.#workers.values()) worker.carrier.destroy();
    await this.#until(() => this.#workers.size === 0, 5000);
    await this.#janitor?.close();
    if (this.#workers.size > 0) throw new RuntimeFailure('SINKFLEX_SHUT_DOWN', `${this.#workers.size} workers did not end`);
  }

  /** At the exit of the process: no time for anything else. */
  destroy(): void {
    for (const worker of this.#workers.values()) worker.carrier.destroy();
  }

  async #until(condition: () => boolean, ms: number): Promise<void> {
    if (condition()) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        this.#onChange = undefined;
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(done, ms);
      this.#onChange = () => condition() && done();
    });
  }
}
