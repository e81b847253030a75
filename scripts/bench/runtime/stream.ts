// Row actor.stream: items a second of a generator in another process, read one after another.
import type { SuiteContext } from '../rows.ts';
import { peerOf, withRuntime } from './run.ts';
import { compare } from './turns.ts';

const ITEMS = 2000;

export async function actorStream(context: SuiteContext): Promise<void> {
  await withRuntime(async () => {
    const peer = await peerOf('process', 100);
    const turn = async (items: number): Promise<number> => {
      const start = performance.now();
      let read = 0;
      for await (const item of peer.items(items)) if (item === 'ok') read++;
      if (read !== items) throw new Error(`${read} of ${items} items arrived`);
      return items / ((performance.now() - start) / 1000);
    };
    for (let i = 0; i < 10; i++) await turn(ITEMS);
    await compare(context, {
      row: 'actor.stream',
      unit: 'items/s',
      better: 'higher',
      turns: 5,
      // More of them, so that the turn is not over before it has begun.
      ours: () => turn(20 * ITEMS),
      peer: (ray) => ray.ask('actor_stream', { n: ITEMS }),
      bar: { ratio: 20 },
    });
  });
}
