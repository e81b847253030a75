// What goes into the control plane (events), what comes out (effects), and how its state looks from outside. All plain data, JSON-able, so
// that events are the journal and a snapshot is a file.
//
// Amounts here are what users write: cpus, gpus, bytes of memory, custom amounts. Inside they are integers: steps of 1/10000, memory in bytes.
import type { RestartPolicy } from './actor.ts';
import type { ResourceRequest } from './messages.ts';

export type ActorId = number;
/** One life of an agent: an agent that starts anew has a new id, one that only reconnects keeps it. */
export type NodeId = string;
export type GroupId = string;
export type LeaseId = string;
/** Who something ends with: `driver/<any id>`, or `actor/<id>/<incarnation>` (ownerActor() makes it). */
export type OwnerId = `driver/${string}` | `actor/${number}/${number}`;

export type Strategy = 'PACK' | 'SPREAD' | 'STRICT_PACK' | 'STRICT_SPREAD';

export interface Bundle {
  resources: Record<string, number>;
  /** Selectors, as in a request. */
  labels?: Record<string, string>;
}

/** What an agent has, as it tells after a lost connection. */
export interface Running {
  /** `started`: its constructor has returned. */
  actors: { actor: ActorId; incarnation: number; started: boolean }[];
  /** Bundles that it holds, prepared or committed. */
  bundles: { group: GroupId; attempt: number; bundle: number }[];
}

// --- events. Every one is idempotent: applied twice in a row it changes nothing the second time, and asks for nothing new.

/**
 * An agent is there, for the first time, or (with `running`) again after its connection or the head was lost. Then what it should have is
 * sent again (start, terminate, prepare, commit), what it has lost has died, and what it should not have is ended. Without `running` the
 * event means nothing for a node that is known.
 */
export interface NodeUp {
  type: 'node-up';
  node: NodeId;
  total: Record<string, number>;
  labels: Record<string, string>;
  /** Numbers of its GPUs; default 0 to total.gpus - 1. */
  gpuIds?: number[];
  running?: Running;
}

/** It is gone for good, with all that ran on it; actors are started elsewhere as their budgets allow. */
export interface NodeDown {
  type: 'node-down';
  node: NodeId;
}

/** Nothing is placed there any more; actors with a restart budget are moved, uncounted. The others stay until node-down. */
export interface NodeDrain {
  type: 'node-drain';
  node: NodeId;
}

/** It is silent: nothing is placed there until it is heard again. What runs there goes on. */
export interface NodeSuspect {
  type: 'node-suspect';
  node: NodeId;
  /** A clause, such as "it was last heard of 2.4 s ago". */
  because: string;
}

/** It is heard again. */
export interface NodeTrusted {
  type: 'node-trusted';
  node: NodeId;
}

export interface Spawn {
  type: 'spawn';
  actor: ActorId;
  /** Unique among actors that are not dead. If its holder is being killed, the newcomer gets the name and starts when the holder is dead. */
  name: string;
  /** What getIfExists compares: the definition's id. */
  definition: string;
  request: ResourceRequest;
  policy: RestartPolicy;
  lifetime: 'owned' | 'detached';
  /** Needed if owned; whose node to prefer is `near`. */
  owner?: OwnerId;
  /** Node of the spawner: preferred where the policy leaves a choice. */
  near?: NodeId;
  getIfExists: boolean;
}

/** The constructor and start() of this incarnation have returned. */
export interface Started {
  type: 'started';
  actor: ActorId;
  incarnation: number;
}

/**
 * This incarnation is over, whatever ended it: wanted or not, also a constructor that threw. Constructor errors count like any death: a
 * service that is not up yet throws the same error each time, and waiting cures it. Not so those that are `hopeless`.
 */
export interface Died {
  type: 'died';
  actor: ActorId;
  incarnation: number;
  /** Ended because its host is going away: not counted against the budget (an actor without one is still not restarted). */
  preempted?: boolean;
  /** A mistake in the program, seen twice: no restart mends it, whatever is left of the budget. */
  hopeless?: boolean;
}

export interface Kill {
  type: 'kill';
  actor: ActorId;
  restart: boolean;
  /** Only if this is the current one. Give it with `restart`, so that a request that arrives twice restarts once. */
  incarnation?: number;
}

/** Answers `wait`. */
export interface BackoffElapsed {
  type: 'backoff-elapsed';
  actor: ActorId;
  incarnation: number;
}

/** A driver is gone (of an actor's incarnation, `died` says so by itself). Its owned actors, groups and leases end. */
export interface OwnerGone {
  type: 'owner-gone';
  owner: OwnerId;
}

