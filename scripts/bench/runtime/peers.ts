// Rivals that are kept in a process of their own for all rows of a run: started when the first row needs them, asked turn by turn, ended
// after the last row.
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { peerPython } from '../../doctor.ts';
import { CommandError } from '../../errors.ts';
import { packageRoot } from '../../package-root.ts';
import type { SuiteContext } from '../rows.ts';

const FOLDER = join(packageRoot, 'scripts', 'bench', 'peers');
const ANSWER_MS = 60_000;

export interface Peer {
  readonly name: string;
  /** One turn of an operation of the peer's script. */
  ask<T = number>(op: string, args?: Record<string, number>): Promise<T>;
}

/** Processes of gloo's group. */
export const GLOO_MEMBERS = 2;
const PEERS = {
  Ray: { script: 'ray_rows.py', args: [] },
  gloo: { script: 'gloo_rows.py', args: [String(GLOO_MEMBERS)] },
};
export type PeerName = keyof typeof PEERS;

const running = new Map<PeerName, Promise<Peer>>();

/** Undefined without --peers; why not, where it cannot run here. */
export async function peerNamed(name: PeerName, context: SuiteContext): Promise<Peer | string | undefined> {
  if (!context.peers) return undefined;
  const script = join(FOLDER, PEERS[name].script);
  if (!existsSync(peerPython())) return `no Python at ${peerPython()} (SINKFLEX_PEERS)`;
  if (!existsSync(script)) return `no ${script}: peers are part of the repository, not of the package`;
  let peer = running.get(name);
  if (peer === undefined) {
    context.note(`starting ${name}`);
    peer = start(name, script, context);
    running.set(name, peer);
  }
  try {
    return await peer;
  } catch (error) {
    return `${name} does not start: ${(error as Error).message}`;
  }
}

async function start(name: PeerName, script: string, context: SuiteContext): Promise<Peer> {
  const child = spawn(peerPython(), [script, ...PEERS[name].args], { stdio: ['pipe', 'pipe', 'pipe'] });
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-2000);
  });
  child.stdin.on('error', () => {}); // its end is noticed by its output
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const answer = async (): Promise<unknown> => {
    let late: NodeJS.Timeout | undefined;
    const timeout = new Promise<never>((_, failed) => {
      late = setTimeout(
        () => failed(new CommandError('SINKFLEX_BENCH_PEER', `${name}: no answer within ${ANSWER_MS / 1000} s`)),
        ANSWER_MS,
      );
    });
    try {
      const line = await Promise.race([lines.next(), timeout]);
      if (line.done) {
        throw new CommandError('SINKFLEX_BENCH_PEER', `${PEERS[name].script} ended: ${errors.trim().split('\n').slice(-3).join(' | ')}`);
      }
      const reply = JSON.parse(line.value) as { value?: unknown; error?: string };
      if (reply.error !== undefined) throw new CommandError('SINKFLEX_BENCH_PEER', `${name}: ${reply.error}`);
      return reply.value;
    } finally {
      clearTimeout(late);
    }
  };
  context.atEnd(() => end(name, child));
  await answer(); // it says that it has started
  return {
    name,
    ask: async <T>(op: string, args: Record<string, number> = {}) => {
      child.stdin.write(`${JSON.stringify({ op, ...args })}\n`);
      return (await answer()) as T;
    },
  };
}

async function end(name: PeerName, child: ChildProcess): Promise<void> {
  running.delete(name);
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((done) => child.once('exit', done));
  const late = setTimeout(() => child.kill('SIGKILL'), 15_000);
  child.stdin?.end();
  await gone;
  clearTimeout(late);
}

export const rayOf = (context: SuiteContext): Promise<Peer | string | undefined> => peerNamed('Ray', context);

/** Ray lets go of what an operation kept for its next turn. */
export async function endRay(context: SuiteContext, op: string): Promise<void> {
  const ray = await rayOf(context);
  if (typeof ray === 'object') await ray.ask(op);
}
