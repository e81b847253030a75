/** One process at a time writes a file: a lock file that names its holder. That of a process that is gone is taken over. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { ActorsError } from '../../errors.ts';

const POLL_MS = 100;

/** Waits until `path` is ours; answers how to give it back. */
export async function lock(path: string, signal?: AbortSignal): Promise<() => void> {
  for (;;) {
    try {
      writeFileSync(path, `${process.pid}`, { flag: 'wx' });
      return () => rmSync(path, { force: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    if (signal?.aborted) throw new ActorsError('SINKFLEX_ABORTED', `stopped while another process held ${path}`);
    if (!lives(path)) rmSync(path, { force: true });
    else await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

function lives(path: string): boolean {
  try {
    const pid = Number(readFileSync(path, 'utf8'));
    // A holder that has not written its number yet lives.
    if (!(pid > 0)) return true;
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
