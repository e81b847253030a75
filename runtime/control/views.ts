// How records look from outside: fresh plain objects in the units that users write.
import { fromAmount, needsToResources } from './amounts.ts';
import type { ActorState, ActorView, GroupView, LeaseView, NodeView } from './cluster-types.ts';
import { gpuNumbers } from './lives.ts';
import type { NodeRecord } from './nodes.ts';
import type { Pool } from './pool.ts';
import type { ActorRecord, GroupRecord, LeaseRecord } from './state.ts';

export function actorState(actor: ActorRecord): ActorState {
  return actor.life.status === 'starting' && actor.holding === undefined ? 'pending' : actor.life.status;
}

export function viewActor(actor: ActorRecord): ActorView {
  const { life, shape } = actor;
  return {
    actor: actor.id,
    name: actor.name,
    definition: actor.definition,
    state: actorState(actor),
    incarnation: life.incarnation,
    restarts: life.restarts,
    failed: life.failed,
    node: actor.holding?.node.node,
    gpus: gpuNumbers(actor),
    lifetime: actor.lifetime,
    owner: actor.owner,
    request: shape.request,
    because: actor.because,
  };
}

export function viewNode(node: NodeRecord): NodeView {
  let actors = 0;
  let leases = 0;
  for (const tenant of node.tenants) {
    if (tenant.kind === 'actor') actors++;
    else if (tenant.kind === 'lease') leases++;
  }
  return {
    node: node.node,
    state: node.suspect !== undefined ? 'suspect' : node.draining ? 'draining' : 'up',
    labels: { ...node.labels },
    total: resourcesOf(node.pool, node.pool.total),
    free: resourcesOf(node.pool, node.pool.free),
    actors,
    leases,
    ...(node.suspect === undefined ? {} : { because: node.suspect }),
  };
}

/** Amounts by name as users write them. */
export function resourcesOf(pool: Pool, amounts: readonly number[]): Record<string, number> {
  const resources: Record<string, number> = {};
  for (let i = 0; i < pool.names.length; i++) resources[pool.names[i]!] = fromAmount(pool.names[i]!, amounts[i]!);
  return resources;
}

export function viewGroup(group: GroupRecord): GroupView {
  return {
    group: group.id,
    name: group.name,
    state: group.state,
    strategy: group.strategy,
    attempt: group.attempt,
    bundles: group.bundles.map((bundle) => ({
      resources: needsToResources(bundle.needs),
      labels: { ...bundle.labels },
      node: bundle.node?.node,
      gpus: bundle.gpus.map(([id]) => id),
      free: bundle.pool === undefined ? {} : resourcesOf(bundle.pool, bundle.pool.free),
    })),
    lifetime: group.lifetime,
    owner: group.owner,
    because: group.because,
  };
}

export function viewLease(lease: LeaseRecord): LeaseView {
  return { lease: lease.id, node: lease.holding?.node.node, gpus: gpuNumbers(lease), owner: lease.owner, request: lease.shape.request };
}
