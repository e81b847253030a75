// A rival that is kept in a process of its own for all rows of a run: it says when it has started, is then asked turn by turn (a line of
// JSON in, a line of JSON out), and ends after the last row.
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { CommandError } from '../errors.ts';
import type { SuiteContext } from './rows.ts';

export interface Peer {
  readonly name: string;
  /** One turn of an operation of the peer's script. */
  ask<T = number>(op: string, args?: Record<string, number | string>): Promise<T>;
}

export interface PeerCommand {
  command: string;
  args: readonly string[];
  env?: Record<string, string>;
  /** Default a minute. */
  answerMs?: number;
}

export async function startPeer(name: string, c: PeerCommand, context: SuiteContext): Promise<Peer> {
  const child = spawn(c.command, c.args, { stdio: ['pipe', 'pipe', 'pipe'], env: { ...process.env, ...c.env } });
  const started = new Promise<void>((done, failed) => child.once('spawn', done).once('error', failed));
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-2000);
  });
  child.stdin.on('error', () => {}); // its end is noticed by its output
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const limit = c.answerMs ?? 60_000;
  const answer = async (): Promise<unknown> => {
    let late: NodeJS.Timeout | undefined;
    const timeout = new Promise<never>((_, failed) => {
      late = setTimeout(() => failed(new CommandError('SINKFLEX_BENCH_PEER', `${name}: no answer within ${limit / 1000} s`)), limit);
    });
    try {
      const line = await Promise.race([lines.next(), timeout]);
      if (line.done) {
        throw new CommandError('SINKFLEX_BENCH_PEER', `${name} ended: ${errors.trim().split('\n').slice(-3).join(' | ')}`);
      }
      const reply = JSON.parse(line.value) as { value?: unknown; error?: string };
      if (reply.error !== undefined) throw new CommandError('SINKFLEX_BENCH_PEER', `${name}: ${reply.error}`);
      return reply.value;
    } finally {
      clearTimeout(late);
    }
  };
  await started;
  context.atEnd(() => end(child));
  await answer();
  return {
    name,
    ask: async <T>(op: string, args: Record<string, number | string> = {}) => {
      child.stdin.write(`${JSON.stringify({ op, ...args })}\n`);
      return (await answer()) as T;
    },
  };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((done) => child.once('exit', done));
  const late = setTimeout(() => child.kill('SIGKILL'), 15_000);
  child.stdin?.end();
  await gone;
  clearTimeout(late);
}
