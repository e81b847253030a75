// What an agent and its workers tell each other, over the link that only parent and child have. Never on the path of a call.
import type { SharedMemoryAddress } from '../../kernels/host.ts';
import type { Isolation } from '../api/types.ts';
import type { FaultOrder } from '../faults/orders.ts';
import type { EmulationOrder } from '../links/emulation.ts';
import type { Question } from '../observe/questions.ts';
import type { ErrorData } from '../wire/index.ts';
import type { Bundle, GroupId, NodeId, OwnerId, Strategy } from './cluster-types.ts';

/** What placement must satisfy. Plain data. */
export interface ResourceRequest {
  /** cpus, gpus, memory (bytes) and custom amounts, in steps of 0.0001. */
  resources: Record<string, number>;
  labels: Record<string, string>;
  strategy: 'hybrid' | 'spread' | { node: string; soft: boolean };
  /** Placement group to take them from, and which bundle (-1: any). */
  group?: string;
  bundle?: number;
}

/** A value as bytes that stand alone. */
export interface EncodedValue {
  header: Uint8Array;
  sections: Uint8Array;
}

/** Everything an agent needs to start any incarnation of an actor. Plain data. */
export interface ActorSpec {
  actor: number;
  name: string;
  kind: string;
  /** Registered id of the definition, checked after the module is loaded. */
  definition: string;
  /** URL and export that the definition named; from this program's own modules, never from a peer. */
  module: string;
  /** Package -> URL of its folder, of the modules of this spec: on another host the package may be elsewhere. */
  roots?: Record<string, string>;
  exportName: string;
  methods: string[];
  /** Those of them that are generators: their calls answer with streams. */
  streams: string[];
  args: EncodedValue;
  isolation: Isolation;
  request: ResourceRequest;
  getIfExists: boolean;
  lifetime: 'owned' | 'detached';
  /** The incarnation or the driver that spawned it. */
  owner?: OwnerId;
  threads: number;
  maxRestarts: number;
  restartWindowMs: number;
  restartBackoffMs: number;
  maxConcurrency: number;
  maxPending: number;
  onFull: 'wait' | 'reject';
  /** Name -> how many of its calls may be under way at once, and which methods are in it. */
  concurrencyGroups: Record<string, { maxConcurrency: number; methods: string[] }>;
  cwd?: string;
  execArgv: string[];
  /** 0: only at drain. */
  checkpointIntervalMs: number;
  /** 0: only reported. */
  unresponsiveMs: number;
  env: Record<string, string>;
  /** URLs of modules to import before the constructor runs; like `module`, only ever from the spawning program. */
  imports: string[];
}

/** A Death whose cause is plain data. */
export interface DeathData {
  incarnation: number;
  outOfMemory?: boolean;
  reason: 'exit' | 'constructor' | 'killed' | 'shutdown' | 'lost' | 'refused';
  exitCode?: number;
  signal?: string;
  lastStderr: string[];
  cause?: ErrorData;
  /** Of a wanted end, why it was wanted; of a final one, why nothing follows: a clause. */
  because?: string;
}

/** Where an actor is. `down`: between incarnations; calls wait. */
export interface Place {
  actor: number;
  /** The actor that answers for it, if it is another one (getIfExists). */
  target?: number;
  status: 'alive' | 'down' | 'dead';
  incarnation: number;
  worker: number;
  name: string;
  /** How the last ended incarnation ended. */
  death?: DeathData;
  /** Dead by its own fault: budget spent or constructor failed. */
  failed: boolean;
  restarts: number;
  /** Calls of one caller that may be unanswered: those that run and those that wait in the mailbox. */
  window: number;
  /** What happens to the calls beyond. */
  maxPending: number;
  onFull: 'wait' | 'reject';
}

/** How an incarnation is ended. `kill`: at once. `shutdown`: its drain() runs first. `drain`: accepted calls finish, then its state is saved. */
export type StopMode = 'kill' | 'shutdown' | 'drain';

export type ToAgent =
  | { t: 'ready' }
  | { t: 'resolve'; actor: number }
  /** `watch`: the spawner keeps something for the actor until it is dead, so it wants to hear of that. */
  | { t: 'spawn'; spec: ActorSpec; watch: boolean }
  /** `drain`: accepted calls finish and the state is saved first; `graceMs`: the time for its end (0: the usual). */
  | { t: 'kill'; actor: number; restart: boolean; drain: boolean; graceMs: number; request: number }
  | { t: 'ask'; request: number; ask: Ask }
  | { t: 'started'; actor: number; incarnation: number }
  | { t: 'ended'; actor: number; incarnation: number; reason: 'constructor' | 'killed'; error?: ErrorData }
  /** What checkpoint() answered: kept for the next incarnation's restore(). */
  | { t: 'checkpoint'; actor: number; incarnation: number; state: EncodedValue }
  /** A thread that this worker runs itself wants to take part in the run: a number for it. */
  | { t: 'guest-join'; request: number }
  | { t: 'guest-left'; worker: number }
  /** What it says. */
  | { t: 'guest'; worker: number; message: ToAgent }
  | { t: 'fatal'; error: ErrorData }
  /** What was asked with 'query'. Not a word of any incarnation: a worker that cannot answer is a fact of its own. */
  | { t: 'reply'; request: number; answer?: unknown; error?: ErrorData };

