// A test of the simulation: each of a list of mistakes in the protocol is noticed within 300 seeds, and the code as it stands is not.
// SINKFLEX_SIM_MUTANTS: how many of the list are tried, or `all` (minutes each where many seeds are needed); by default none, only the code as it stands.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import t from 'tap';
import { type Mutant, mutants } from './fixtures/mutants.ts';

const SEEDS = 300;
const run = promisify(execFile);
const loader = new URL('./fixtures/mutant-loader.js', import.meta.url).href;
const world = new URL('../../../runtime/faults/simulation/world.ts', import.meta.url).href;
const program = `
const { World } = await import(${JSON.stringify(world)});
for (let seed = 1; seed <= Number(process.env.SEEDS); seed++) {
  const result = await new World({ seed }).run();
  if (result.violation !== undefined) { console.log(JSON.stringify(result)); process.exit(0); }
}
console.log('null');
process.exit(0);
`;

/** The first seed that notices it, and how. */
async function tryMutant(mutant: Mutant | null, seeds: number): Promise<{ seed: number; violation: string } | null> {
  const env = { ...process.env, SINKFLEX_MUTANT: JSON.stringify(mutant), SEEDS: String(seeds), NODE_OPTIONS: '' };
  const preload = `data:text/javascript,import{register}from'node:module';register(${JSON.stringify(loader)})`;
  const args = ['--no-warnings', '--import', preload, '--input-type=module', '--eval', program];
  const { stdout } = await run(process.execPath, args, { env, timeout: 1_200_000 });
  return JSON.parse(stdout.trim().split('\n').at(-1)!);
}

const wanted = process.env.SINKFLEX_SIM_MUTANTS ?? '0';
const most = wanted === 'all' ? mutants.length : Number(wanted);
t.setTimeout(600_000 + 600_000 * most);

t.test('each mistake of the list can be made in the code as it stands', async (t) => {
  for (const { what, file, find } of mutants)
    t.equal(readFileSync(new URL(`../../../${file}`, import.meta.url), 'utf8').split(find).length, 2, what);
});

t.test('the code as it stands passes in the same way', async (t) => {
  t.setTimeout(0);
  t.equal(await tryMutant(null, 2), null);
});

for (const mutant of mutants.slice(0, most)) {
  t.test(mutant.what, async (t) => {
    t.setTimeout(0);
    const found = await tryMutant(mutant, SEEDS);
    if (found === null) t.fail(`not noticed within ${SEEDS} seeds`);
    else t.pass(`seed ${found.seed}: ${found.violation}`);
  });
}
