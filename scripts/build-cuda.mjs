// npm run build:cuda: builds the CUDA backend (kernels/cuda) with nvcc and CMake into build-cuda/libsinkflex-cuda.so, through cmake-js, without
// a download. Says what is missing and where to get it otherwise.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { findNvcc } from './check/find-nvcc.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const out = path.join(root, 'build-cuda');
const require = createRequire(import.meta.url);

function fail(message) {
  console.error(`sinkflex: ${message}`);
  process.exit(1);
}

const nvcc = findNvcc();
if (!nvcc) fail('nvcc was not found (PATH, CUDA_HOME, /usr/local/cuda): install the CUDA toolkit 12 or newer, or set CUDA_HOME');
if (spawnSync('cmake', ['--version']).status !== 0)
  fail('CMake was not found: install CMake 3.18 or newer (Debian, Ubuntu: apt install cmake)');
let cmakeJs;
try {
  cmakeJs = require.resolve('cmake-js/bin/cmake-js');
} catch {
  fail('cmake-js is not installed: npm install --no-save cmake-js (npm ci in a clone has it)');
}
const compiler = nvcc === 'nvcc' ? spawnSync('sh', ['-c', 'command -v nvcc'], { encoding: 'utf8' }).stdout.trim() : nvcc;
// What an interrupted configuration leaves cannot be gone on with.
if (!existsSync(path.join(out, 'libsinkflex-cuda.so'))) rmSync(out, { recursive: true, force: true });
const args = [
  'build',
  '-d',
  path.join(root, 'kernels/cuda'),
  '-O',
  out,
  '-B',
  'Release',
  '-p',
  process.env.JOBS || '2',
  `--CDCMAKE_CUDA_COMPILER=${realpathSync(compiler)}`,
];
const done = spawnSync(process.execPath, [cmakeJs, ...args], { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] });
if (done.status !== 0) fail('the CUDA backend could not be built: the first error above names the cause');
const library = path.join(out, 'libsinkflex-cuda.so');
if (!existsSync(library)) fail(`the build made no ${library}`);
const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
writeFileSync(`${library}.json`, `${JSON.stringify({ version, nvcc: compiler })}\n`);
console.log(`${library}: opened at run time by backend: 'cuda'`);
