// What waits for room, and how many more nodes of one kind would give it: the figures that an autoscaler goes by.
import { type Needs, needsOf, needsToResources } from './amounts.ts';
import { matches, selectorOf } from './labels.ts';
import type { State } from './state.ts';

/** Requests that wait, all alike. */
export interface Demand {
  resources: Record<string, number>;
  /** Selectors, as in a request. */
  labels: Record<string, string>;
  /** The only node that will do. */
  node?: string;
  count: number;
}

export function demandOf(state: State): Demand[] {
  const demands: Demand[] = [];
  for (const { request, queue, head } of state.waitingShapes) {
    // What draws from a group waits for the group.
    if (request.group !== undefined) continue;
    const { strategy, resources, labels } = request;
    const only = typeof strategy === 'string' || strategy.soft ? {} : { node: strategy.node };
    const count = queue.slice(head).filter(({ gone }) => !gone).length;
    if (count > 0) demands.push({ resources, labels, count, ...only });
  }
  for (const { bundles } of state.waitingGroups)
    for (const { node, needs, labels } of bundles)
      if (node === undefined) demands.push({ resources: needsToResources(needs), labels: { ...labels }, count: 1 });
  return demands;
}

/** A node as it would come: what it has in all, and its labels. */
export interface NodeKind {
  resources: Record<string, number>;
  labels?: Record<string, string>;
}

/**
 * How many more nodes of that kind give room to what waits, at most `most`: the largest requests first, each on the first node that has room
 * for it. What no such node could ever hold is left out.
 *
 * @example
 * const wanted = nodesWanted(await pendingDemand(), { resources: { cpus: 8 } }, 10);
 */
export function nodesWanted(demand: readonly Demand[], { resources, labels = {} }: NodeKind, most: number): number {
  const whole = needsOf(resources);
  const share = (needs: Needs): number => Math.max(0, ...needs.names.map((name, i) => needs.amounts[i]! / amountOf(whole, name)));
  const requests = demand
    .filter(({ node, labels: wanted }) => node === undefined && matches(selectorOf(wanted), labels))
    .map(({ resources: asked, count }) => ({ needs: needsOf(asked), count }))
    .filter(({ needs }) => share(needs) <= 1)
    .sort((a, b) => share(b.needs) - share(a.needs));
  const nodes: Map<string, number>[] = [];
  for (const { needs, count } of requests) {
    for (let i = 0; i < count; i++) {
      const fits = (free: Map<string, number>): boolean => needs.names.every((name, n) => (free.get(name) ?? 0) >= needs.amounts[n]!);
      let node = nodes.find(fits);
      if (node === undefined) {
        if (nodes.length >= most) break;
        node = new Map(whole.names.map((name, n) => [name, whole.amounts[n]!]));
        nodes.push(node);
      }
      for (const [n, name] of needs.names.entries()) node.set(name, node.get(name)! - needs.amounts[n]!);
    }
  }
  return nodes.length;
}

/** 0 where it has none: then a share of it is infinite. */
const amountOf = (needs: Needs, name: string): number => needs.amounts[needs.names.indexOf(name)] ?? 0;