export type FromAgent =
  | { t: 'start'; spec: ActorSpec; incarnation: number; gpus: number[]; checkpoint?: EncodedValue }
  | { t: 'stop'; actor: number; incarnation: number; graceMs: number; mode: StopMode }
  | { t: 'place'; place: Place }
  | { t: 'killed'; request: number }
  | { t: 'guest-joined'; request: number; worker: number }
  | { t: 'guest'; worker: number; message: FromAgent }
  | { t: 'answer'; request: number; value?: unknown; error?: ErrorData }
  /** Another host is no more: what waits for it is lost. */
  | { t: 'host-gone'; host: string }
  /** A fault in its links with workers of other hosts. */
  | { t: 'emulate'; order: EmulationOrder }
  /** Somebody looks: what is going on in this worker? */
  | { t: 'query'; request: number; question: Question };

/** Questions to the head that have one answer. Asking twice is harmless. */
export type Ask =
  /** The living actor of that name. */
  | { q: 'find'; name: string }
  | { q: 'explain'; id: { actor: number } | { group: GroupId } }
  | { q: 'nodes' }
  | { q: 'demand' }
  | { q: 'groups' }
  | { q: 'drain'; node: NodeId; graceMs: number }
  | {
      q: 'group-create';
      group: GroupId;
      bundles: Bundle[];
      strategy: Strategy;
      lifetime: 'owned' | 'detached';
      owner?: OwnerId;
      name?: string;
    }
  /** Answered when all bundles are placed. */
  | { q: 'group-ready'; group: GroupId }
  | { q: 'group-remove'; group: GroupId }
  /** Resources for a task; answered ({ node, gpus }) when they are there. */
  | { q: 'lease'; lease: string; request: ResourceRequest; owner: OwnerId }
  | { q: 'lease-return'; lease: string }
  /** Where that worker is, for a host that listens at `url` (absent: nowhere); answered with a Route. */
  | { q: 'route'; worker: number; host: string; url?: string }
  | { q: 'job-submit'; request: { command: string[]; cwd?: string; env?: Record<string, string>; job?: string } }
  | { q: 'job-list' }
  /** Answered when it has ended. */
  | { q: 'job-stop'; job: string; graceMs: number }
  /** What it has written, from that byte on. */
  | { q: 'job-log'; job: string; from: number }
  /** A fault on order: in the agent of that node, or in the head itself. */
  | { q: 'fault'; node?: NodeId; order: FaultOrder }
  /** A driver goes; answered when what it owned has ended. */
  | { q: 'leave'; driver: string; timeoutMs: number };

/** Answer of `find`. */
export interface Found {
  actor: number;
  name: string;
  kind: string;
  methods: string[];
  streams: string[];
}

/** Answer of `route`. */
export interface Route {
  /** Its host, as that names itself. */
  host: string;
  /** Where that listens; absent: it was asked to come here. */
  url?: string | undefined;
  /** Workers that are there with it, from the first number to the last. */
  first: number;
  last: number;
}

/** What a worker is told at its birth, over the same link: the token is never in an argument list or the environment. */
/** The object store of a host, for its workers. */
export interface StoreBirth {
  /** Where the bytes of all are counted. */
  account: SharedMemoryAddress;
  /** Only this user enters it. */
  spillFolder: string;
}

export interface ChannelBirth {
  idleMs?: number;
  most?: number;
}

/** PEM text (links/tls.ts). */
interface TlsText {
  cert?: string;
  key?: string;
  ca?: string;
}

/** Links of a worker of its own with those of other hosts. */
export interface DirectBirth {
  /** Its host, as others know it. */
  host: string;
  /** Where it may listen, at any free port; absent: nowhere. */
  door?: { host: string; names?: readonly string[]; tls?: TlsText };
  /** Whom it trusts. */
  tls?: TlsText;
}

/** Where the lease of the host is, and in which epoch of it the worker was wanted (node/lease-cell.ts). */
export interface LeaseBirth {
  address: SharedMemoryAddress;
  epoch: number;
}

export interface WorkerBirth {
  worker: number;
  folder: string;
  token: Uint8Array;
  agentPid: number;
  isolation: Isolation;
  maxInFlightBytes: number;
  /** Of its channels, where that is not the usual. */
  channels?: ChannelBirth;
  /** Until when its host may act; absent: as long as its agent lives. */
  lease?: LeaseBirth;
  /** Socket of the way to workers of other hosts; absent: there are none. */
  gateway?: string;
  /** How it and they reach each other without that way; absent: not at all. */
  direct?: DirectBirth;
  /** There is no worker 0 to relay frames, as in a cluster with a head of its own: the number of channels is not bounded. */
  noRelay?: boolean;
  /** Record calls. */
  timeline?: boolean;
  /** What its event loop counts up. */
  tick?: TickCell;
  /** Memory control group to enter. */
  memoryGroup?: string;
  /** Absent: large values travel in the frames. */
  store?: StoreBirth;
}

export interface TickCell {
  address: SharedMemoryAddress;
  /** Bytes. */
  offset: number;
}

/** To a worker that belongs to nobody yet: `folder` is that of the run. */
export interface RehearseMessage {
  t: 'rehearse';
  folder: string;
}

/** The first message to a worker: whose it is from now on. */
export interface BirthMessage {
  t: 'birth';
  birth: WorkerBirth;
  /** How it is called in lists of processes. */
  label: string;
  environment: EnvironmentChange;
}

/** How its environment is to differ from the one that it was started with. */
export interface EnvironmentChange {
  set: Record<string, string>;
  unset: string[];
  cwd?: string;
}