export interface GroupCreate {
  type: 'group-create';
  group: GroupId;
  bundles: Bundle[];
  strategy: Strategy;
  lifetime: 'owned' | 'detached';
  owner?: OwnerId;
  name?: string;
}

/** A node's answer to `prepare`; a node that does not answer in time is ok: false. */
export interface Prepared {
  type: 'prepared';
  group: GroupId;
  attempt: number;
  node: NodeId;
  ok: boolean;
}

/** Answers `wait-group`. */
export interface GroupRetry {
  type: 'group-retry';
  group: GroupId;
  attempt: number;
}

export interface GroupRemove {
  type: 'group-remove';
  group: GroupId;
}

/** Resources for tasks, held until returned. */
export interface Lease {
  type: 'lease';
  lease: LeaseId;
  request: ResourceRequest;
  owner: OwnerId;
  near?: NodeId;
}

export interface LeaseReturn {
  type: 'lease-return';
  lease: LeaseId;
}

export type ClusterEvent =
  | NodeUp
  | NodeDown
  | NodeDrain
  | NodeSuspect
  | NodeTrusted
  | Spawn
  | Started
  | Died
  | Kill
  | BackoffElapsed
  | OwnerGone
  | GroupCreate
  | Prepared
  | GroupRetry
  | GroupRemove
  | Lease
  | LeaseReturn;

// --- effects, in the order in which they are to be performed. An agent must take each as "make it so": it may be sent again.

export type TerminateReason = 'kill' | 'restart' | 'drain' | 'owner-gone' | 'group-removed' | 'stale';

export type ClusterEffect =
  /** To `node`: start this incarnation. Answer `started` or `died`. `gpus`: numbers of the GPUs it may use. */
  | { type: 'start'; actor: ActorId; incarnation: number; node: NodeId; gpus: number[] }
  /** To `node`: end this incarnation (politely, then surely). Answer `died`. `stale`: it should not be there at all; no answer is needed. */
  | { type: 'terminate'; actor: ActorId; incarnation: number; node: NodeId; why: TerminateReason }
  /** Apply backoff-elapsed after delayMs. */
  | { type: 'wait'; actor: ActorId; incarnation: number; delayMs: number }
  /** What actor(id) answers has changed. */
  | { type: 'announce'; actor: ActorId }
  /** Spawn of `actor` came to nothing: `existing` has that name (getIfExists). */
  | { type: 'exists'; actor: ActorId; existing: ActorId }
  /** Spawn of `actor` came to nothing: another living actor has the name, or (`definition`) it is another kind of actor. */
  | { type: 'refused'; actor: ActorId; existing: ActorId; why: 'name' | 'definition' }
  /** Dead for long enough: nobody will ask for it any more; what the shell keeps of it can go. */
  | { type: 'forget'; actor: ActorId }
  /** To `node`: hold these bundles. Answer `prepared`. */
  | { type: 'prepare'; group: GroupId; attempt: number; node: NodeId; bundles: PlacedBundle[] }
  /** To `node`: what was prepared is now in use. No answer. */
  | { type: 'commit'; group: GroupId; attempt: number; node: NodeId; bundles: number[] }
  /** To `node`: these bundles are no more. No answer. */
  | { type: 'release'; group: GroupId; attempt: number; node: NodeId; bundles: number[] }
  /** Apply group-retry after delayMs. */
  | { type: 'wait-group'; group: GroupId; attempt: number; delayMs: number }
  /** What group(id) answers has changed. */
  /** What it has become at that moment: one event may lead through several states. */
  | { type: 'announce-group'; group: GroupId; state: GroupState; because: string | undefined }
  | { type: 'leased'; lease: LeaseId; node: NodeId; gpus: number[] }
  /** Will never be granted, or is no more: its node or its owner is gone, or the group that it drew from. */
  | { type: 'lease-lost'; lease: LeaseId };

export interface PlacedBundle {
  bundle: number;
  resources: Record<string, number>;
  gpus: number[];
}

// --- state, as views. Fresh objects: they do not change under their reader.

/** `pending`: nothing has room (explain() says why). The rest is the life of control/actor.ts. */
export type ActorState = 'pending' | 'starting' | 'alive' | 'restarting' | 'stopping' | 'dead';

export interface ActorView {
  actor: ActorId;
  name: string;
  definition: string;
  state: ActorState;
  incarnation: number;
  /** Restarts in all, moves off draining nodes included. */
  restarts: number;
  /** Dead by its own fault: budget spent. */
  failed: boolean;
  node: NodeId | undefined;
  gpus: number[];
  lifetime: 'owned' | 'detached';
  owner: OwnerId | undefined;
  request: ResourceRequest;
  /** Why it ended or is ending, if not by its own death: a clause such as "its placement group g1 was removed". */
  because: string | undefined;
}

