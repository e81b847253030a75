/** Which actor of a run goes to which node of a cluster. Pure: asked before a run as well as in it. */
import { HOST_LABEL } from '../../runtime/index.ts';

export interface ClusterNode {
  node: string;
  host: string;
}

export interface Deal {
  /** What the i-th of the rollouts or of the environments asks for: the nodes of the other hosts in turn (colocated: of all hosts); nothing, if there are none. */
  away(i: number): { strategy?: { node: string; soft: boolean } };
  /** Nodes that are dealt out over. */
  readonly others: number;
  /** What the trainer and the reference ask for: the host of the weights. */
  readonly home: { labels?: Record<string, string> };
}

/** `home`: the host of the driver and of the weights. No nodes: everything runs below the driver. Colocated: the host of the weights takes its turn too. */
export function dealOut(home: string, nodes: readonly ClusterNode[], o: { colocated: boolean }): Deal {
  const others = o.colocated ? nodes : nodes.filter(({ host }) => host !== home);
  return {
    others: others.length,
    away(i) {
      const there = others[i % Math.max(1, others.length)];
      return there === undefined ? {} : { strategy: { node: there.node, soft: true } };
    },
    home: nodes.length === 0 ? {} : { labels: { [HOST_LABEL]: home } },
  };
}
