// What the head keeps of each actor beside its life, and how it looks from outside.
import type { ActorInfo, Health } from '../api/types.ts';
import type { ActorSpec, DeathData, EncodedValue, EndData, Life, PeerLink, Place, StopMode } from '../control/index.ts';

/** Where an incarnation runs. */
export interface Seat {
  peer: PeerLink;
  worker: number;
  pid: number | undefined;
  health: Health;
}

export interface ActorRecord {
  spec: ActorSpec;
  life: Life;
  seat: Seat | undefined;
  death: DeathData | undefined;
  /** Peers that hear of every change. */
  readonly subscribers: Set<PeerLink>;
  readonly killRequests: { peer: PeerLink; worker: number; request: number }[];
  timer: NodeJS.Timeout | undefined;
  /** How it is ended when its life says so. */
  stop: { mode: StopMode; graceMs: number };
  /** What its last incarnation saved. */
  checkpoint: EncodedValue | undefined;
}

export function placeOf(actor: ActorRecord): Place {
  const { life, spec, seat, death } = actor;
  const status = life.status === 'alive' ? 'alive' : life.status === 'dead' ? 'dead' : 'down';
  return {
    actor: spec.actor,
    status,
    incarnation: life.incarnation,
    worker: seat?.worker ?? -1,
    name: spec.name,
    ...(death === undefined ? {} : { death }),
    failed: life.failed,
    restarts: life.restarts,
    window: windowOf(spec),
    maxPending: spec.maxPending,
    onFull: spec.onFull,
  };
}

/** What runs at once, and what may wait besides. */
function windowOf({ maxPending, maxConcurrency, concurrencyGroups }: ActorSpec): number {
  return Object.values(concurrencyGroups).reduce((sum, group) => sum + group.maxConcurrency, maxPending + maxConcurrency);
}

export function unknownPlace(actor: number): Place {
  return {
    actor,
    status: 'dead',
    incarnation: 0,
    worker: -1,
    name: '',
    failed: false,
    restarts: 0,
    window: 0,
    maxPending: 0,
    onFull: 'wait',
  };
}

export function infoOf(actor: ActorRecord): ActorInfo {
  const { life, spec, seat, death } = actor;
  return {
    id: spec.actor,
    name: spec.name,
    kind: spec.kind,
    isolation: spec.isolation,
    pid: seat?.pid,
    incarnation: life.incarnation,
    state: life.status,
    health: seat?.health ?? 'ok',
    node: 'local',
    restarts: life.restarts,
    ...(death === undefined ? {} : { cause: describeDeath(death) }),
  };
}

/** `wanted`: somebody asked for that end; `closing`: it was the end of the run. */
export function deathOf(incarnation: number, end: EndData, wanted: boolean, closing: boolean): DeathData {
  const { exitCode, signal, lastStderr, constructorFailed, cause, outOfMemory } = end;
  return {
    incarnation,
    reason: constructorFailed ? 'constructor' : wanted ? (closing ? 'shutdown' : 'killed') : 'exit',
    ...(exitCode === undefined ? {} : { exitCode }),
    ...(signal === undefined ? {} : { signal }),
    ...(outOfMemory === undefined ? {} : { outOfMemory }),
    lastStderr,
    ...(cause === undefined ? {} : { cause }),
  };
}

function describeDeath(death: DeathData): string {
  const message = death.cause?.[2];
  if (message !== undefined) return `${death.reason}: ${message}`;
  if (death.reason !== 'exit') return death.reason;
  return death.signal === undefined ? `exit code ${death.exitCode ?? 'unknown'}` : `signal ${death.signal}`;
}
