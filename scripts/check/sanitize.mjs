// npm run test:sanitize: the native tests (test/kernels/*.native: one program a .cpp file, or one in all where main.cpp stands) with
// AddressSanitizer and UndefinedBehaviorSanitizer; with --thread under ThreadSanitizer, those where threads meet. Operators, model, memory and os
// are compiled once for each instruction set, as the addon does, and kept in build-sanitize/. Prints TAP, one test a program. Skips loudly where the compiler has no sanitizers.
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import path from 'node:path';

const threads = process.argv.includes('--thread');
const out = threads ? 'build-sanitize/thread' : 'build-sanitize';
const cxx = process.env.CXX || 'g++';
const common = [
  '-std=c++20',
  '-O1',
  '-g',
  '-fno-omit-frame-pointer',
  '-ffp-contract=off',
  '-fno-math-errno',
  '-pthread',
  '-Ikernels',
  '-DSINKFLEX_STRETCH',
];
const sanitizers = threads ? ['-fsanitize=thread'] : ['-fsanitize=address,undefined', '-fno-sanitize-recover=all'];
/** Under ThreadSanitizer: programs by name, with the suites of them that use several threads. Processes that share memory are beyond it. */
const threaded = { 'model.native/engine': [], 'ops.native': ['attention'], 'memory.native/segment-basics': [] };
// Both together make the unrolled scalar lanes eight times slower to compile than apart; the vector paths run the same code under both.
const portableOnly = ['-fno-sanitize=undefined'];
const isas =
  process.arch === 'x64'
    ? { PORTABLE: [], AVX2: ['-mavx2', '-mfma'], AVX512: ['-mavx512f', '-mavx512dq', '-mavx512bw', '-mavx512vl', '-mavx2', '-mfma'] }
    : { PORTABLE: [], NEON: [] };

const list = (folder, suffix) => {
  try {
    return readdirSync(folder)
      .filter((name) => name.endsWith(suffix))
      .sort()
      .map((name) => path.join(folder, name));
  } catch (error) {
    if (error.code === 'ENOENT') return [];
    throw error;
  }
};
const newest = (files) => Math.max(0, ...files.map((file) => statSync(file).mtimeMs));
const age = (file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? -1;

function execute(command, args, options = {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
    let output = '';
    child.stdout.on('data', (data) => (output += data));
    child.stderr.on('data', (data) => (output += data));
    child.on('error', (error) => resolve({ status: -1, output: String(error) }));
    child.on('close', (status, signal) => resolve({ status: status ?? signal, output }));
  });
}

/** Runs `work` over items, as many at a time as there are cores. */
async function each(items, work) {
  const queue = [...items];
  await Promise.all(
    Array.from({ length: availableParallelism() }, async () => {
      for (let item = queue.shift(); item; item = queue.shift()) await work(item);
    }),
  );
}

mkdirSync(out, { recursive: true });
console.log('TAP version 14');
writeFileSync(path.join(out, 'probe.cpp'), 'int main() { return 0; }\n');
const probe = spawnSync(cxx, [...common, ...sanitizers, path.join(out, 'probe.cpp'), '-o', path.join(out, 'probe')], { encoding: 'utf8' });
if (probe.status !== 0 || spawnSync(path.join(out, 'probe')).status !== 0) {
  console.log(`1..0 # SKIP ${cxx} cannot build or run with ${sanitizers[0]}: nothing was checked`);
  process.exit(0);
}

const only = process.argv.slice(2).find((word) => !word.startsWith('--')) ?? '';
const folders = readdirSync('test/kernels').filter((name) => name.endsWith('.native'));
const programs = folders
  .map((folder) => ({
    folder,
    sources: list(path.join('test/kernels', folder), '.cpp'),
  }))
  .flatMap(({ folder, sources }) =>
    sources.some((file) => path.basename(file) === 'main.cpp')
      ? [{ name: folder, sources }]
      : sources.map((file) => ({ name: path.relative('test/kernels', file).replace(/\.cpp$/, ''), sources: [file] })),
  )
  .filter(({ name }) => name.includes(only) && (!threads || name in threaded));
const folderHeaders = folders.flatMap((folder) => list(path.join('test/kernels', folder), '.h'));
const headers = newest([
  ...['.', 'ops', 'ops/dispatch', 'memory', 'os', 'model'].flatMap((f) => list(path.join('kernels', f), '.h')),
  ...folderHeaders,
]);

const objects = [];
const objectOf = (source, tag) => path.join(out, `${tag}-${source.replaceAll('/', '-')}.o`);
const add = (source, tag, flags) => objects.push({ source, flags, object: objectOf(source, tag) });
for (const folder of ['kernels/ops/dispatch', 'kernels/memory', 'kernels/os', 'kernels/model'])
  for (const source of list(folder, '.cpp')) add(source, 'base', []);
for (const [isa, flags] of Object.entries(isas)) {
  for (const source of list('kernels/ops', '.cpp'))
    add(source, isa.toLowerCase(), [`-DSFX_ISA_${isa}`, ...flags, ...(isa === 'PORTABLE' && !threads ? portableOnly : [])]);
}
const library = path.join(out, 'libkernels.a');
const members = objects.map(({ object }) => object);
for (const { sources } of programs) for (const source of sources) add(source, 'test', []);

const failures = [];
await each(objects, async ({ source, flags, object }) => {
  if (age(object) > Math.max(headers, age(source))) return;
  const done = await execute(cxx, [...common, ...sanitizers, ...flags, '-c', source, '-o', object]);
  if (done.status !== 0) failures.push(`${source} ${flags.join(' ')}\n${done.output}`);
});
if (failures.length) {
  console.log(`Bail out! compiling failed\n${failures.join('\n')}`);
  process.exit(1);
}
if (age(library) < newest(members)) {
  rmSync(library, { force: true });
  spawnSync('ar', ['rcs', library, ...members], { stdio: 'inherit' });
}

let number = 0;
let failed = 0;
const report = (good, name, seconds, output) => {
  number++;
  if (!good) failed++;
  console.log(`${good ? 'ok' : 'not ok'} ${number} - ${name} # time=${Math.round(seconds * 1000)}ms`);
  if (!good)
    console.log(
      `${output
        .trimEnd()
        .split('\n')
        .slice(-60)
        .map((line) => `# ${line}`)
        .join('\n')}`,
    );
};
await each(programs, async ({ name, sources }) => {
  const binary = path.join(out, name.replaceAll('/', '-'));
  const own = sources.map((source) => objectOf(source, 'test'));
  const linked = await execute(cxx, [...common, ...sanitizers, ...own, library, '-ldl', '-o', binary]);
  if (linked.status !== 0) return report(false, `${name} (does not link)`, 0, linked.output);
  const started = performance.now();
  const env = {
    ...process.env,
    ASAN_OPTIONS: 'detect_leaks=1:abort_on_error=0',
    UBSAN_OPTIONS: 'print_stacktrace=1',
    TSAN_OPTIONS: 'halt_on_error=1',
  };
  const done = await execute(binary, threads ? threaded[name] : [], { env, timeout: 1_200_000, killSignal: 'SIGKILL' });
  report(done.status === 0, name, (performance.now() - started) / 1000, done.output);
});
console.log(`1..${number}`);
console.log(`# { total: ${number}, pass: ${number - failed}${failed ? `, fail: ${failed}` : ''} }`);
process.exitCode = failed || number === 0 ? 1 : 0;
