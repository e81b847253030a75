// Rows task.*: a stateless function that does nothing, one after another and a thousand at once.
import { defineTask, task } from '../../../runtime/index.ts';
import type { SuiteContext } from '../rows.ts';
import { withRuntime } from './run.ts';
import { compare, each, together } from './turns.ts';

export const nothing = defineTask(import.meta.url, 'nothing', (): string => 'ok');

export async function taskSync(context: SuiteContext): Promise<void> {
  await withRuntime(async () => {
    const run = task(nothing);
    await each(1000, () => run());
    let p99 = 0;
    await compare(context, {
      row: 'task.sync',
      unit: 'us',
      better: 'lower',
      turns: 5,
      ours: async () => {
        const turn = await each(1000, () => run());
        p99 = turn.p99;
        return turn.median;
      },
      peer: async (ray) => (await ray.ask<{ median: number }>('task_sync', { n: 150 })).median,
      bar: { ratio: 15 },
      details: () => ({ p99_us: Math.round(p99), isolation: 'thread' }),
    });
  });
}

export async function taskAsync(context: SuiteContext): Promise<void> {
  await withRuntime(async () => {
    const run = task(nothing);
    const turn = () => together(1000, () => run());
    for (let i = 0; i < 20; i++) await turn();
    await compare(context, {
      row: 'task.async',
      unit: 'tasks/s',
      better: 'higher',
      turns: 5,
      ours: async () => {
        // Ray's turn takes half a second: the mean of a row of batches.
        const rates: number[] = [];
        for (let i = 0; i < 20; i++) rates.push(1 / (await turn()));
        return rates.length / rates.reduce((a, b) => a + b);
      },
      peer: (ray) => ray.ask('task_async', { n: 1000 }),
      bar: { ratio: 10 },
      details: () => ({ isolation: 'thread' }),
    });
  });
}
