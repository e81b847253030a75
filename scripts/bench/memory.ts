// Suite `memory`: peak memory and time of one training step of a small gpt_oss model at 1,024 to 32,768 tokens, ours beside transformers'
// eager one, each cell in a process of its own whose resident memory is watched; then parts taken away or added one at a time. With --peers,
// rewrites the figures of docs/memory.md and its plot. SINKFLEX_BENCH_CELLS names a file of JSON lines that cells are kept in: what stands
// there is not measured again, so that the table can be made in pieces.
import { spawn } from 'node:child_process';
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseModelConfig, WeightStore } from '../../kernels/index.ts';
import { peerPython } from '../doctor.ts';
import { CommandError } from '../errors.ts';
import { packageRoot } from '../package-root.ts';
import { MODELS, THREADS } from './engine/shapes.ts';
import { type Cell, PARTS, writePage } from './memory-page.ts';
import { judged, type Suite, type SuiteContext } from './rows.ts';

const TOKENS = [1024, 2048, 4096, 8192, 16_384, 32_768] as const;
/** Of the parts alone: the longest that eager takes, too. */
const PART_TOKENS = 4096;
const LIMIT_BYTES = 16 * 2 ** 30;
/** Time on the processor: the machine may have other work. */
const CELL_CPU_SECONDS = 300;
/** The processor may have much other work. */
const CELL_MS = 1_800_000;
const WORD_MS = 60_000;
const OURS = fileURLToPath(new URL('./engine/memory-main.js', import.meta.url));
const THEIRS = join(packageRoot, 'scripts', 'bench', 'peers', 'memory_row.py');

async function measure(context: SuiteContext): Promise<void> {
  const peers = context.peers && existsSync(peerPython()) && existsSync(THEIRS);
  if (context.peers && !peers)
    context.report({ suite: 'memory', row: 'memory.eager', skipped: `no Python at ${peerPython()} (SINKFLEX_PEERS)` });
  const folder = mkdtempSync(join(tmpdir(), 'sinkflex-bench-memory-'));
  const config = { ...MODELS.moe, max_position_embeddings: 32_768 };
  const kept = process.env.SINKFLEX_BENCH_CELLS;
  const cells: Cell[] =
    kept === undefined || !existsSync(kept)
      ? []
      : readFileSync(kept, 'utf8')
          .split('\n')
          .filter(Boolean)
          .map((line) => JSON.parse(line) as Cell);
  const cell = async (side: Cell['side'], part: string, tokens: number): Promise<Cell> => {
    const known = cells.find((c) => c.side === side && c.part === part && c.tokens === tokens);
    if (known !== undefined) return known;
    context.note(`${side}, ${part}, ${tokens} tokens`);
    const command = side === 'ours' ? process.execPath : peerPython();
    const result = await child(command, [side === 'ours' ? OURS : THEIRS, folder, String(tokens), String(THREADS), part], context.note);
    const made: Cell = { side, part, tokens, ...result };
    cells.push(made);
    if (kept !== undefined) appendFileSync(kept, `${JSON.stringify(made)}\n`);
    return made;
  };
  try {
    const store = WeightStore.create(parseModelConfig(config));
    store.initialise(1);
    store.saveFolder(folder);
    store.close();
    // A longer step than one that eager could not take is not tried.
    let eagerEnded = !peers;
    for (const tokens of context.quick ? TOKENS.slice(0, 3) : TOKENS) {
      const ours = await cell('ours', 'none', tokens);
      const eager = eagerEnded ? undefined : await cell('eager', 'none', tokens);
      if (eager?.memory !== undefined) eagerEnded = true;
      report(context, `memory.${tokens}`, ours, eager, tokens === 4096);
    }
    report(context, 'memory.checkpointing', await cell('ours', 'checkpointing', PART_TOKENS));
    if (!peers) return;
    for (const parts of [...PARTS.map((part) => [part]), ...PARTS.map((part) => PARTS.filter((p) => p !== part)), PARTS])
      report(context, `memory.eager+${parts.join('+')}`, await cell('eager', parts.join('+'), PART_TOKENS));
    if (!context.quick) writePage(cells, THREADS);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function report(context: SuiteContext, row: string, ours: Cell, eager?: Cell, bar = false): void {
  if (ours.peak === undefined) {
    context.report({ suite: 'memory', row, skipped: ours.memory ?? 'not measured' });
    return;
  }
  const measured = {
    suite: 'memory',
    row,
    unit: 'MiB',
    ours: ours.peak / 2 ** 20,
    ...(eager?.peak === undefined ? {} : { peer: eager.peak / 2 ** 20, ratio: eager.peak / ours.peak }),
    details: {
      seconds: ours.seconds!,
      cpuSeconds: ours.cpuSeconds!,
      loss: ours.loss!,
      ...(eager === undefined
        ? {}
        : eager.peak === undefined
          ? { eager: eager.memory ?? 'not measured' }
          : { eagerSeconds: eager.seconds!, eagerCpuSeconds: eager.cpuSeconds!, eagerLoss: eager.loss! }),
    },
  };
  // A saving of 19.7%.
  context.report(bar ? judged(measured, { ratio: 1.246 }) : measured);
}

/** A number of /proc/<pid>/status in bytes; 0 once the process is gone. */
function statusOf(pid: number, field: string): number {
  try {
    return 1024 * Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0);
  } catch {
    return 0;
  }
}

/** Processor seconds of a process and its threads; 0 once it is gone. */
function processorSeconds(pid: number): number {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /, '')
      .split(' ');
    return (Number(fields[11]) + Number(fields[12])) / 100;
  } catch {
    return 0;
  }
}

