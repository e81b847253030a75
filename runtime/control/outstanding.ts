// What is under way, told again: to an agent whose connection was lost, and by a head that has just read its journal.
import type { ClusterEffect, NodeId, Running } from './cluster-types.ts';
import { askNode } from './groups.ts';
import { died, gpuNumbers, started } from './lives.ts';
import type { NodeRecord } from './nodes.ts';
import type { ActorRecord, BundleRecord, GroupRecord, State } from './state.ts';

export function outstanding(state: State, node?: NodeId): ClusterEffect[] {
  const kept = state.effects;
  state.effects = [];
  for (const actor of state.actors.values()) tellActor(state, actor, node);
  for (const group of state.groups.values()) tellGroup(state, group, node);
  if (node === undefined) {
    for (const { id, holding } of state.leases.values()) {
      if (holding !== undefined) state.emit({ type: 'leased', lease: id, node: holding.node.node, gpus: gpuNumbers({ holding }) });
    }
  }
  const effects = state.effects;
  state.effects = kept;
  return effects;
}

function tellActor(state: State, actor: ActorRecord, only: NodeId | undefined): void {
  const { id, holding } = actor;
  const { status, incarnation } = actor.life;
  if (status === 'restarting' && only === undefined) state.emit({ type: 'wait', actor: id, incarnation, delayMs: actor.delayMs });
  if (holding === undefined || (only !== undefined && holding.node.node !== only)) return;
  if (status === 'starting') tellStart(state, actor);
  else if (status === 'stopping') tellTerminate(state, actor);
}

function tellStart(state: State, actor: ActorRecord): void {
  const { node } = actor.holding!.node;
  state.emit({ type: 'start', actor: actor.id, incarnation: actor.life.incarnation, node, gpus: gpuNumbers(actor) });
}

function tellTerminate(state: State, actor: ActorRecord): void {
  const { node } = actor.holding!.node;
  state.emit({ type: 'terminate', actor: actor.id, incarnation: actor.life.incarnation, node, why: actor.why ?? 'kill' });
}

function tellGroup(state: State, group: GroupRecord, only: NodeId | undefined): void {
  if (group.delayMs !== undefined && only === undefined)
    state.emit({ type: 'wait-group', group: group.id, attempt: group.attempt, delayMs: group.delayMs });
  const nodes = new Set(
    group.bundles.flatMap(({ node }) => (node === undefined || (only !== undefined && node.node !== only) ? [] : [node])),
  );
  for (const node of nodes) {
    if (group.awaiting.has(node.node)) askNode(state, group, node);
    const committed = group.bundles.filter((bundle) => bundle.node === node && bundle.pool !== undefined);
    for (const attempt of new Set(committed.map((bundle) => bundle.attempt))) {
      const bundles = committed.filter((bundle) => bundle.attempt === attempt).map(({ index }) => index);
      state.emit({ type: 'commit', group: group.id, attempt, node: node.node, bundles });
    }
  }
}

/** An agent says what it has: what it lacks is sent again or has died, what it should not have is ended. */
export function reattach(state: State, node: NodeRecord, running: Running): void {
  const has = new Map(running.actors.map((one) => [`${one.actor}/${one.incarnation}`, one]));
  const actors = [...node.tenants].filter((tenant): tenant is ActorRecord => tenant.kind === 'actor').sort((a, b) => a.order - b.order);
  for (const actor of actors) {
    const { status, incarnation } = actor.life;
    const theirs = has.get(`${actor.id}/${incarnation}`);
    if (status === 'starting' && theirs === undefined) tellStart(state, actor);
    // Also what it lacks: its start may be on its way, decided since the agent said what it has. What is not there is answered by `died`.
    else if (status === 'stopping') tellTerminate(state, actor);
    else if (theirs === undefined) died(state, { type: 'died', actor: actor.id, incarnation });
    else if (theirs.started) started(state, { type: 'started', actor: actor.id, incarnation });
  }
  for (const { actor, incarnation } of running.actors) {
    const record = state.actors.get(actor);
    if (record?.holding?.node !== node || record.life.incarnation !== incarnation)
      state.emit({ type: 'terminate', actor, incarnation, node: node.node, why: 'stale' });
  }
  for (const group of state.groups.values()) tellGroup(state, group, node.node);
  for (const { group, attempt, bundle } of running.bundles) {
    const record: BundleRecord | undefined = state.groups.get(group)?.bundles[bundle];
    if (record?.node !== node || record.attempt !== attempt)
      state.emit({ type: 'release', group, attempt, node: node.node, bundles: [bundle] });
  }
}
