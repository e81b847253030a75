/**
 * A run over several hosts: the trainer and the weights are on the host of the driver; rollouts and environments are on the others, if there
 * are others, each with a copy of the weights that follows version by version.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { StoreAddress, WeightStore } from '../../kernels/index.ts';
import {
  type ActorHandle,
  type ActorInfo,
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
import { copyNames, type ReplicatedStore } from '../rollout/index.ts';
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

/** Looks for hosts that come and go while the run is under way. */
const LOOK_MS = 1000;

interface Sources {
  weights: ActorHandle<typeof SegmentSource>;
  base?: ActorHandle<typeof SegmentSource>;
}

interface Copy {
  host: string;
  /** Of the weights, and of the frozen base below adapters. */
  replica: ActorHandle<typeof SegmentReplica>;
  base?: ActorHandle<typeof SegmentReplica>;
}

const hostOf = ({ labels }: { labels: Readonly<Record<string, string>> }): string => labels[HOST_LABEL] ?? '';

/** Nodes that came after the run began, and what it does for them. */
export interface NodeListener {
  /** It has the weights. Rejects if nothing could be started there. */
  joined(node: string): Promise<void>;
  left(node: string): void;
}

/** A rollout by its name, which may be started again elsewhere. */
interface WatchedRollout {
  name: string;
  handle: Parameters<typeof kill>[0];
}

export class Hosts {
  readonly #store: WeightStore;
  readonly #copies: Copy[] = [];
  readonly #rollouts: WatchedRollout[] = [];
  readonly #home: string;
  readonly #colocated: boolean;
  /** Of a cluster. */
  readonly #hostOfNode = new Map<string, string>();
  /** On the host of the weights; undefined: no other host has ever been there. */
  #sources: Sources | undefined;
  #unwatch: (() => void) | undefined;
  readonly #closing = new AbortController();
  /** Of earlier runs of the cluster, some of the same names. */
  readonly #earlier = new Set(listActors().map(({ id }) => id));

  private constructor(store: WeightStore, home: string, o: { colocated: boolean }) {
    this.#colocated = o.colocated;
    this.#store = store;
    this.#home = home;
  }

