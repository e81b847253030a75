// npm run check:cuda: every kernel compiles for sm_80 and sm_90 without a GPU, and what ptxas reports is read: nothing spills, attention's main
// loops stay within their registers. Prints a line a kernel and architecture with the blocks that fit on a multiprocessor by registers. Skips
// loudly where there is no nvcc.
import { spawn } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { findNvcc } from './find-nvcc.mjs';

const architectures = ['sm_80', 'sm_90'];
const out = 'build-emulation/cubin';

/** Registers a thread may have: forward, heads up to 96, three blocks of 128 fit on a multiprocessor. */
function most(kernel, headSize) {
  return kernel === 'attention_forward_kernel' && headSize <= 96 ? 168 : 255;
}

function compile(nvcc, file, architecture) {
  return new Promise((resolve) => {
    const object = path.join(out, `${path.basename(file)}-${architecture}.cubin`);
    const args = ['-std=c++20', `-arch=${architecture}`, '-O3', '-cubin', '-Xptxas', '-v', '-Ikernels', file, '-o', object];
    const child = spawn(nvcc, args, { stdio: ['ignore', 'pipe', 'pipe'], timeout: 600_000, killSignal: 'SIGKILL' });
    let output = '';
    child.stdout.on('data', (data) => (output += data));
    child.stderr.on('data', (data) => (output += data));
    child.on('error', (error) => resolve({ file, architecture, status: -1, output: String(error) }));
    child.on('close', (status) => resolve({ file, architecture, status, output }));
  });
}

/** The last of the names, each with its length before it, that a mangled name begins with. */
function kernelName(mangled) {
  let rest = mangled.replace(/^_ZN?/, '');
  let name = mangled;
  for (let length = rest.match(/^\d+/)?.[0]; length; length = rest.match(/^\d+/)?.[0]) {
    name = rest.slice(length.length, length.length + Number(length));
    rest = rest.slice(length.length + Number(length));
  }
  return name;
}

/** Kernels of one ptxas report: name, head size where it has one, registers, bytes spilled. */
function kernelsOf(report) {
  const found = [];
  let name;
  let spilled = 0;
  for (const line of report.split('\n')) {
    const entry = line.match(/Compiling entry function '(\w+)'/);
    if (entry) name = entry[1];
    const spill = line.match(/(\d+) bytes spill stores, (\d+) bytes spill loads/);
    if (spill) spilled = Number(spill[1]) + Number(spill[2]);
    const used = line.match(/Used (\d+) registers/);
    if (!used || !name) continue;
    const size = name.match(/Li(\d+)E/);
    found.push({ name, kernel: kernelName(name), headSize: size ? Number(size[1]) : 0, registers: Number(used[1]), spilled });
    name = undefined;
  }
  return found;
}

const nvcc = findNvcc();
console.log('TAP version 14');
if (!nvcc) {
  console.log('1..0 # SKIP no nvcc here (PATH, CUDA_HOME, /usr/local/cuda): no kernel was compiled for a GPU');
  process.exit(0);
}
mkdirSync(out, { recursive: true });
const files = readdirSync('kernels/cuda')
  .filter((name) => name.endsWith('.cu'))
  .sort();
const queue = files.flatMap((name) => architectures.map((architecture) => [path.join('kernels/cuda', name), architecture]));
const total = queue.length;
let number = 0;
let failed = 0;
await Promise.all(
  Array.from({ length: Math.min(2, availableParallelism()) }, async () => {
    for (let job = queue.shift(); job; job = queue.shift()) {
      const done = await compile(nvcc, ...job);
      const kernels = kernelsOf(done.output);
      const problems = done.status === 0 ? [] : [done.output];
      if (done.status === 0 && kernels.length === 0 && /__global__/.test(readFileSync(job[0], 'utf8')))
        problems.push('ptxas reported no kernel: its words have changed');
      for (const k of kernels) {
        const limit = most(k.kernel, k.headSize);
        if (k.spilled) problems.push(`${k.name}: ${k.spilled} bytes spilled`);
        if (k.registers > limit) problems.push(`${k.name}: ${k.registers} registers, at most ${limit}`);
      }
      if (/warning/.test(done.output))
        problems.push(
          ...done.output
            .split('\n')
            .filter((line) => line.includes('warning'))
            .slice(0, 5),
        );
      for (const [kernel, list] of groups(kernels)) {
        const worst = Math.max(...list.map((k) => k.registers));
        console.log(
          `# ${done.architecture} ${kernel}: ${list.length} variants, at most ${worst} registers, ${blocks(worst)} blocks of 128 threads a multiprocessor`,
        );
      }
      if (problems.length) failed++;
      console.log(`${problems.length ? 'not ok' : 'ok'} ${++number} - ${job[0]} for ${job[1]}: ${kernels.length} kernels`);
      for (const problem of problems.slice(0, 20)) console.log(problem.replace(/^/gm, '  '));
    }
  }),
);
console.log(`1..${total}`);
process.exitCode = failed ? 1 : 0;

function key(k) {
  return k.headSize ? `${k.kernel} D=${k.headSize}` : k.kernel;
}
function groups(kernels) {
  const map = new Map();
  for (const k of kernels) map.set(key(k), [...(map.get(key(k)) ?? []), k]);
  return map;
}
/** Registers are given to warps in pieces of 256; a multiprocessor has 65,536 and 64 warps. */
function blocks(registers) {
  const warp = Math.ceil((registers * 32) / 256) * 256;
  return Math.min(16, Math.floor(65536 / warp / 4));
}
