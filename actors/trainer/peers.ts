/**
 * Data-parallel trainers: each computes the gradients of its part of a step, they are added up over shared memory in the order of ranks, and each
 * updates the tensors whose moments it keeps (ZeRO-1). Rank 0 writes the next version and publishes it. For a fixed number of trainers the bits
 * are the same in every run; over their number sums associate differently.
 */
import { type Engine, type OptimizerStep, type Shard, shardRange, type WeightStore } from '../../kernels/index.ts';
import { type Collective, type CollectiveGroup, joinCollective } from '../../runtime/index.ts';
import type { SequenceRange } from '../trajectory/index.ts';
import { ObjectiveSums } from './objective.ts';

/** The others come at once, or they are gone. */
const JOIN_MS = 30_000;

export class Peers {
  readonly shard: Shard;
  readonly #collective: Collective;
  /** What ranks other than 0 hear of each other's tensors, and their own. */
  readonly #scratch = new Map<number, Uint8Array>();

  private constructor(shard: Shard, collective: Collective) {
    this.shard = shard;
    this.#collective = collective;
  }

  static async join(group: CollectiveGroup, shard: Shard): Promise<Peers> {
    return new Peers(shard, await joinCollective(group, shard.rank, { timeoutMs: JOIN_MS }));
  }

  /** This trainer's sequences of a range: neighbours, cut where the tokens before are closest to its part of all. */
  part(cuSeqlens: Int32Array, within: SequenceRange): SequenceRange {
    const { rank, members } = this.shard;
    const start = cuSeqlens[within.from]!;
    const total = cuSeqlens[within.to]! - start;
    const cut = (share: number): number => {
      let i = within.from;
      while (i < within.to && (cuSeqlens[i]! + cuSeqlens[i + 1]!) / 2 - start < (total * share) / members) i++;
      return i;
    };
    return { from: cut(rank), to: rank === members - 1 ? within.to : cut(rank + 1) };
  }

  /** Each element becomes its sum over all trainers. */
  async addUp(values: Float32Array): Promise<void> {
    if (values.length > 0) await this.#collective.allReduce(values, 'sum');
  }

  /** Numbers added up in the order of ranks. */
  async addNumbers(values: readonly number[]): Promise<number[]> {
    const all = await this.#collective.allGather(Float64Array.from(values));
    return values.map((_, i) => {
      let sum = 0;
      for (let r = 0; r < this.shard.members; r++) sum += all[r * values.length + i]!;
      return sum;
    });
  }

  async addSums(own: ObjectiveSums): Promise<ObjectiveSums> {
    const all = await this.#collective.allGather(own.values());
    const n = all.length / this.shard.members;
    const total = new ObjectiveSums();
    for (let r = 0; r < this.shard.members; r++) total.add(ObjectiveSums.of(all.subarray(r * n, (r + 1) * n)));
    return total;
  }

  /** One optimiser step of all trainers together. */
  async step(engine: Engine, store: WeightStore, o: OptimizerStep): Promise<{ gradNorm: number }> {
    const { rank, members } = this.shard;
    await this.addUp(engine.flatGradients());
    const writing = rank === 0 ? await store.segment.beginWrite() : undefined;
    try {
      writing?.view(0, store.layout.header.length).set(store.layout.header);
      const tensorsOf = (r: number): Uint8Array => {
        const { from, to } = shardRange(store.layout, { rank: r, members });
        return writing ? writing.view(from, to - from) : this.#buffer(r === rank ? 0 : 1, to - from);
      };
      const own = tensorsOf(rank);
      const { gradNorm } = await engine.shardStep(o, own);
      for (let r = 0; r < members; r++) {
        const bytes = r === rank ? own : tensorsOf(r);
        if (bytes.length > 0) await this.#collective.broadcast(bytes, r);
      }
      writing?.publish(o);
      // Nobody reads the version before it is there.
      await this.#collective.barrier();
      return { gradNorm };
    } catch (e) {
      writing?.abort();
      throw e;
    }
  }

  /** The others are told that this one is gone, instead of waiting for it. */
  leave(): void {
    this.#collective.leave();
  }

  #buffer(which: number, bytes: number): Uint8Array {
    let buffer = this.#scratch.get(which);
    if (buffer === undefined || buffer.length < bytes) {
      buffer = new Uint8Array(bytes);
      this.#scratch.set(which, buffer);
    }
    return buffer.subarray(0, bytes);
  }
}
