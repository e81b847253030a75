/** The weights that a rollout reads: those of the run, or on another host the copy that follows them there. */
import { type StoreAddress, WeightStore } from '../../kernels/index.ts';
import { type ActorHandle, currentHost, type SegmentReplica } from '../../runtime/index.ts';
import { ActorsError } from '../errors.ts';

export interface ReplicatedStore {
  original: StoreAddress;
  /** Where that is. */
  host: string;
  copies: { host: string; replica: ActorHandle<typeof SegmentReplica>; base?: ActorHandle<typeof SegmentReplica> }[];
}

/** A copy that has nothing yet gets so long. */
const FIRST_VERSION_MS = 60_000;

export async function openWeights(store: StoreAddress | ReplicatedStore): Promise<WeightStore> {
  if (!('copies' in store)) return WeightStore.open(store);
  const here = currentHost();
  if (store.host === here) return WeightStore.open(store.original);
  const copy = store.copies.find(({ host }) => host === here);
  if (copy === undefined)
    throw new ActorsError(
      'SINKFLEX_CLUSTER_UNFIT',
      'a rollout was started on a host that has no copy of the weights: it joined after the run began.',
    );
  const { original } = store;
  await copy.replica.reached({ lineage: 0, version: 0 }, FIRST_VERSION_MS);
  await copy.base?.reached({ lineage: 0, version: 0 }, FIRST_VERSION_MS);
  const adapter = original.adapter;
  return WeightStore.open({
    ...original,
    segment: await copy.replica.address(),
    ...(adapter === undefined ? {} : { adapter: { ...adapter, base: { ...adapter.base, segment: await copy.base!.address() } } }),
  });
}
