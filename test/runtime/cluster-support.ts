// Short forms of events for the tests of the control plane.
import { Cluster, type ClusterEffect, type ClusterEvent, type Spawn } from '../../runtime/control/index.ts';

export const POLICY = { maxRestarts: 0, windowMs: 60_000, backoffMs: 100, backoffMaxMs: 30_000 };

export function spawn(
  actor: number,
  resources: Record<string, number>,
  more: Partial<Omit<Spawn, 'request'>> & { request?: Partial<Spawn['request']> } = {},
): Spawn {
  const { request, ...rest } = more;
  return {
    type: 'spawn',
    actor,
    name: `a${actor}`,
    definition: 'A',
    policy: POLICY,
    lifetime: 'owned',
    owner: 'driver/0',
    getIfExists: false,
    ...rest,
    request: { resources, labels: {}, strategy: 'hybrid', ...request },
  };
}

export const up = (node: string, total: Record<string, number>, labels: Record<string, string> = {}): ClusterEvent => ({
  type: 'node-up',
  node,
  total,
  labels,
});

export function clusterOf(...nodes: ClusterEvent[]): { cluster: Cluster; apply: (event: ClusterEvent, now?: number) => ClusterEffect[] } {
  const cluster = new Cluster({ seed: 7 });
  const apply = (event: ClusterEvent, now = 0): ClusterEffect[] => cluster.apply(event, now);
  for (const node of nodes) apply(node);
  return { cluster, apply };
}

export const placeOf = (effects: readonly ClusterEffect[]): string | undefined =>
  effects.flatMap((effect) => (effect.type === 'start' ? [effect.node] : []))[0];

/** What is asked for, and of which node. */
export const kinds = (effects: readonly ClusterEffect[]): string[] =>
  effects.map((effect) => ('node' in effect ? `${effect.type} ${effect.node}` : effect.type));
