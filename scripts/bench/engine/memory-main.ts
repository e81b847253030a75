// One cell of the suite `memory`, ours: memory-main.js FOLDER TOKENS THREADS PART. One training step in a fresh process; prints a line of
// JSON. PART: none, or checkpointing.
import { readFileSync } from 'node:fs';
import { Engine, readModelConfig, WeightStore } from '../../../kernels/index.ts';
import { tokenIds } from './shapes.ts';

const [folder = '', count, threads, part] = process.argv.slice(2);
const tokens = Number(count);

function status(field: string): number {
  const kib = new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(readFileSync('/proc/self/status', 'utf8'))?.[1];
  return Number(kib) * 1024;
}

const store = WeightStore.create(readModelConfig(folder), { slots: 2 });
store.loadFolder(folder);
const engine = new Engine({ store, threads: Number(threads), maxSequences: 1, maxSequenceTokens: 64 });
const batch = { ids: tokenIds(tokens, 0, store.config.vocab_size), cuSeqlens: Int32Array.of(0, tokens) };
const dLogprobs = new Float32Array(tokens).fill(-1 / (tokens - 1));
dLogprobs[0] = 0;
const before = process.cpuUsage();
const start = performance.now();
const { logprobs } = await engine.forward(batch, { keep: true, checkpointing: part === 'checkpointing' });
await engine.backward({ dLogprobs });
await engine.optimizerStep({ lr: 1e-4, weightDecay: 0.1, lineage: 0, version: (store.current()?.version ?? 0) + 1 });
const seconds = (performance.now() - start) / 1000;
const { user, system } = process.cpuUsage(before);
const cpuSeconds = (user + system) / 1e6;
const loss = -logprobs.reduce((a, b) => a + b, 0) / (tokens - 1);
const { activationBytes, workspaceBytes, logitsBytes, gradientBytes, optimizerBytes } = engine.stats();
const counters = { activationBytes, workspaceBytes, logitsBytes, gradientBytes, optimizerBytes };
process.stdout.write(`${JSON.stringify({ peak: status('VmHWM'), seconds, cpuSeconds, loss, counters })}\n`);
await engine.dispose();
store.close();
