// Measurements of memory run in a process of their own, so that nothing of the bench or of earlier rows is counted.
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { CommandError } from '../../errors.ts';

const MAIN = fileURLToPath(new URL('./alone-main.js', import.meta.url));

/** Calls an exported function of `module` (import.meta.url of it) in a fresh process; arguments and answer are plain data. */
export async function alone<T>(module: string, name: string, args: Record<string, unknown>, timeoutMs: number): Promise<T> {
  const child = fork(MAIN, [module, name, JSON.stringify(args)], {
    execArgv: ['--expose-gc'],
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
  });
  let errors = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-2000);
  });
  let answer: { value: T } | undefined;
  child.on('message', (message) => {
    answer = message as { value: T };
  });
  const [code, signal] = await new Promise<[number | null, string | null]>((done) => child.once('close', (...end) => done(end)));
  if (answer === undefined)
    throw new CommandError(
      'SINKFLEX_BENCH_FAILED',
      `${name} ended with ${signal ?? `exit code ${code}`}: ${errors.trim().split('\n').slice(-3).join(' | ')}`,
    );
  return answer.value;
}
