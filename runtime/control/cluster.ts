// The control plane as one pure state machine: events in, effects out (cluster-types.ts says which). The shell around it journals events,
// performs effects and keeps the clock.
import { toAmount } from './amounts.ts';
import type {
  ActorId,
  ActorView,
  ClusterEffect,
  ClusterEvent,
  ClusterFace,
  ClusterOptions,
  ClusterSnapshot,
  Explanation,
  GroupId,
  GroupView,
  LeaseId,
  LeaseView,
  NodeDown,
  NodeDrain,
  NodeId,
  NodeSuspect,
  NodeTrusted,
  NodeUp,
  NodeView,
  OwnerGone,
  OwnerId,
} from './cluster-types.ts';
import { type Demand, demandOf } from './demand.ts';
import { explain } from './explain.ts';
import {
  bundleIdle,
  bundlesLeave,
  bundlesLost,
  groupCreate,
  groupRemove,
  groupRetry,
  prepared,
  removeGroup,
  tryPlaceGroup,
} from './groups.ts';
import { lease, leaseReturn, loseLease, tryGrant } from './leases.ts';
import { backoffElapsed, died, end, kill, move, ownedBy, spawn, started, tryStart } from './lives.ts';
import type { NodeRecord } from './nodes.ts';
import { outstanding, reattach } from './outstanding.ts';
import { restore, snapshot } from './snapshot.ts';
import { type ActorRecord, type BundleRecord, type LeaseRecord, rememberIn, State } from './state.ts';
import { viewActor, viewGroup, viewLease, viewNode } from './views.ts';
import { retryWaiting } from './waiting.ts';

const REMEMBER = 1000;

/**
 * A cluster in memory. Events change it, effects say what is to be done.
 *
 * @example
 * const cluster = new Cluster();
 * cluster.apply({ type: 'node-up', node: 'a', total: { cpus: 8 }, labels: {} }, 0);
 * const [node] = cluster.nodes();
 */
export class Cluster implements ClusterFace {
  readonly #state: State;

  constructor(options: ClusterOptions = {}) {
    this.#state = new State(options.seed ?? 1, options.remember ?? REMEMBER);
  }

