// Rows echo.*: a large value to an actor in another process and back.
import type { SuiteContext } from '../rows.ts';
import { peerOf, withRuntime } from './run.ts';
import { compare, each } from './turns.ts';

const SIZES = { '1mb': { bytes: 2 ** 20, calls: 40, ratio: 4 }, '10mb': { bytes: 10 * 2 ** 20, calls: 15, ratio: 3 } };

export async function echo(context: SuiteContext, size: keyof typeof SIZES): Promise<void> {
  const { bytes, calls, ratio } = SIZES[size];
  await withRuntime(async () => {
    const peer = await peerOf('process', 100);
    const value = new Uint8Array(bytes).fill(1);
    const turn = async () =>
      (
        await each(calls, async () => {
          const back = await peer.echo(value);
          if (back[bytes - 1] !== 1) throw new Error('the echo is not what was sent');
        })
      ).median / 1000;
    for (let i = 0; i < 3; i++) await turn();
    await compare(context, {
      row: `echo.${size}`,
      unit: 'ms',
      better: 'lower',
      turns: 5,
      ours: turn,
      peer: async (ray) => (await ray.ask<{ median: number }>('echo', { size: bytes, n: calls })).median,
      bar: { ratio },
    });
  });
}
