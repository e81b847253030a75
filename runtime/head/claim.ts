// One head a folder. Whoever wants to be it makes the next file `head.claim.<n>`, which only one can, and only when whoever made the last is
// dead: pids are compared with their start times, so that nobody waits for a stranger, and no file of a living head is ever removed.
import { linkSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { nanoid } from 'nanoid';
import { RuntimeFailure } from '../api/errors.ts';
import type { ProcessName } from './state.ts';

const PREFIX = 'head.claim.';

/** Of a folder that is otherwise empty: another head may be about to begin there. */
export function isClaim(file: string): boolean {
  return file.startsWith(PREFIX);
}

function claims(folder: string): { number: number; file: string; owner: ProcessName }[] {
  return readdirSync(folder)
    .filter((name) => /^head\.claim\.\d+$/.test(name))
    .flatMap((name) => {
      const file = join(folder, name);
      try {
        return [{ number: Number(name.slice(PREFIX.length)), file, owner: JSON.parse(readFileSync(file, 'utf8')) as ProcessName }];
      } catch {
        return []; // removed meanwhile
      }
    })
    .sort((a, b) => a.number - b.number);
}

/** Answers how to give it up. SINKFLEX_ALREADY_INITIALISED, which names the process, if another head has the folder. */
export function claimFolder(folder: string, self: ProcessName, runs: (pid: number, start: string) => boolean): () => void {
  const taken = ({ pid }: ProcessName): RuntimeFailure =>
    new RuntimeFailure(
      'SINKFLEX_ALREADY_INITIALISED',
      `process ${pid} is the head of ${folder}: use that one, end it first, or choose another folder`,
      { details: { pid, folder } },
    );
  const before = claims(folder);
  const living = before.find(({ owner }) => runs(owner.pid, owner.start));
  if (living !== undefined) throw taken(living.owner);
  const own = join(folder, `${PREFIX}${(before.at(-1)?.number ?? 0) + 1}`);
  // Whole as soon as it is there.
  const written = join(folder, `${PREFIX}${nanoid()}.new`);
  writeFileSync(written, JSON.stringify(self), { mode: 0o600, flag: 'wx' });
  try {
    linkSync(written, own);
  } catch (error) {
    const winner = claims(folder).find(({ file }) => file === own);
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST' || winner === undefined) throw error;
    throw taken(winner.owner);
  } finally {
    rmSync(written, { force: true });
  }
  // Who looked before an earlier head had cleared up, and wrote after it, finds another here; both may step back, never both go on.
  const other = claims(folder).find(({ file, owner }) => file !== own && runs(owner.pid, owner.start));
  if (other !== undefined) {
    rmSync(own, { force: true });
    throw taken(other.owner);
  }
  for (const { file } of before) rmSync(file, { force: true });
  return () => rmSync(own, { force: true });
}