  static restore(from: ClusterSnapshot): Cluster {
    const cluster = new Cluster({ seed: from.random, remember: from.remember });
    restore(cluster.#state, from);
    return cluster;
  }

  /** @returns What is to be done now, in that order. `now`: milliseconds, never going back. */
  apply(event: ClusterEvent, now: number): ClusterEffect[] {
    const state = this.#state;
    state.now = now;
    state.effects = [];
    // The table ties each type to its handler; the compiler cannot see that through an index.
    (HANDLERS[event.type] as (state: State, event: ClusterEvent) => void)(state, event);
    settle(state);
    return state.effects;
  }

  outstanding(node?: NodeId): ClusterEffect[] {
    return outstanding(this.#state, node);
  }

  /** What waits for room. */
  demand(): Demand[] {
    return demandOf(this.#state);
  }

  explain(id: { actor: ActorId } | { group: GroupId } | { lease: LeaseId }): Explanation | undefined {
    return explain(this.#state, id);
  }

  snapshot(): ClusterSnapshot {
    return snapshot(this.#state);
  }

  actor(actor: ActorId): ActorView | undefined {
    const record = this.#state.actors.get(actor);
    return record === undefined ? undefined : viewActor(record);
  }

  named(name: string): ActorId | undefined {
    return this.#state.names.get(name)?.id;
  }

  *actors(): IterableIterator<ActorView> {
    for (const record of this.#state.actors.values()) yield viewActor(record);
  }

  node(node: NodeId): NodeView | undefined {
    const record = this.#state.nodes.get(node);
    return record === undefined ? undefined : viewNode(record);
  }

  /** Why it is, if it is. */
  suspect(node: NodeId): string | undefined {
    return this.#state.nodes.get(node)?.suspect;
  }

  *nodes(): IterableIterator<NodeView> {
    for (const record of this.#state.nodes.all()) yield viewNode(record);
  }

  group(group: GroupId): GroupView | undefined {
    const record = this.#state.groups.get(group);
    return record === undefined ? undefined : viewGroup(record);
  }

  *groups(): IterableIterator<GroupView> {
    for (const record of this.#state.groups.values()) yield viewGroup(record);
  }

  lease(lease: LeaseId): LeaseView | undefined {
    const record = this.#state.leases.get(lease);
    return record === undefined ? undefined : viewLease(record);
  }

  *leases(): IterableIterator<LeaseView> {
    for (const record of this.#state.leases.values()) yield viewLease(record);
  }
}

const HANDLERS: { readonly [T in ClusterEvent['type']]: (state: State, event: Extract<ClusterEvent, { type: T }>) => void } = {
  'node-up': nodeUp,
  'node-down': nodeDown,
  'node-drain': nodeDrain,
  'node-suspect': nodeSuspect,
  'node-trusted': nodeTrusted,
  spawn,
  started,
  died,
  kill,
  'backoff-elapsed': backoffElapsed,
  'owner-gone': ownerGone,
  'group-create': groupCreate,
  prepared,
  'group-retry': groupRetry,
  'group-remove': groupRemove,
  lease,
  'lease-return': leaseReturn,
};

/** Follows up what the event has brought about, until nothing is left: first who must go, then who may have the room. */
function settle(state: State): void {
  for (;;) {
    const owner = state.endedOwners.shift();
    if (owner !== undefined) {
      endOwned(state, owner);
      continue;
    }
    const [bundle] = state.idleBundles;
    if (bundle !== undefined) {
      state.idleBundles.delete(bundle);
      bundleIdle(state, bundle);
      continue;
    }
    if (state.freedNodes.size === 0 && state.freedGroups.size === 0) return;
    retryWaiting(state, {
      seeker: (seeker) => (seeker.kind === 'actor' ? tryStart(state, seeker) : tryGrant(state, seeker)),
      group: (group) => tryPlaceGroup(state, group),
    });
  }
}

function ownerGone(state: State, event: OwnerGone): void {
  if (event.owner.startsWith('driver/')) rememberIn(state.goneOwners, event.owner, state.remember);
  state.endedOwners.push(event.owner);
}

function endOwned(state: State, owner: OwnerId): void {
  for (const record of ownedBy(state, owner)) {
    if (record.kind === 'actor') end(state, record, 'owner-gone', `its owner ${owner} is gone`);
    else if (record.kind === 'group') removeGroup(state, record, `its owner ${owner} is gone`);
    else loseLease(state, record);
  }
}

// --- nodes

function nodeUp(state: State, event: NodeUp): void {
  let node = state.nodes.get(event.node);
  if (node === undefined) {
    const total: Record<string, number> = {};
    for (const [name, value] of Object.entries(event.total)) total[name] = Math.floor(toAmount(name, value));
    node = state.nodes.add(event.node, total, { ...event.labels }, event.gpuIds);
    state.freedNodes.add(node);
  } else nodeTrusted(state, { type: 'node-trusted', node: event.node });
  if (event.running !== undefined) reattach(state, node, event.running);
}

const tenantsOf = (node: NodeRecord) => {
  const tenants = [...node.tenants] as (ActorRecord | LeaseRecord | BundleRecord)[];
  return {
    actors: tenants.filter((tenant) => tenant.kind === 'actor').sort((a, b) => a.order - b.order),
    leases: tenants.filter((tenant) => tenant.kind === 'lease').sort((a, b) => a.order - b.order),
    bundles: tenants.filter((tenant) => tenant.kind === 'bundle').sort((a, b) => a.group.order - b.group.order || a.index - b.index),
  };
};

function nodeDown(state: State, event: NodeDown): void {
  const node = state.nodes.get(event.node);
  if (node === undefined) return;
  state.nodes.delete(node);
  const { actors, leases, bundles } = tenantsOf(node);
  for (const { id, life } of actors) died(state, { type: 'died', actor: id, incarnation: life.incarnation });
  for (const record of leases) if (state.leases.get(record.id) === record) loseLease(state, record);
  bundlesLost(
    state,
    bundles.filter((bundle) => bundle.node === node),
  );
}

function nodeDrain(state: State, event: NodeDrain): void {
  const node = state.nodes.get(event.node);
  if (node === undefined || node.draining) return;
  state.nodes.drain(node);
  const { actors, bundles } = tenantsOf(node);
  bundlesLeave(state, bundles);
  for (const actor of actors) move(state, actor);
}

function nodeSuspect(state: State, event: NodeSuspect): void {
  const node = state.nodes.get(event.node);
  if (node !== undefined) state.nodes.suspect(node, event.because);
}

function nodeTrusted(state: State, event: NodeTrusted): void {
  const node = state.nodes.get(event.node);
  if (node?.suspect === undefined) return;
  state.nodes.suspect(node, undefined);
  state.freedNodes.add(node);
}
