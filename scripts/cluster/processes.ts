// Commands of this program as processes of their own. They end in order when this process does, however it ends: their standard input closes.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { CommandError } from '../errors.ts';

/** The command line, as a file. */
export const ENTRY = fileURLToPath(new URL(`../sinkflex${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url));
/** For what was told to end. */
const END_MS = 5000;

export interface Running {
  readonly child: ChildProcess;
  /** Exit code or signal. */
  readonly ended: Promise<string>;
  /** Its first line of output, as JSON. Rejects when it ends before it has written one. */
  readonly said: Promise<Record<string, unknown>>;
  /** Closes its input, waits, and then makes sure. */
  stop(): Promise<void>;
}

/** `sinkflex <words>` on this machine. `env`: on top of that of this process. */
export function runHere(words: readonly string[], env: Record<string, string> = {}): Running {
  return runCommand(process.execPath, [...process.execArgv, ENTRY, ...words], env);
}

export function runCommand(program: string, words: readonly string[], env: Record<string, string> = {}): Running {
  // A group of its own: Ctrl-C is for this process, which ends it when its time has come.
  const child = spawn(program, words, { stdio: ['pipe', 'pipe', 'inherit'], detached: true, env: { ...process.env, ...env } });
  child.stdin!.on('error', () => {}); // it has ended
  const ended = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => resolve(signal ?? `exit code ${code}`));
  });
  const said = firstLine(child, ended, [program, ...words].join(' '));
  said.catch(() => {});
  return {
    child,
    ended,
    said,
    async stop() {
      child.stdin!.end();
      const late = setTimeout(() => child.kill('SIGKILL'), END_MS);
      await ended;
      clearTimeout(late);
    },
  };
}

/**
 * A program of the machine that a launcher needs, from its start to its end. `input`: for its standard input, which is closed after it.
 * Rejects when it is not installed, when `signal` says so, and with SINKFLEX_LAUNCH when it takes longer than timeoutMs.
 */
export async function runToEnd(
  program: string,
  words: readonly string[],
  o: { launcher: string; input?: string | NodeJS.ReadableStream | undefined; signal?: AbortSignal; timeoutMs?: number },
): Promise<{ code: number | null; out: string; errors: string }> {
  const late = o.timeoutMs === undefined ? [] : [AbortSignal.timeout(o.timeoutMs)];
  const signal = AbortSignal.any([...(o.signal === undefined ? [] : [o.signal]), ...late]);
  const child = spawn(program, words, { stdio: ['pipe', 'pipe', 'pipe'], signal });
  child.stdin.on('error', () => {}); // its exit code says why
  if (o.input === undefined || typeof o.input === 'string') child.stdin.end(o.input);
  else o.input.pipe(child.stdin);
  const closed = new Promise<number | null>((resolve, reject) => {
    child.once('error', (cause: NodeJS.ErrnoException) => {
      if (cause.code === 'ENOENT')
        reject(
          new CommandError('SINKFLEX_USAGE', `cluster.launcher=${o.launcher} needs the program ${program}, which is not installed`, {
            cause,
          }),
        );
      else if (late.some(({ aborted }) => aborted))
        reject(new CommandError('SINKFLEX_LAUNCH', `${program} ${words.join(' ')} did not end within ${o.timeoutMs! / 1000} s`, { cause }));
      else reject(cause);
    });
    child.once('close', resolve);
  });
  const [code, out, errors] = await Promise.all([closed, text(child.stdout), text(child.stderr)]);
  return { code, out, errors };
}

async function firstLine(child: ChildProcess, ended: Promise<string>, command: string): Promise<Record<string, unknown>> {
  let text = '';
  child.stdout!.setEncoding('utf8').on('data', (chunk: string) => {
    if (!text.includes('\n')) text += chunk;
  });
  const over = ended.then((how) => {
    throw new CommandError('SINKFLEX_LAUNCH', `${command} ended (${how}) before it was there; what it said stands above`);
  });
  over.catch(() => {});
  while (!text.includes('\n')) await Promise.race([once(child.stdout!, 'data'), over]);
  return JSON.parse(text.slice(0, text.indexOf('\n'))) as Record<string, unknown>;
}

/** Starts all agents and waits until each has said that it is there. If one cannot be started none is left. */
export async function startTogether<A extends { node: string }>(
  agents: readonly A[],
  start: (agent: A) => Running | Promise<Running>,
): Promise<ReturnType<typeof together>> {
  const started: { name: string; running: Running }[] = [];
  let failed = false;
  const starting = agents.map(async (agent) => {
    const running = await start(agent);
    started.push({ name: agent.node, running });
    if (failed) await running.stop();
    else await running.said;
  });
  try {
    await Promise.all(starting);
  } catch (error) {
    failed = true;
    await together(started).stop();
    await Promise.allSettled(starting);
    throw error;
  }
  return together(started);
}

/** Of several agents that are children of this process. */
export function together(agents: readonly { name: string; running: Running }[]): {
  lost: Promise<string>;
  stop(): Promise<void>;
} {
  return {
    lost: Promise.race(agents.map(({ name, running }) => running.ended.then((how) => `the agent ${name} ended: ${how}`))),
    stop: async () => void (await Promise.all(agents.map(({ running }) => running.stop()))),
  };
}
