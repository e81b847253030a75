// Builds what runs the CUDA kernels on a CPU, with the C++ compiler alone: the emulated backend as a shared library, and the test programs of
// test/kernels/cuda.emulated. Objects are kept in build-emulation/ by a hash of all that goes into them, so that a second build does nothing
// and several at a time do no harm. `node scripts/build-emulation.mjs [program...]` prints the paths; no program: the library. A
// program that is a .cpp stands in for a library that the backend opens at run time.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const cxx = process.env.CXX || 'g++';
const common = ['-std=c++20', '-g1', '-fPIC', '-fvisibility=hidden', '-Wall', '-Wextra', '-Werror', '-Wno-unknown-pragmas', '-pthread'];
/** Kernels: each load and store announces itself; a register that was never written holds a pattern. */
const watched = ['-x', 'c++', '-O2', '-fno-tree-vectorize', '-fsanitize=thread', '-ftrivial-auto-var-init=pattern'];
const machine = ['-O3'];
const suite = ['-O1', '-Wno-sign-compare'];

/** What the CUDA sources take from kernels/ besides their own folder. */
export const sharedHeaders = ['backend.h', 'uniform.h', 'ops/moment-codes.h'];

const files = (folder, suffix) =>
  readdirSync(folder)
    .filter((name) => suffix.test(name))
    .sort()
    .map((name) => path.join(folder, name));

/** No file takes so long to compile, also on a busy machine. */
const COMPILED_MS = 600_000;

function execute(command, args) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], timeout: COMPILED_MS, killSignal: 'SIGKILL' });
    let output = '';
    child.stdout.on('data', (data) => (output += data));
    child.stderr.on('data', (data) => (output += data));
    child.on('error', (error) => resolve({ status: -1, output: String(error) }));
    child.on('close', (status) => resolve({ status, output }));
  });
}

/** `kernels`: the folder that stands for kernels/ (mutations give a copy). Returns the paths of the library or the programs. */
export async function buildEmulation({
  kernels = path.join(root, 'kernels'),
  programs = [],
  jobs = availableParallelism(),
  defines = [],
} = {}) {
  const out = path.join(root, 'build-emulation');
  mkdirSync(out, { recursive: true });
  forget(out);
  const cuda = path.join(kernels, 'cuda');
  const tests = path.join(root, 'test/kernels/cuda.emulated');
  const headers = [
    ...sharedHeaders.map((name) => path.join(kernels, name)),
    ...files(cuda, /\.(h|cuh)$/),
    ...files(path.join(cuda, 'emulation'), /\.h$/),
  ];
  const shared = createHash('sha256').update(cxx).update(defines.join());
  for (const file of headers) shared.update(readFileSync(file));
  const base = shared.digest();
  const keys = [];
  const make = async (source, flags, extra = []) => {
    const hash = createHash('sha256').update(base).update(flags.join()).update(readFileSync(source));
    for (const file of extra) hash.update(readFileSync(file));
    const key = hash.digest('hex').slice(0, 16);
    const object = path.join(out, `${path.basename(source)}-${key}.o`);
    keys.push(key);
    await kept(object, (to) => [cxx, [...common, ...flags, ...defines, `-I${kernels}`, '-c', source, '-o', to]]);
    return object;
  };
  const work = [
    ...files(cuda, /\.cu$/).map((source) => () => make(source, watched)),
    ...files(path.join(cuda, 'emulation'), /\.cpp$/).map((source) => () => make(source, machine)),
  ];
  const objects = await each(work, jobs, (task) => task());
  const link = async (name, inputs, flags) => {
    const key = createHash('sha256').update(keys.join()).update(flags.join()).digest('hex').slice(0, 16);
    const target = path.join(out, `${name.replace('*', key)}`);
    await kept(target, (to) => [cxx, [...flags, ...inputs, '-pthread', '-ldl', '-o', to]]);
    return target;
  };
  if (programs.length === 0) return [await link('libsinkflex-cuda-emulated-*.so', objects, ['-shared', '-Wl,-Bsymbolic'])];
  const operators = path.join(root, 'test/kernels/ops.native');
  const shape = [...files(tests, /\.h$/), ...files(operators, /\.h$/)];
  /** The CPU operators' tests belong to the program that runs them. */
  const suites = files(operators, /\.cpp$/).filter((file) => !/(main|bench|elementary)\.cpp$/.test(file));
  return each(programs, 1, async (name) => {
    const standIn = path.join(tests, `${name}.cpp`);
    if (existsSync(standIn)) return link(`${name}-*.so`, [await make(standIn, machine)], ['-shared']);
    const sources = [path.join(tests, `${name}.cu`), ...(name === 'operators' ? suites : [])];
    const own = await each(sources, jobs, (source) => make(source, source.endsWith('.cu') ? watched : suite, shape));
    return link(`${name}-*`, [...own, ...objects], []);
  });
}

/** The file, made by a command unless it is there. Of several builds at a time one makes it, the others wait for it. */
async function kept(file, command) {
  const claim = `${file}.claim`;
  for (;;) {
    if (existsSync(file)) {
      const now = new Date();
      utimesSync(file, now, now);
      return;
    }
    try {
      writeFileSync(claim, String(process.pid), { flag: 'wx' });
      break;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
      if (abandoned(claim)) rmSync(claim, { force: true });
      else await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
  try {
    if (existsSync(file)) return;
    const partial = `${file}.${process.pid}`;
    const [program, args] = command(partial);
    const done = await execute(program, args);
    if (done.status !== 0) throw new Error(`${program} ${args.join(' ')}\n${done.output}`);
    renameSync(partial, file);
  } finally {
    rmSync(claim, { force: true });
  }
}

/** Whether the build that claimed a file has died, or another process has its number now. A claim that is not written yet counts as alive. */
function abandoned(claim) {
  try {
    if (Date.now() - statSync(claim).mtimeMs > 2 * COMPILED_MS) return true;
    const owner = Number(readFileSync(claim, 'utf8'));
    if (owner > 0) process.kill(owner, 0);
    return false;
  } catch (error) {
    return error.code === 'ESRCH' || error.code === 'ENOENT';
  }
}

async function each(items, jobs, work) {
  const results = [];
  let next = 0;
  await Promise.all(
    Array.from({ length: Math.max(1, Math.min(jobs, items.length)) }, async () => {
      while (next < items.length) {
        const i = next++;
        results[i] = await work(items[i]);
      }
    }),
  );
  return results;
}

/** What nobody has asked for in three days goes. */
function forget(folder) {
  for (const name of readdirSync(folder)) {
    const file = path.join(folder, name);
    const age = Date.now() - (statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
    if (age > 3 * 86_400_000) rmSync(file, { force: true, recursive: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    for (const file of await buildEmulation({ programs: process.argv.slice(2) })) console.log(file);
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
