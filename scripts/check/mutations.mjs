// npm run test:mutations: bugs of the kinds that kernels really have, put one by one into copies of the CUDA sources; each must be caught by the
// tests of attention or of the operators on the emulated machine. Prints the table. `node scripts/check/mutations.mjs PATTERN` tries those whose names match.
import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { buildEmulation, sharedHeaders } from '../build-emulation.mjs';
import { mutations as attentionMutations } from './mutation-list.mjs';
import { operatorMutations } from './mutation-operators.mjs';

const mutations = [...attentionMutations, ...operatorMutations];
const out = 'build-emulation/mutants';
/** Two head sizes are enough, and quicker to compile; the tests stay within them. */
const defines = ['-Wno-error', '-DSFX_HEAD_SIZES(X)=X(32)X(128)'];

/** The attention tests on a library, or a suite of the program that runs the operators' tests. */
function run(built, suite) {
  return new Promise((resolve) => {
    const env = { ...process.env, SINKFLEX_TEST_BACKEND: built, SINKFLEX_EMULATION_MOST_HEAD: '128', TAP_BAIL: '1' };
    const [command, args] = suite ? [built, [suite]] : [process.execPath, ['dist/test/kernels/cuda-attention.test.js']];
    const child = spawn(command, args, { env, timeout: 600_000, killSignal: 'SIGKILL' });
    let output = '';
    child.stdout.on('data', (data) => (output += data));
    child.stderr.on('data', (data) => (output += data));
    child.on('error', (error) => resolve({ caught: false, by: String(error) }));
    child.on('close', (status, signal) =>
      resolve({ caught: status !== 0, by: signal === 'SIGKILL' ? 'ten minutes were not enough' : reason(output) }),
    );
  });
}

/** The first check that failed, or what the machine said. */
function reason(output) {
  const told = output.match(/(race|uninitialised|out of bounds|divergence|deadlock|nobody waited)[^\n]{0,60}/);
  if (told) return told[0];
  const failed =
    output.match(/FAILED ([^\n]{0,80})/) ?? output.match(/not ok \d+ - ([^\n#]{0,80})/) ?? output.match(/"?message"?: ([^\n]{0,80})/);
  return failed ? failed[1].trim() : 'the process ended';
}

async function attempt({ name, file, from, to, suite }) {
  const folder = path.resolve(out, name.replaceAll(/\W+/g, '-'));
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const name of sharedHeaders) cpSync(path.join('kernels', name), path.join(folder, name));
  cpSync('kernels/cuda', path.join(folder, 'cuda'), { recursive: true });
  try {
    if (file) {
      const target = path.join(folder, 'cuda', file);
      const text = readFileSync(target, 'utf8');
      if (text.split(from).length !== 2)
        return { caught: false, by: `stands ${text.split(from).length - 1} times in ${file}: mend the list of mutations` };
      writeFileSync(
        target,
        text.replace(from, () => to),
      );
    }
    const [built] = await buildEmulation({ kernels: folder, defines, jobs: 2, programs: suite ? ['operators'] : [] });
    return await run(built, suite);
  } catch (error) {
    return { caught: false, broken: true, by: `does not compile: ${error.message.slice(0, 2000)}` };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const word = process.argv[2] ?? '';
const chosen = mutations.filter(({ name }) => name.match(word));
if (chosen.length === 0) {
  console.error(`no mutation is called ${word}`);
  process.exit(1);
}
console.log('TAP version 14');
const unchanged = await attempt({ name: 'unchanged' });
const sound = !unchanged.caught && !unchanged.broken;
console.log(`${sound ? 'ok' : 'not ok'} 1 - the sources as they are pass${sound ? '' : `: ${unchanged.by}`}`);
let missed = sound ? 0 : 1;
const rows = [];
if (sound) {
  for (const [i, mutation] of chosen.entries()) {
    const { caught, by } = await attempt(mutation);
    if (!caught) missed++;
    rows.push([mutation.name, mutation.file, by]);
    console.log(`${caught ? 'ok' : 'not ok'} ${i + 2} - ${mutation.name} (${mutation.file}) ${caught ? '<-' : 'was not caught:'} ${by}`);
  }
}
console.log(`1..${rows.length + 1}`);
console.log('# | bug | file | caught by |\n# |---|---|---|');
for (const row of rows) console.log(`# | ${row.join(' | ')} |`);
process.exitCode = missed ? 1 : 0;
