// The folder of one run, where its workers' sockets are: only this user can enter it. Its name says which process made it, so that the
// next start can remove what a killed run left behind.
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { os } from '../../kernels/host.ts';
import { runFolderBase } from './folder-base.ts';
import { sweepMemoryGroups } from './memory-limit.ts';

const PREFIX = 'sinkflex-';
const pattern = /^sinkflex-(\d+)-([0-9A-Za-z.]+)-[0-9A-Za-z]{6}$/;

/** Made with mode 0700. */
export function makeRunFolder(): string {
  const start = os.processStartTime(process.pid) ?? '0';
  return mkdtempSync(join(runFolderBase(), `${PREFIX}${process.pid}-${start}-`));
}

/** Removes what runs whose process is gone have left: their folders and memory control groups. Answers the names of the folders. */
export function sweepRunFolders(): string[] {
  sweepMemoryGroups();
  return sweepFolder(runFolderBase());
}

/** The folders of such runs in this one. */
export function sweepFolder(folder: string): string[] {
  const swept: string[] = [];
  for (const name of readdirSync(folder)) {
    const match = pattern.exec(name);
    if (match === null) continue;
    if ((os.processStartTime(Number(match[1])) ?? '') === match[2]) continue;
    try {
      if (statSync(join(folder, name)).uid !== process.getuid?.()) continue;
      rmSync(join(folder, name), { recursive: true, force: true });
      swept.push(name);
    } catch {
      // Another start is sweeping it.
    }
  }
  return swept;
}
