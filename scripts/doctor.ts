// `sinkflex doctor`: is this machine fit, and if not, what to do. Every line is a check that really ran.
import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, readFileSync, statfsSync } from 'node:fs';
import { availableParallelism, freemem, homedir, totalmem } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Command } from 'commander';
import { packageRoot } from './package-root.ts';
import { table } from './text.ts';

export interface Check {
  name: string;
  /** ok: fine. note: works, but worth knowing. fail: a run would not start. */
  state: 'ok' | 'note' | 'fail';
  found: string;
  /** What to do. */
  fix?: string;
}

const MIB = 1024 * 1024;

export function doctorCommand(): Command {
  return new Command('doctor')
    .summary('check that this machine can run SinkFlex')
    .description(
      'Checks Node, the native addon, cores, memory, disk and what the optional parts need. Exit code 2 if something has to be put right.',
    )
    .option('--json', 'one JSON object a check')
    .option('--model <folder>', 'show instead what training this model takes: a folder, a run, a checkpoint, or org/name of the hub')
    .option('--tokens <n>', 'with --model: tokens of the sequence', Number)
    .action(async (o: { json?: boolean; model?: string; tokens?: number }) => {
      if (o.model !== undefined) {
        // Only now: the other checks run without the addon.
        const { memoryTable, modelMemory } = await import('./model-memory.ts');
        const m = await modelMemory(o.model, o.tokens);
        process.stdout.write(`${o.json ? JSON.stringify(m) : memoryTable(m)}\n`);
        return;
      }
      const checks = await examine();
      if (o.json) for (const c of checks) process.stdout.write(`${JSON.stringify(c)}\n`);
      else {
        const mark = { ok: 'ok  ', note: 'note', fail: 'FAIL' };
        process.stdout.write(`${table(checks.map((c) => [mark[c.state], c.name, c.found + (c.fix ? ` -> ${c.fix}` : '')]))}\n`);
      }
      process.exitCode = checks.some((c) => c.state === 'fail') ? 2 : 0;
    });
}

export async function examine(): Promise<Check[]> {
  return [nodeVersion(), await addon(), cores(), memory(), disk(), writable(), descriptors(), platform(), await cuda(), peers()];
}

function nodeVersion(): Check {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  const fits = major > 20 || (major === 20 && minor >= 19);
  return { name: 'node', state: fits ? 'ok' : 'fail', found: process.version, ...(fits ? {} : { fix: 'install Node 20.19 or newer' }) };
}

async function addon(): Promise<Check> {
  try {
    const { cpu } = await import('../kernels/index.ts');
    const slow = cpu.isa === 'portable';
    return {
      name: 'native addon',
      state: slow ? 'note' : 'ok',
      found: `loaded, instruction set ${cpu.isa}`,
      ...(slow ? { fix: 'works, but slowly: this processor has no AVX2, AVX-512 or NEON that we use' } : {}),
    };
  } catch (error) {
    return {
      name: 'native addon',
      state: 'fail',
      found: (error as Error).message.split('\n')[0] ?? '',
      fix: 'npm rebuild sinkflex (in the repository: npm ci); needs a C++20 compiler and Python 3',
    };
  }
}

/** Only for --device cuda; nothing else needs a GPU. */
async function cuda(): Promise<Check> {
  const finder = join(packageRoot, 'scripts/check/find-nvcc.mjs'); // as build:cuda finds it
  const path = existsSync(finder)
    ? ((await import(pathToFileURL(finder).href)) as { findNvcc(): string | undefined }).findNvcc()
    : undefined;
  const nvcc = spawnSync(path ?? 'nvcc', ['--version'], { encoding: 'utf8', timeout: 10_000 });
  const toolkit = nvcc.status === 0 ? `nvcc ${/release ([\d.]+)/.exec(nvcc.stdout)?.[1] ?? ''}` : 'no nvcc';
  try {
    const { probeDevice } = await import('../kernels/index.ts');
    return { name: 'CUDA backend', state: 'ok', found: `loaded, cuda:0 is ${probeDevice({ backend: 'cuda' })}` };
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    const missing = code === 'SINKFLEX_BACKEND_MISSING';
    return {
      name: 'CUDA backend',
      state: 'note',
      found: message.startsWith('the CUDA backend is not built') ? `not built (${toolkit})` : message,
      fix: missing
        ? 'only for GPUs: npm run build:cuda, with the CUDA toolkit 12 or newer and CMake'
        : 'works on the CPU; the GPU needs its driver (nvidia-smi)',
    };
  }
}

