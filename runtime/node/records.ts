// What an agent keeps of the incarnations that it hosts, and of its workers.
import type { ActorSpec, EndData, Hosted, ToAgent } from '../control/index.ts';
import type { Health, WorkerEnd } from './carrier.ts';
import type { Subscriber } from './directory.ts';
import type { PooledWorker } from './pooled-worker.ts';

/** What a worker is carried by, as far as its agent cares. */
export type Carried = Pick<PooledWorker, 'pid' | 'send' | 'destroy' | 'expect' | 'stack'>;

export interface WorkerRecord extends Subscriber {
  /** Its actor's name, or `shared-<number>`: what its lines go by. */
  readonly name: string;
  readonly isolation: ActorSpec['isolation'];
  carrier: Carried;
  health: Health;
  readonly hosted: Set<HostedRecord>;
  fatal?: ToAgent & { t: 'fatal' };
}

/** A worker as it looks from outside. */
export interface WorkerInfo {
  worker: number;
  name: string;
  isolation: ActorSpec['isolation'];
  pid: number | undefined;
  health: Health;
  /** Numbers of the actors in it. */
  actors: number[];
}

export function workerInfo({ worker, name, isolation, carrier, health, hosted }: WorkerRecord): WorkerInfo {
  return { worker, name, isolation, pid: carrier.pid, health, actors: [...hosted].map(({ spec }) => spec.actor) };
}

/** One incarnation of an actor on this node. */
export interface HostedRecord {
  readonly spec: ActorSpec;
  readonly incarnation: number;
  readonly worker: WorkerRecord;
  /** Its constructor and start() have returned. */
  started: boolean;
  /** How it says that it ended, before its worker has. */
  ending: (ToAgent & { t: 'ended' }) | undefined;
  /** Of the timer at whose end its worker is destroyed. */
  cancelTimer: (() => void) | undefined;
}

export function asHosted({ spec, incarnation, worker, started }: HostedRecord): Hosted {
  return { actor: spec.actor, incarnation, worker: worker.worker, pid: worker.carrier.pid, started };
}

/** What the head hears of an end. */
export function endOf(ending: HostedRecord['ending'], end: WorkerEnd, cause: EndData['cause']): EndData {
  const because = ending?.error ?? cause;
  return {
    ...(end.exitCode === undefined ? {} : { exitCode: end.exitCode }),
    ...(end.signal === undefined ? {} : { signal: end.signal }),
    ...(end.outOfMemory === undefined ? {} : { outOfMemory: end.outOfMemory }),
    lastStderr: [...end.lastStderr],
    constructorFailed: ending?.reason === 'constructor',
    ...(because === undefined ? {} : { cause: because }),
  };
}