  /** After init(). On one host there is nothing to do. */
  static async open(config: TrainingConfig, store: WeightStore): Promise<Hosts> {
    const hosts = new Hosts(store, currentHost(), { colocated: config.trainer.placement === 'colocated' });
    if (config.cluster.address === null) return hosts;
    const nodes = await listNodes();
    if (!nodes.some((node) => hostOf(node) === hosts.#home))
      throw new ActorsError(
        'SINKFLEX_CLUSTER_UNFIT',
        'no node of the cluster is on the host of this process, where the weights and the trainer are: start one with sinkflex agent --join <folder of the head>, and name that folder as cluster.address.',
      );
    for (const node of nodes) hosts.#hostOfNode.set(node.node, hostOf(node));
    await Promise.all(nodes.map((node) => hosts.#copyTo(node.node, hostOf(node))));
    return hosts;
  }

  /** The weights on another host; one copy for all of its nodes. */
  async #copyTo(node: string, host: string): Promise<void> {
    if (host === this.#home || this.#copies.some((copy) => copy.host === host)) return;
    this.#sources ??= this.#startSources();
    const { weights, base }: Sources = this.#sources;
    const copy = (name: string, source: ActorHandle<typeof SegmentSource>) =>
      spawn(SegmentReplica, { name, args: [{ source }], maxConcurrency: 1 << 10, strategy: { node }, ...restarts });
    const names = copyNames(host);
    const made = { host, replica: copy(names.weights, weights), ...(base === undefined ? {} : { base: copy(names.base, base) }) };
    this.#copies.push(made);
    await Promise.all([made.replica, made.base ?? made.replica].map((each) => ready(each, { timeoutMs: REPLICA_READY_MS })));
  }

  #startSources(): Sources {
    // Of a slot the weights alone: nobody over there needs the moments.
    const source = ({ segment, layout, dtype }: WeightStore, name: string) => {
      const of = { bytes: layout.totalBytes, elementBytes: dtype === 'bfloat16' ? 2 : 4 } as const;
      return spawn(SegmentSource, {
        name,
        args: [segment.address, of],
        maxConcurrency: 1 << 10,
        labels: { [HOST_LABEL]: this.#home },
        ...restarts,
      });
    };
    const { adapter } = this.#store;
    const weights = source(this.#store, 'weights');
    return adapter === undefined ? { weights } : { weights, base: source(adapter.base, 'weights-base') };
  }

  get several(): boolean {
    return this.#copies.length > 0;
  }

  /** The actors of this run, the dead among them. */
  actors(): ActorInfo[] {
    return listActors().filter(({ id }) => !this.#earlier.has(id));
  }

  #living(): ActorInfo[] {
    return this.actors().filter(({ state }) => state !== 'dead');
  }

  /** Who goes where, as long as that node is there. */
  get deal(): Deal {
    return dealOut(
      this.#home,
      [...this.#hostOfNode].map(([node, host]) => ({ node, host })),
      { colocated: this.#colocated },
    );
  }

  /** What a rollout opens, wherever it is started. */
  get store(): StoreAddress | ReplicatedStore {
    // Of a cluster: another host may still come.
    return this.#hostOfNode.size === 0 ? this.#store.address : { original: this.#store.address, host: this.#home };
  }

  /** Resolves when the host of that rollout has what the store has now: what begins then is of no older version. */
  async caughtUp(rollout: string): Promise<void> {
    const current = this.#store.current();
    if (current === undefined || !this.several) return;
    const wanted = { lineage: current.lineage, version: current.version };
    for (const end = performance.now() + CAUGHT_UP_MS; ; ) {
      // It may be on its way to another host.
      const node = this.#living().find(({ name }) => name === rollout)?.node;
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

  /** A copy that was started again is another piece of memory: rollouts that read the one before are started again as well. */
  watch(rollout: WatchedRollout): void {
    if (this.#hostOfNode.size === 0) return;
    this.#rollouts.push(rollout);
    if (this.#unwatch !== undefined) return;
    // The copies were there before this began to listen.
    const seen = new Map(this.#living().map(({ name, incarnation }) => [name, incarnation]));
    const nodeOf = new Map(this.#living().map(({ name, node }) => [name, node]));
    const host = (node: string | undefined): string | undefined => this.#hostOfNode.get(node ?? '');
    this.#unwatch = onActorChange(({ name, state, incarnation, node }) => {
      if (state !== 'alive') return;
      nodeOf.set(name, node);
      if (!name.startsWith('weights-')) return;
      const before = seen.get(name);
      seen.set(name, incarnation);
      if (before === undefined || before === incarnation) return;
      // A host may have several nodes, all of which read that copy.
      for (const each of this.#rollouts) if (host(nodeOf.get(each.name)) === host(node)) void kill(each.handle, { restart: true });
    });
  }

  /** From now on: nodes that join get the weights, and the listener hears of them, and of their end. */
  watchNodes(listener: NodeListener, warn: (text: string) => void): void {
    if (this.#hostOfNode.size === 0) return;
    const { signal } = this.#closing;
    const came = new Set<string>();
    const look = async (): Promise<void> => {
      const nodes = await listNodes();
      for (const node of nodes) {
        if (this.#hostOfNode.has(node.node) || node.state !== 'up') continue;
        this.#hostOfNode.set(node.node, hostOf(node));
        came.add(node.node);
        await this.#copyTo(node.node, hostOf(node));
        await listener.joined(node.node);
      }
      for (const node of came) {
        if (nodes.some((each) => each.node === node)) continue;
        came.delete(node);
        listener.left(node);
      }
    };
    void (async () => {
      while (!signal.aborted) {
        await look().catch((error: Error) => {
          if (!signal.aborted) warn(`a node that joined gets no work: ${error.message}`);
        });
        await delay(LOOK_MS, undefined, { signal }).catch(() => {});
      }
    })();
  }

  close(): void {
    this.#closing.abort();
    this.#unwatch?.();
  }
}
