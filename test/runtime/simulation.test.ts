// The control plane under simulation: the code of head and agents on virtual time, network and disk, ten virtual minutes of faults a seed.
// SINKFLEX_SIM_SEEDS: how many; SINKFLEX_SIM_FIRST: the first. A seed that fails is replayed with both set.
import t from 'tap';
import { World } from '../../runtime/faults/simulation/index.ts';

const seeds = Number(process.env.SINKFLEX_SIM_SEEDS ?? 10);
const first = Number(process.env.SINKFLEX_SIM_FIRST ?? 1);
t.setTimeout(600_000 + seeds * 5000);

t.test(`nothing runs twice, is lost or left over, ${seeds} seeds`, async (t) => {
  t.setTimeout(0);
  let faults = 0;
  let starts = 0;
  for (let seed = first; seed < first + seeds; seed++) {
    const result = await new World({ seed }).run();
    faults += result.faults;
    starts += result.starts;
    if (result.violation !== undefined) t.fail(`seed ${seed}, ${Math.round(result.atMs)} ms: ${result.violation}`);
  }
  t.ok(faults > 20 * seeds && starts > 30 * seeds, `${faults} faults, ${starts} starts`);
});

t.test('the seeds that have shown a mistake', async (t) => {
  for (const seed of [72, 119, 269, 443]) t.equal((await new World({ seed }).run()).violation, undefined, `seed ${seed}`);
});

t.test('the same seed is the same run, another seed another', async (t) => {
  const short = { durationMs: 60_000 };
  const [one, again, other] = [1, 1, 2].map((seed) => new World({ seed, ...short }).run());
  t.same(await one, await again);
  t.not((await other)!.trace, (await one)!.trace);
});