/** The last line of its output. Both sides are watched alike: resident memory every 20 ms, and the time on the processor. */
function child(command: string, args: readonly string[], note: (text: string) => void): Promise<Omit<Cell, 'side' | 'part' | 'tokens'>> {
  return new Promise((resolve, reject) => {
    const threads = String(THREADS);
    const running = spawn(command, args, {
      env: { ...process.env, OMP_NUM_THREADS: threads, MKL_NUM_THREADS: threads, HF_HUB_OFFLINE: '1' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let out = '';
    let errors = '';
    let passed: string | undefined;
    const started = performance.now();
    const watch = setInterval(() => {
      const pid = running.pid ?? 0;
      if (statusOf(pid, 'VmHWM') > LIMIT_BYTES) passed = `more than ${LIMIT_BYTES / 2 ** 30} GiB`;
      else if (processorSeconds(pid) > CELL_CPU_SECONDS) passed = `more than ${CELL_CPU_SECONDS} s of processor time`;
      else if (performance.now() - started > CELL_MS) passed = `more than ${CELL_MS / 60_000} minutes`;
      else return;
      running.kill('SIGKILL');
    }, 20);
    const word = setInterval(() => {
      const pid = running.pid ?? 0;
      note(`${Math.round(processorSeconds(pid))} s of processor time, ${Math.round(statusOf(pid, 'VmHWM') / 2 ** 20)} MiB`);
    }, WORD_MS);
    const settled = (): void => {
      clearInterval(watch);
      clearInterval(word);
    };
    running.stdout.on('data', (d) => {
      out += d;
    });
    running.stderr.on('data', (d) => {
      errors += d;
    });
    running.on('error', (error) => {
      settled();
      reject(error);
    });
    running.on('close', (code, signal) => {
      settled();
      if (passed !== undefined) return resolve({ memory: passed });
      const line = out.trim().split('\n').at(-1);
      if (code === 0 && line) return resolve(JSON.parse(line));
      if (signal === 'SIGKILL') return resolve({ memory: 'ended by the machine' });
      reject(new CommandError('SINKFLEX_BENCH_PEER', `${args.join(' ')} ended with ${signal ?? code}: ${errors.slice(-600)}`));
    });
  });
}

export const memorySuite: Suite = { memory: measure };
