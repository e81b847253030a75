// Ray in one process of its own for all rows of a run: started when the first row needs it, asked turn by turn, ended after the last row.
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { peerPython } from '../../doctor.ts';
import { CommandError } from '../../errors.ts';
import { packageRoot } from '../../package-root.ts';
import type { SuiteContext } from '../rows.ts';

const SCRIPT = join(packageRoot, 'scripts', 'bench', 'peers', 'ray_rows.py');
const ANSWER_MS = 60_000;

export interface Ray {
  /** One turn of an operation of ray_rows.py. */
  ask<T = number>(op: string, args?: Record<string, number>): Promise<T>;
}

let running: Promise<Ray> | undefined;

/** Undefined without --peers; why not, where it cannot run here. */
export async function rayOf(context: SuiteContext): Promise<Ray | string | undefined> {
  if (!context.peers) return undefined;
  if (!existsSync(peerPython())) return `no Python at ${peerPython()} (SINKFLEX_PEERS)`;
  if (!existsSync(SCRIPT)) return `no ${SCRIPT}: peers are part of the repository, not of the package`;
  running ??= start(context);
  try {
    return await running;
  } catch (error) {
    return `Ray does not start: ${(error as Error).message}`;
  }
}

async function start(context: SuiteContext): Promise<Ray> {
  context.note('starting Ray');
  const child = spawn(peerPython(), [SCRIPT], { stdio: ['pipe', 'pipe', 'pipe'] });
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-2000);
  });
  child.stdin.on('error', () => {}); // its end is noticed by its output
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const answer = async (): Promise<unknown> => {
    let late: NodeJS.Timeout | undefined;
    const timeout = new Promise<never>((_, failed) => {
      late = setTimeout(() => failed(new CommandError('SINKFLEX_BENCH_PEER', `no answer within ${ANSWER_MS / 1000} s`)), ANSWER_MS);
    });
    try {
      const line = await Promise.race([lines.next(), timeout]);
      if (line.done) throw new CommandError('SINKFLEX_BENCH_PEER', `ray_rows.py ended: ${errors.trim().split('\n').slice(-3).join(' | ')}`);
      const reply = JSON.parse(line.value) as { value?: unknown; error?: string };
      if (reply.error !== undefined) throw new CommandError('SINKFLEX_BENCH_PEER', `Ray: ${reply.error}`);
      return reply.value;
    } finally {
      clearTimeout(late);
    }
  };
  context.atEnd(() => end(child));
  await answer(); // it says that it has started
  return {
    ask: async <T>(op: string, args: Record<string, number> = {}) => {
      child.stdin.write(`${JSON.stringify({ op, ...args })}\n`);
      return (await answer()) as T;
    },
  };
}

async function end(child: ChildProcess): Promise<void> {
  running = undefined;
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((done) => child.once('exit', done));
  const late = setTimeout(() => child.kill('SIGKILL'), 15_000);
  child.stdin?.end();
  await gone;
  clearTimeout(late);
}

/** Ray lets go of what an operation kept for its next turn. */
export async function endRay(context: SuiteContext, op: string): Promise<void> {
  const ray = await rayOf(context);
  if (typeof ray === 'object') await ray.ask(op);
}
