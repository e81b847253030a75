// Rivals in Python: found by SINKFLEX_PEERS, run as a child, their last line of output read as JSON.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { peerPython, sharedFolder } from '../doctor.ts';
import { CommandError } from '../errors.ts';

/** Why a rival cannot run here, or undefined. */
export function peerMissing(script: string): string | undefined {
  if (!existsSync(peerPython())) return `no Python at ${peerPython()} (SINKFLEX_PEERS)`;
  if (!existsSync(peerScript(script))) return `no ${script} in ${join(sharedFolder(), 'peers')} (SINKFLEX_SHARED)`;
  return undefined;
}

/** Runs `peers/<script>` and gives the JSON object that it prints last. */
export async function runPeer(
  script: string,
  args: readonly string[],
  o: { threads: number; timeoutMs: number },
): Promise<Record<string, unknown>> {
  const threads = String(o.threads);
  const child = spawn(peerPython(), [peerScript(script), ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: o.timeoutMs,
    env: { ...process.env, OMP_NUM_THREADS: threads, MKL_NUM_THREADS: threads, TOKENIZERS_PARALLELISM: 'false', HF_HUB_OFFLINE: '1' },
  });
  let [out, errors] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-2000);
  });
  const code = await new Promise<number | null>((done, failed) => child.once('close', done).once('error', failed));
  const last = out.trim().split('\n').at(-1) ?? '';
  if (code !== 0 || !last.startsWith('{')) {
    throw new CommandError(
      'SINKFLEX_BENCH_PEER',
      `${script} ended with ${code === null ? 'a time-out or signal' : `exit code ${code}`}: ${errors.trim().split('\n').slice(-3).join(' | ')}`,
    );
  }
  return JSON.parse(last) as Record<string, unknown>;
}

const peerScript = (script: string): string => join(sharedFolder(), 'peers', script);
