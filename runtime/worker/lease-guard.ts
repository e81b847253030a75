// A worker of a host that others may take for lost ends before they do: what it would do afterwards somebody else does.
import { writeSync } from 'node:fs';
import type { LeaseBirth } from '../control/index.ts';
import { LeaseCell } from '../node/lease-cell.ts';

/** A worker that nobody calls looks so often. */
const LOOK_MS = 250;
export const FENCED_EXIT = 75;

/** What is called before anything is done for others. */
export function guardLease({ address, epoch }: LeaseBirth): () => void {
  const cell = LeaseCell.open(address);
  const guard = (): void => {
    if (cell.leftMs() > 0 && cell.epoch === epoch) return;
    writeSync(2, '[sinkflex] this host was cut off from the head for as long as its lease is: this worker ends\n');
    process.exit(FENCED_EXIT);
  };
  setInterval(guard, LOOK_MS).unref();
  return guard;
}
