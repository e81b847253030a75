// The public face of the actor runtime: actors in processes, threads or shared workers, direct typed calls between them, supervision.
export * from './api/index.ts';
export * from './collective.ts';
export { Cluster, type ClusterEffect, type ClusterEvent, type Spawn as SpawnEvent } from './control/index.ts';