function cores(): Check {
  const n = availableParallelism();
  return {
    name: 'cores',
    state: n >= 2 ? 'ok' : 'note',
    found: `${n} usable`,
    ...(n >= 2 ? {} : { fix: 'one core works, at half the pace' }),
  };
}

function memory(): Check {
  // A container's limit is often far below the machine's memory.
  const limits = ['/sys/fs/cgroup/memory.max', '/sys/fs/cgroup/memory/memory.limit_in_bytes']
    .filter(existsSync)
    .map((path) => Number(readFileSync(path, 'utf8').trim()));
  const limit = Math.min(totalmem(), ...limits.filter((v) => Number.isFinite(v) && v > 0));
  const enough = limit >= 1024 * MIB;
  return {
    name: 'memory',
    state: enough ? 'ok' : 'fail',
    found: `${Math.round(limit / MIB)} MiB for this process tree, ${Math.round(freemem() / MIB)} MiB free on the machine`,
    ...(enough ? {} : { fix: 'a run needs about 1 GiB' }),
  };
}

function disk(): Check {
  const s = statfsSync('.');
  const free = s.bavail * s.bsize;
  return {
    name: 'disk',
    state: free >= 256 * MIB ? 'ok' : 'fail',
    found: `${Math.round(free / MIB)} MiB free here`,
    ...(free >= 256 * MIB ? {} : { fix: 'free some space, or run elsewhere with --output' }),
  };
}

function writable(): Check {
  try {
    accessSync('.', constants.W_OK);
    return { name: 'run folders', state: 'ok', found: `${join('.', 'runs')} can be written` };
  } catch {
    return { name: 'run folders', state: 'note', found: 'this folder cannot be written', fix: 'give --output' };
  }
}

function descriptors(): Check {
  if (process.platform === 'win32') return { name: 'open files', state: 'note', found: 'unknown' };
  const n = Number(spawnSync('sh', ['-c', 'ulimit -n'], { encoding: 'utf8' }).stdout.trim().replace('unlimited', 'Infinity'));
  return {
    name: 'open files',
    state: n >= 512 ? 'ok' : 'note',
    found: `limit ${n}`,
    ...(n >= 512 ? {} : { fix: 'ulimit -n 1024 for many actors' }),
  };
}

function platform(): Check {
  const known = process.platform === 'linux' || process.platform === 'darwin';
  return {
    name: 'platform',
    state: process.platform === 'linux' ? 'ok' : known ? 'note' : 'fail',
    found: `${process.platform}-${process.arch}`,
    ...(known ? {} : { fix: 'Linux or macOS' }),
  };
}

/** Only benchmarks with --peers need them. */
function peers(): Check {
  const python = peerPython();
  return existsSync(python)
    ? { name: 'bench peers', state: 'ok', found: python }
    : {
        name: 'bench peers',
        state: 'note',
        found: 'none; bench --peers will skip its rivals',
        fix: 'SINKFLEX_PEERS names a Python with torch and transformers',
      };
}

export const peerPython = (): string => process.env.SINKFLEX_PEERS ?? join(homedir(), '.cache', 'sinkflex-peers', 'bin', 'python');
/** Data and scripts that stand beside the project. */
export const sharedFolder = (): string => process.env.SINKFLEX_SHARED ?? join(packageRoot, '..', 'shared');