/** `suspect`: it is silent; when its lease is over it is given up. */
export type NodeState = 'up' | 'draining' | 'suspect';

export interface NodeView {
  node: NodeId;
  state: NodeState;
  labels: Record<string, string>;
  total: Record<string, number>;
  free: Record<string, number>;
  actors: number;
  leases: number;
  /** Why it is suspect. */
  because?: string;
}

/**
 * `pending`: no room for all bundles (explain() says why). `preparing`: nodes were asked. `created`: all bundles are there.
 * `rescheduling`: was created, lost bundles, looks for room or asks nodes. `removing`: actors in it are ending. `removed`.
 */
export type GroupState = 'pending' | 'preparing' | 'created' | 'rescheduling' | 'removing' | 'removed';

export interface GroupView {
  group: GroupId;
  name: string | undefined;
  state: GroupState;
  strategy: Strategy;
  attempt: number;
  bundles: {
    resources: Record<string, number>;
    labels: Record<string, string>;
    /** Undefined: not placed. */
    node: NodeId | undefined;
    gpus: number[];
    free: Record<string, number>;
  }[];
  lifetime: 'owned' | 'detached';
  owner: OwnerId | undefined;
  because: string | undefined;
}

export interface LeaseView {
  lease: LeaseId;
  /** Undefined: waits. */
  node: NodeId | undefined;
  gpus: number[];
  owner: OwnerId;
  request: ResourceRequest;
}

// --- explain()

/** Why a node does not take a request, in order of how hopeless it is. `fits`: it would. */
export type Verdict = 'fits' | 'busy' | 'too-small' | 'labels' | 'draining' | 'suspect' | 'not-asked-for' | 'used-by-group';

export interface NodeReason {
  node: NodeId;
  verdict: Verdict;
  /** Amounts that are short: asked, free now, and what the node has in all. */
  short: { resource: string; asked: number; free: number; total: number }[];
  /** Label selectors that it does not meet. */
  labels: string[];
  text: string;
}

export interface Explanation {
  subject: { actor: ActorId } | { group: GroupId } | { lease: LeaseId };
  state: ActorState | GroupState | 'waiting' | 'granted';
  /** One or two sentences for people. */
  text: string;
  /** Could any node that is up ever take it, were it empty? */
  feasible: boolean;
  /** How many of the same shape wait before it. */
  ahead: number;
  /** What is asked for, for a group bundle by bundle: each with every node's reason. Empty if it does not wait for room. */
  asks: { bundle: number | undefined; resources: Record<string, number>; labels: Record<string, string>; nodes: NodeReason[] }[];
}

// --- Cluster (cluster.ts)

export interface ClusterOptions {
  /** Of the choice among equally good nodes. It is part of the state, so a replayed journal decides the same. */
  seed?: number;
  /** Ended actors, groups and leases that are remembered, so that late or repeated messages about them are known for what they are. */
  remember?: number;
}

/** JSON-able and canonical: equal states have equal JSON. */
export interface ClusterSnapshot {
  version: 1;
  random: number;
  remember: number;
  [part: string]: unknown;
}

/**
 * Deterministic: the same events at the same times give the same effects. No clock, no I/O. The shell journals `[now, event]` before it
 * performs the effects; a restart is Cluster.restore(snapshot), the journalled events applied again with their effects thrown away, and then
 * outstanding() performed.
 */
export interface ClusterFace {
  apply(event: ClusterEvent, now: number): ClusterEffect[];
  /** Effects that are under way and whose answer is awaited: what a restarted head performs again. With a node: only what it is to be told. */
  outstanding(node?: NodeId): ClusterEffect[];
  explain(id: { actor: ActorId } | { group: GroupId } | { lease: LeaseId }): Explanation | undefined;
  snapshot(): ClusterSnapshot;

  actor(actor: ActorId): ActorView | undefined;
  /** The actor that has the name and is not dead. */
  named(name: string): ActorId | undefined;
  actors(): IterableIterator<ActorView>;
  node(node: NodeId): NodeView | undefined;
  nodes(): IterableIterator<NodeView>;
  group(group: GroupId): GroupView | undefined;
  groups(): IterableIterator<GroupView>;
  lease(lease: LeaseId): LeaseView | undefined;
  leases(): IterableIterator<LeaseView>;
}

export function ownerActor(actor: ActorId, incarnation: number): OwnerId {
  return `actor/${actor}/${incarnation}`;
}
