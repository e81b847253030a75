// What the head keeps of each actor beside what the control plane does, and how it looks from outside.
import type { ActorInfo, Health } from '../api/types.ts';
import type { ActorSpec, ActorView, DeathData, EncodedValue, EndData, PeerLink, Place, StopMode } from '../control/index.ts';

/** What stop() gets when nothing else is said. */
const GRACE_MS = 1000;

/** Where an incarnation runs. */
export interface Seat {
  incarnation: number;
  worker: number;
  pid: number | undefined;
  health: Health;
}

export interface ActorRecord {
  /** Constructor arguments included, as long as it may be started. */
  spec: ActorSpec;
  /** Calls of one caller that may be unanswered. */
  readonly window: number;
  death: DeathData | undefined;
  dead: boolean;
  /** Not in the journal: agents say it again. */
  seat: Seat | undefined;
  /** Peers that hear of every change. */
  readonly subscribers: Set<PeerLink>;
  /** What its last incarnation saved. */
  checkpoint: EncodedValue | undefined;
  /** How it is ended when that is decided. */
  stop: { mode: StopMode; graceMs: number };
  readonly kills: { link: PeerLink; worker: number; request: number }[];
}

export const newRecord = (spec: ActorSpec): ActorRecord => ({
  spec,
  window: windowOf(spec),
  death: undefined,
  dead: false,
  seat: undefined,
  subscribers: new Set(),
  checkpoint: undefined,
  stop: { mode: 'kill', graceMs: GRACE_MS },
  kills: [],
});

/** Undefined: it lives, but its agent has not come back yet to say where. */
export function placeOf(record: ActorRecord, view: ActorView): Place | undefined {
  const { state, incarnation, failed, restarts } = view;
  const seat = record.seat?.incarnation === incarnation ? record.seat : undefined;
  if (state === 'alive' && seat === undefined) return undefined;
  return {
    actor: view.actor,
    status: state === 'alive' ? 'alive' : state === 'dead' ? 'dead' : 'down',
    incarnation,
    worker: seat?.worker ?? -1,
    name: view.name,
    ...(record.death === undefined ? {} : { death: record.death }),
    failed,
    restarts,
    window: record.window,
    maxPending: record.spec.maxPending,
    onFull: record.spec.onFull,
  };
}

/** What runs at once, and what may wait besides. */
function windowOf({ maxPending, maxConcurrency, concurrencyGroups }: ActorSpec): number {
  return Object.values(concurrencyGroups).reduce((sum, group) => sum + group.maxConcurrency, maxPending + maxConcurrency);
}

const NOWHERE = { status: 'dead', worker: -1, restarts: 0, window: 0, maxPending: 0, onFull: 'wait' } as const;

export function unknownPlace(actor: number): Place {
  return { ...NOWHERE, actor, incarnation: 0, name: '', failed: false };
}

/** It never lived: why. */
export function refusedPlace(actor: number, name: string, death: DeathData): Place {
  return { ...NOWHERE, actor, incarnation: death.incarnation, name, death, failed: true };
}

export function infoOf(record: ActorRecord, view: ActorView): ActorInfo {
  const { spec, death } = record;
  const seat = record.seat?.incarnation === view.incarnation ? record.seat : undefined;
  return {
    id: view.actor,
    name: view.name,
    kind: spec.kind,
    isolation: spec.isolation,
    pid: seat?.pid,
    incarnation: view.incarnation,
    state: view.state,
    health: seat?.health ?? 'ok',
    node: view.node ?? '',
    restarts: view.restarts,
    ...(death === undefined ? {} : { cause: describeDeath(death) }),
  };
}

/** `wanted`: somebody asked for that end; `closing`: it was the end of the run. */
export function deathOf(incarnation: number, end: EndData, wanted: boolean, closing: boolean, because: string | undefined): DeathData {
  const { exitCode, signal, lastStderr, constructorFailed, cause, outOfMemory } = end;
  return {
    incarnation,
    reason: constructorFailed ? 'constructor' : wanted ? (closing ? 'shutdown' : 'killed') : 'exit',
    ...(exitCode === undefined ? {} : { exitCode }),
    ...(signal === undefined ? {} : { signal }),
    ...(outOfMemory === undefined ? {} : { outOfMemory }),
    lastStderr,
    ...(cause === undefined ? {} : { cause }),
    ...(because === undefined ? {} : { because }),
  };
}

function describeDeath(death: DeathData): string {
  const message = death.cause?.[2];
  if (message !== undefined) return `${death.reason}: ${message}`;
  if (death.because !== undefined) return `${death.reason}: ${death.because}`;
  if (death.reason !== 'exit') return death.reason;
  return death.signal === undefined ? `exit code ${death.exitCode ?? 'unknown'}` : `signal ${death.signal}`;
}
