// Rows actor.create.*: milliseconds from spawn to the answer of the first call.
import { kill, spawn } from '../../../runtime/index.ts';
import type { SuiteContext } from '../rows.ts';
import { Peer } from './actors.ts';
import { withRuntime } from './run.ts';
import { compare } from './turns.ts';

const BARS = { thread: 4, process: 3, warm: 50 };
/** A worker that is being started as this one is taken needs so long to be ready. */
const REFILL_MS = 700;

/** `thread` and `process`: nothing is kept ready. `warm`: an idle worker process waits. */
export async function actorCreate(context: SuiteContext, how: keyof typeof BARS): Promise<void> {
  const isolation = how === 'thread' ? 'thread' : 'process';
  const turn = async (): Promise<number> => {
    const start = performance.now();
    const peer = spawn(Peer, { isolation });
    await peer.noop();
    const took = performance.now() - start;
    await kill(peer);
    return took;
  };
  await withRuntime(
    async () => {
      await turn(); // our own code is compiled
      await compare(context, {
        row: `actor.create.${how}`,
        unit: 'ms',
        better: 'lower',
        turns: 9,
        ours: async () => {
          if (how === 'warm') await new Promise((done) => setTimeout(done, REFILL_MS));
          return turn();
        },
        peer: (ray) => ray.ask('actor_create'),
        bar: { ratio: BARS[how] },
      });
    },
    { warmWorkers: { process: how === 'warm' ? 2 : 0, thread: 0 } },
  );
}
