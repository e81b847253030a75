// What the agent keeps of each actor and worker, and how it looks from outside.
import type { ActorInfo } from '../api/types.ts';
import type { ActorSpec, DeathData, Life, Place, ToAgent } from '../control/index.ts';
import type { WorkerCarrier } from './carrier.ts';

/** Whoever asked where an actor is, and hears of every change. */
export interface Subscriber {
  placed(place: Place): void;
  killed(request: number): void;
}

export interface WorkerRecord {
  readonly worker: number;
  readonly isolation: ActorSpec['isolation'];
  carrier: WorkerCarrier;
  readonly actors: Set<ActorRecord>;
  readonly subscriber: Subscriber;
  fatal?: ToAgent & { t: 'fatal' };
}

/** A worker as it looks from outside. */
export interface WorkerInfo {
  worker: number;
  isolation: ActorSpec['isolation'];
  pid: number | undefined;
  /** Numbers of the actors in it. */
  actors: number[];
}

export function workerInfo({ worker, isolation, carrier, actors }: WorkerRecord): WorkerInfo {
  return { worker, isolation, pid: carrier.pid, actors: [...actors].map((actor) => actor.spec.actor) };
}

export interface ActorRecord {
  spec: ActorSpec;
  life: Life;
  worker: WorkerRecord | undefined;
  /** How the current incarnation says that it ended, before its worker has. */
  ending: (ToAgent & { t: 'ended' }) | undefined;
  death: DeathData | undefined;
  readonly subscribers: Set<Subscriber>;
  readonly killRequests: { subscriber: Subscriber; request: number }[];
  timer: NodeJS.Timeout | undefined;
  graceMs: number;
}

export function placeOf(actor: ActorRecord): Place {
  const { life, spec, worker, death } = actor;
  const status = life.status === 'alive' ? 'alive' : life.status === 'dead' ? 'dead' : 'down';
  return {
    actor: spec.actor,
    status,
    incarnation: life.incarnation,
    worker: worker?.worker ?? -1,
    name: spec.name,
    ...(death === undefined ? {} : { death }),
    failed: life.failed,
    restarts: life.restarts,
  };
}

export function unknownPlace(actor: number): Place {
  return { actor, status: 'dead', incarnation: 0, worker: -1, name: '', failed: false, restarts: 0 };
}

export function infoOf(actor: ActorRecord): ActorInfo {
  const { life, spec, worker, death } = actor;
  return {
    id: spec.actor,
    name: spec.name,
    kind: spec.kind,
    isolation: spec.isolation,
    pid: worker?.carrier.pid,
    incarnation: life.incarnation,
    state: life.status,
    health: 'ok',
    node: 'local',
    restarts: life.restarts,
    ...(death === undefined ? {} : { cause: describeDeath(death) }),
  };
}

function describeDeath(death: DeathData): string {
  const message = death.cause?.[2];
  if (message !== undefined) return `${death.reason}: ${message}`;
  if (death.reason !== 'exit') return death.reason;
  return death.signal === undefined ? `exit code ${death.exitCode ?? 'unknown'}` : `signal ${death.signal}`;
}
