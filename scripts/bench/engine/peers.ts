// The rivals of the suite `engine`: torch and transformers in one Python process, llama.cpp in one Node process. llama.cpp comes with
// node-llama-cpp, which is installed outside the project, into a folder of the user's cache.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { peerPython } from '../../doctor.ts';
import { CommandError } from '../../errors.ts';
import { packageRoot } from '../../package-root.ts';
import { type Peer, startPeer } from '../kept-peer.ts';
import type { SuiteContext } from '../rows.ts';
import { type Model, THREADS } from './shapes.ts';

const FOLDER = join(packageRoot, 'scripts', 'bench', 'peers');
const LLAMA_MAIN = fileURLToPath(new URL('./llama-main.js', import.meta.url));
const NODE_LLAMA_CPP = '3.22.1';
/** torch.compile takes minutes for the larger model. */
const ANSWER_MS = 420_000;

export type PeerName = 'torch' | 'llama.cpp';
const running = new Map<PeerName, Promise<Peer>>();

/** Undefined without --peers; why not, where it cannot run here. */
export async function peerNamed(name: PeerName, context: SuiteContext): Promise<Peer | string | undefined> {
  if (!context.peers) return undefined;
  if (!existsSync(peerPython())) return `no Python at ${peerPython()} (SINKFLEX_PEERS)`;
  if (!existsSync(FOLDER)) return `no ${FOLDER}: peers are part of the repository, not of the package`;
  let peer = running.get(name);
  if (peer === undefined) {
    context.note(`starting ${name}`);
    context.atEnd(async () => {
      running.delete(name);
    });
    peer = name === 'torch' ? startTorch(context) : startLlama(context);
    running.set(name, peer);
  }
  try {
    return await peer;
  } catch (error) {
    return `${name} does not start: ${(error as Error).message}`;
  }
}

function startTorch(context: SuiteContext): Promise<Peer> {
  const threads = String(THREADS);
  return startPeer(
    'torch',
    {
      command: peerPython(),
      args: [join(FOLDER, 'engine_rows.py'), threads],
      env: { OMP_NUM_THREADS: threads, MKL_NUM_THREADS: threads, TOKENIZERS_PARALLELISM: 'false', HF_HUB_OFFLINE: '1' },
      answerMs: ANSWER_MS,
    },
    context,
  );
}

async function startLlama(context: SuiteContext): Promise<Peer> {
  return startPeer(
    'llama.cpp',
    { command: process.execPath, args: [LLAMA_MAIN, installLlama(context), String(THREADS)], answerMs: ANSWER_MS },
    context,
  );
}

/** Path of node-llama-cpp's entry; installs it from the registry the first time. */
function installLlama(context: SuiteContext): string {
  const cache = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
  const folder = join(cache, 'sinkflex-peers-node', `node-llama-cpp-${NODE_LLAMA_CPP}`);
  const entry = join(folder, 'node_modules', 'node-llama-cpp', 'dist', 'index.js');
  if (existsSync(entry)) return entry;
  context.note(`installing node-llama-cpp ${NODE_LLAMA_CPP} into ${folder}`);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), '{"name":"sinkflex-bench-peers","private":true}\n');
  const platform = { darwin: 'mac', win32: 'win' }[process.platform as string] ?? process.platform;
  const binary = `@node-llama-cpp/${platform}-${process.arch}${platform === 'mac' && process.arch === 'arm64' ? '-metal' : ''}`;
  const packages = [`node-llama-cpp@${NODE_LLAMA_CPP}`, `${binary}@${NODE_LLAMA_CPP}`];
  const done = spawnSync('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts', '--omit=optional', ...packages], {
    cwd: folder,
    encoding: 'utf8',
    timeout: 240_000,
  });
  if (done.status !== 0 || !existsSync(entry)) {
    const why = (done.error?.message ?? done.stderr).trim().split('\n').slice(-2).join(' | ');
    throw new CommandError('SINKFLEX_BENCH_PEER', `npm could not install node-llama-cpp into ${folder}: ${why}`);
  }
  return entry;
}

/** The model's weights as GGUF, float32, written with the gguf package of the rivals' Python. */
export function ggufOf(model: Model): string {
  const file = join(model.folder, 'model.gguf');
  if (existsSync(file)) return file;
  const done = spawnSync(peerPython(), [join(FOLDER, 'gguf_qwen2.py'), model.folder, file], { encoding: 'utf8', timeout: 120_000 });
  if (done.status !== 0) {
    throw new CommandError('SINKFLEX_BENCH_PEER', `${dirname(file)}: no GGUF: ${done.stderr.trim().split('\n').slice(-2).join(' | ')}`);
  }
  return file;
}
