/**
 * A run over several hosts: the trainer and the weights are on the host of the driver; rollouts and environments are on the others, if there
 * are others, each with a copy of the weights that follows version by version.
 */
import type { SegmentAddress, StoreAddress, WeightStore } from '../../kernels/index.ts';
import {
  type ActorHandle,
  currentHost,
  HOST_LABEL,
  type InitOptions,
  kill,
  listActors,
  listNodes,
  onActorChange,
  ready,
  SegmentReplica,
  SegmentSource,
  spawn,
  withOptions,
} from '../../runtime/index.ts';
import { ActorsError } from '../errors.ts';
import type { ReplicatedStore } from '../rollout/index.ts';
import type { TrainingConfig } from './config.ts';
import { type Deal, dealOut } from './deal.ts';

/** A rollout begins when its host has the newest weights; a host that lags for longer is in trouble. */
const CAUGHT_UP_MS = 60_000;
const ASK_MS = 2000;
const REPLICA_READY_MS = 60_000;
const restarts = { maxRestarts: 1000, restartWindowMs: 60_000 };

/** What init() needs for that. */
export function clusterOptions({ cluster }: TrainingConfig): InitOptions {
  const { address, token_file, listen, tls_ca, tls_cert, tls_key } = cluster;
  if (address === null) return {};
  return {
    address,
    ...(token_file === null ? {} : { tokenFile: token_file }),
    ...(listen === null ? {} : { listen }),
    ...(tls_ca === null ? {} : { tlsCa: tls_ca }),
    ...(tls_cert === null ? {} : { tlsCert: tls_cert }),
    ...(tls_key === null ? {} : { tlsKey: tls_key }),
  };
}

interface Copy {
  host: string;
  node: string;
  /** Of the weights, and of the frozen base below adapters. */
  replica: ActorHandle<typeof SegmentReplica>;
  base?: ActorHandle<typeof SegmentReplica>;
}

/** Earlier runs of the cluster had actors of the same names. */
const living = () => listActors().filter(({ state }) => state !== 'dead');

export class Hosts {
  readonly #store: WeightStore;
  readonly #copies: Copy[];
  readonly #home: string;
  /** Of a cluster. */
  readonly #hostOfNode: ReadonlyMap<string, string>;
  #unwatch: (() => void) | undefined;

  private constructor(store: WeightStore, home: string, hostOfNode: ReadonlyMap<string, string>, copies: Copy[]) {
    this.#hostOfNode = hostOfNode;
    this.#store = store;
    this.#home = home;
    this.#copies = copies;
  }

  /** After init(). On one host there is nothing to do. */
  static async open(config: TrainingConfig, store: WeightStore): Promise<Hosts> {
    const home = currentHost();
    if (config.cluster.address === null) return new Hosts(store, home, new Map(), []);
    const nodes = await listNodes();
    const hostOf = (labels: Readonly<Record<string, string>>): string => labels[HOST_LABEL] ?? '';
    if (!nodes.some(({ labels }) => hostOf(labels) === home))
      throw new ActorsError(
        'SINKFLEX_CLUSTER_UNFIT',
        'no node of the cluster is on the host of this process, where the weights and the trainer are: start one with sinkflex agent --join <folder of the head>, and name that folder as cluster.address.',
      );
    const others = nodes.filter(({ labels }) => hostOf(labels) !== home);
    const hostOfNode = new Map(nodes.map(({ node, labels }) => [node, hostOf(labels)]));
    if (others.length === 0) return new Hosts(store, home, hostOfNode, []);
    const here = { labels: { [HOST_LABEL]: home } };
    const source = (address: SegmentAddress, name: string) =>
      spawn(SegmentSource, { name, args: [address], maxConcurrency: 1 << 10, ...here, ...restarts });
    const weights = source(store.segment.address, 'weights');
    const base = store.adapter === undefined ? undefined : source(store.adapter.base.segment.address, 'weights-base');
    const copies: Copy[] = [];
    for (const { node, labels } of others) {
      const host = hostOf(labels);
      if (copies.some((copy) => copy.host === host)) continue;
      const copy = (name: string, of: ActorHandle<typeof SegmentSource>) =>
        spawn(SegmentReplica, {
          name: `${name}-${node}`,
          args: [{ source: of }],
          maxConcurrency: 1 << 10,
          strategy: { node },
          ...restarts,
        });
      copies.push({ host, node, replica: copy('weights', weights), ...(base === undefined ? {} : { base: copy('weights-base', base) }) });
    }
    await Promise.all(
      copies.flatMap(({ replica, base: below }) => [replica, below ?? replica]).map((h) => ready(h, { timeoutMs: REPLICA_READY_MS })),
    );
    return new Hosts(store, home, hostOfNode, copies);
  }

  get several(): boolean {
    return this.#copies.length > 0;
  }

  /** Who goes where, as long as that node is there. */
  get deal(): Deal {
    return dealOut(
      this.#home,
      [...this.#hostOfNode].map(([node, host]) => ({ node, host })),
    );
  }

  /** What a rollout opens, wherever it is started. */
  get store(): StoreAddress | ReplicatedStore {
    if (!this.several) return this.#store.address;
    const copies = this.#copies.map(({ host, replica, base }) => ({ host, replica, ...(base === undefined ? {} : { base }) }));
    return { original: this.#store.address, host: this.#home, copies };
  }

  /** Resolves when the host of that rollout has what the store has now: what begins then is of no older version. */
  async caughtUp(rollout: string): Promise<void> {
    const current = this.#store.current();
    if (current === undefined || !this.several) return;
    const wanted = { lineage: current.lineage, version: current.version };
    for (const end = performance.now() + CAUGHT_UP_MS; ; ) {
      // It may be on its way to another host.
      const node = living().find(({ name }) => name === rollout)?.node;
      const copy = this.#copies.find((each) => each.host === this.#hostOfNode.get(node ?? ''));
      if (copy === undefined) return;
      try {
        await withOptions(copy.replica, { timeoutMs: ASK_MS + 1000 }).reached(wanted, ASK_MS);
        return;
      } catch (error) {
        if (performance.now() > end) throw error;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  /** A copy that was started again is another piece of memory: those who read the one before are started again as well. */
  watch(rollouts: readonly { name: string; handle: Parameters<typeof kill>[0] }[]): void {
    if (!this.several) return;
    // The copies were there before this began to listen.
    const seen = new Map(living().map(({ name, incarnation }) => [name, incarnation]));
    const nodeOf = new Map(living().map(({ name, node }) => [name, node]));
    const hostOf = (node: string | undefined): string | undefined => this.#hostOfNode.get(node ?? '');
    this.#unwatch = onActorChange(({ name, state, incarnation, node }) => {
      if (state !== 'alive') return;
      nodeOf.set(name, node);
      if (!name.startsWith('weights-')) return;
      const before = seen.get(name);
      seen.set(name, incarnation);
      if (before === undefined || before === incarnation) return;
      // A host may have several nodes, all of which read that copy.
      for (const rollout of rollouts) if (hostOf(nodeOf.get(rollout.name)) === hostOf(node)) void kill(rollout.handle, { restart: true });
    });
  }

  close(): void {
    this.#unwatch?.();
  }
}
