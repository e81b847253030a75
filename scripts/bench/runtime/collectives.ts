// Rows collective.all_reduce.*: the sum of float32 over process actors, beside gloo (torch.distributed) with as many processes.
import {
  type Collective,
  type CollectiveGroup,
  createCollective,
  defineActor,
  get,
  joinCollective,
  spawn,
} from '../../../runtime/index.ts';
import type { SuiteContext } from '../rows.ts';
import { GLOO_MEMBERS } from './peers.ts';
import { withRuntime } from './run.ts';
import { compare, median, round } from './turns.ts';

const SIZES = {
  '4kb': { bytes: 4096, rounds: 300 },
  '1mb': { bytes: 2 ** 20, rounds: 60 },
  '100mb': { bytes: 100_000_000, rounds: 5 },
};

class RankActor {
  #collective: Collective | undefined;
  async join(group: CollectiveGroup, rank: number): Promise<void> {
    this.#collective = await joinCollective(group, rank);
  }
  /** Milliseconds of an all-reduce, median. */
  async rounds(bytes: number, rounds: number): Promise<number> {
    const data = new Float32Array(bytes / 4).fill(1);
    const samples: number[] = [];
    for (let i = 0; i < rounds + 2; i++) {
      await this.#collective!.barrier();
      const start = performance.now();
      await this.#collective!.allReduce(data);
      samples.push(performance.now() - start);
      data.fill(1);
    }
    return median(samples.slice(2));
  }
  /** Milliseconds of a copy between touched pages: what no all-reduce can be under. */
  copy(bytes: number, rounds: number): number {
    const [from, to] = [new Float32Array(bytes / 4).fill(1), new Float32Array(bytes / 4).fill(2)];
    const samples: number[] = [];
    for (let i = 0; i < rounds + 2; i++) {
      const start = performance.now();
      to.set(from);
      samples.push(performance.now() - start);
    }
    return median(samples.slice(2));
  }
}
export const Rank = defineActor(import.meta.url, 'Rank', RankActor);

export async function collectiveAllReduce(context: SuiteContext, size: keyof typeof SIZES): Promise<void> {
  const { bytes, rounds } = SIZES[size];
  await withRuntime(async () => {
    const ranks = Array.from({ length: GLOO_MEMBERS }, () => spawn(Rank));
    const group = createCollective(ranks.length);
    await get(ranks.map((rank, i) => rank.join(group, i)));
    const copy = await ranks[0]!.copy(bytes, rounds);
    const turn = async () => (await get(ranks.map((rank) => rank.rounds(bytes, rounds))))[0]!;
    await turn();
    let last = 0;
    await compare(context, {
      row: `collective.all_reduce.${size}`,
      unit: 'ms',
      better: 'lower',
      turns: 5,
      ours: async () => {
        last = await turn();
        return last;
      },
      peer: (gloo) => gloo.ask('all_reduce', { size: bytes, n: rounds }),
      against: 'gloo',
      details: () => ({
        members: ranks.length,
        gb_per_s: round(bytes / last / 1e6),
        copy_ms: round(copy),
        copy_gb_per_s: round(bytes / copy / 1e6),
      }),
    });
  });
}
