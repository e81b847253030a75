// The object store of a host: the account in which all workers count, and the folder for what does not fit into memory. Made by the process
// that the workers live no longer than.
import { mkdtempSync, rmSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import { makeBlockAccount, os } from '../../kernels/host.ts';
import type { StoreBirth } from '../control/index.ts';

export interface HostStore {
  /** What workers need to take part. */
  readonly birth: StoreBirth;
  close(): void;
}

/** 30 % of the machine's memory. */
export function defaultStoreBytes(): number {
  return Math.floor(totalmem() * 0.3);
}

/** `bytes`: of shared memory for all workers together. `spillFolder`: where a folder of its own is made; default is `runFolder` itself. */
export function makeHostStore(bytes: number, runFolder: string, spillFolder?: string): HostStore {
  const account = makeBlockAccount(bytes);
  const start = os.processStartTime(process.pid) ?? '0';
  // Named like a folder of a run: the next start sweeps it if nobody removes it.
  const own = spillFolder === undefined ? undefined : mkdtempSync(join(spillFolder, `sinkflex-${process.pid}-${start}-`));
  return {
    birth: { account: account.address, spillFolder: own ?? runFolder },
    close() {
      account.release();
      if (own !== undefined) rmSync(own, { recursive: true, force: true });
    },
  };
}
