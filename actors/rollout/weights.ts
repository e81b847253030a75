/** The weights that a rollout reads: those of the run, or on another host the copy that follows them there. */
import { setTimeout as delay } from 'node:timers/promises';
import { type SegmentAddress, type StoreAddress, WeightStore } from '../../kernels/index.ts';
import { currentHost, getActor, type SegmentReplica } from '../../runtime/index.ts';
import { ActorsError } from '../errors.ts';

export interface ReplicatedStore {
  original: StoreAddress;
  /** Where that is. On every other host there is a copy, by the names of copyNames(). */
  host: string;
}

/** Names of the actors that hold the copies of a host: of the weights, and of the frozen base below adapters. */
export const copyNames = (host: string): { weights: string; base: string } => ({
  weights: `weights-${host}`,
  base: `weights-base-${host}`,
});

/** A copy that has nothing yet gets so long. */
const FIRST_VERSION_MS = 60_000;
const ASK_AGAIN_MS = 200;

export async function openWeights(store: StoreAddress | ReplicatedStore): Promise<WeightStore> {
  if (!('original' in store)) return WeightStore.open(store);
  const here = currentHost();
  if (store.host === here) return WeightStore.open(store.original);
  const names = copyNames(here);
  // A copy has the weights alone.
  const { moments: _, ...original } = store.original;
  const { adapter } = original;
  const segment = await copiedTo(names.weights);
  if (adapter === undefined) return WeightStore.open({ ...original, segment });
  return WeightStore.open({
    ...original,
    segment,
    adapter: { ...adapter, base: { ...adapter.base, segment: await copiedTo(names.base) } },
  });
}

/** A host that has just joined gets its copy in a moment. */
async function copiedTo(name: string): Promise<SegmentAddress> {
  for (const end = performance.now() + FIRST_VERSION_MS; ; await delay(ASK_AGAIN_MS)) {
    try {
      const copy = await getActor<typeof SegmentReplica>(name);
      await copy.reached({ lineage: 0, version: 0 }, FIRST_VERSION_MS);
      return await copy.address();
    } catch (cause) {
      if (performance.now() > end)
        throw new ActorsError('SINKFLEX_CLUSTER_UNFIT', `a rollout was started on a host that got no copy of the weights (${name}).`, {
          cause,
        });
    }
  }
}
