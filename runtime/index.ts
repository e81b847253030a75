// The public face of the actor runtime: actors in processes, threads or shared workers, direct typed calls between them, supervision.
export * from './api/index.ts';
export * from './collective.ts';
export { type Demand, type NodeKind, nodesWanted } from './control/demand.ts';
export type { Cluster, ClusterEffect, ClusterEvent, Spawn as SpawnEvent } from './control/index.ts';
export { type ReplicaOptions, type ReplicaStatus, SegmentReplica, SegmentSource, type VersionName } from './replication/index.ts';

/**
 * The control plane as the state machine that it is, for simulations: events in, effects out. Loaded when asked for, since no worker needs it.
 *
 * @example
 * const { Cluster } = await controlPlane();
 * const effects = new Cluster({ seed: 1 }).apply({ type: 'node-up', node: 'a', total: { cpus: 4 }, labels: {} }, 0);
 */
export async function controlPlane(): Promise<Pick<typeof import('./control/index.ts'), 'Cluster'>> {
  return import('./control/index.ts');
}
