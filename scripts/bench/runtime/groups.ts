// Row group.create: placement groups of one bundle made, waited for and removed, a hundred at a time as in Ray's own row.
import { placementGroup } from '../../../runtime/index.ts';
import type { SuiteContext } from '../rows.ts';
import { withRuntime } from './run.ts';
import { compare } from './turns.ts';

const GROUPS = 100;

export async function groupCreate(context: SuiteContext): Promise<void> {
  await withRuntime(
    async () => {
      const turn = async (): Promise<number> => {
        const start = performance.now();
        const groups = Array.from({ length: GROUPS }, () => placementGroup([{ resources: { custom: 0.001 } }]));
        await Promise.all(groups.map((group) => group.ready()));
        await Promise.all(groups.map((group) => group.remove()));
        return GROUPS / ((performance.now() - start) / 1000);
      };
      for (let i = 0; i < 60; i++) await turn(); // its code is compiled, as Ray's is
      await compare(context, {
        row: 'group.create',
        unit: 'groups/s',
        better: 'higher',
        turns: 5,
        // Ray's turn takes a third of a second: ours is the mean of several.
        ours: async () => {
          let seconds = 0;
          for (let i = 0; i < 20; i++) seconds += GROUPS / (await turn());
          return (20 * GROUPS) / seconds;
        },
        peer: (ray) => ray.ask('group_create', { n: GROUPS }),
        bar: { ratio: 20 },
      });
    },
    { resources: { custom: 100 } },
  );
}
