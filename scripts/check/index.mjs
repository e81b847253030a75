// npm run check: what must hold of the sources besides the tests. One TAP line a check with its time; problems below what failed.
// `npm run check -- layers sizes` runs only those.
import { spawn } from 'node:child_process';
import { checkAttw } from './attw.mjs';
import { checkFormatCpp } from './format-cpp.mjs';
import { checkIsa } from './isa.mjs';
import { checkLayers } from './layers.mjs';
import { checkSizes } from './sizes.mjs';

/** Runs an installed tool; its output is the problem if it fails. */
function tool(name, ...args) {
  return () =>
    new Promise((resolve) => {
      const child = spawn(process.execPath, [`node_modules/${name}`, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
      let output = '';
      child.stdout.on('data', (data) => (output += data));
      child.stderr.on('data', (data) => (output += data));
      child.on('error', (error) => resolve([String(error)]));
      child.on('close', (code) => resolve(code === 0 ? [] : [output.trim()]));
    });
}

const checks = {
  layers: ['imports only go down, through faces', checkLayers],
  sizes: ['no file over 400 lines without a reason', checkSizes],
  'format-cpp': ['C++ is formatted', checkFormatCpp],
  isa: ['no instruction set leaks through weak symbols', checkIsa],
  types: [
    'TypeScript types',
    tool('typescript/bin/tsc', '-p', 'tsconfig.json', '--noEmit', '--tsBuildInfoFile', 'dist/.check.tsbuildinfo'),
  ],
  biome: ['TypeScript lint and format', tool('@biomejs/biome/bin/biome', 'check', '--error-on-warnings', '--diagnostic-level=warn', '.')],
  publint: ['package.json fits what is published', tool('publint/src/cli.js', '--strict', '--pack', 'false')],
  attw: ['every export has its types', checkAttw],
};

const only = process.argv.slice(2);
const names = Object.keys(checks).filter((name) => only.length === 0 || only.includes(name));
console.log(`TAP version 14\n1..${names.length}`);
for (const [i, name] of names.entries()) {
  const [what, check] = checks[name];
  const started = performance.now();
  const found = await check();
  const skipped = typeof found === 'string' ? found : undefined;
  const problems = skipped ? [] : found;
  console.log(
    `${problems.length ? 'not ok' : 'ok'} ${i + 1} - ${name}: ${what} # ${skipped ? `SKIP ${skipped}` : `time=${Math.round(performance.now() - started)}ms`}`,
  );
  for (const problem of problems) console.log(problem.replace(/^/gm, '  '));
  if (problems.length) process.exitCode = 1;
}
