// Private memory of processes: what would be free if they were not there. Shared pages (code, shared memory) do not count.
import { readFileSync } from 'node:fs';

const MIB = 2 ** 20;

/** Bytes of all the processes together. Linux only. */
export function privateBytes(pids: readonly number[]): number {
  let kib = 0;
  for (const pid of pids) {
    for (const match of readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8').matchAll(/^Private_(?:Clean|Dirty):\s+(\d+) kB$/gm)) {
      kib += Number(match[1]);
    }
  }
  return kib * 1024;
}

export function residentBytes(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/status`, 'utf8').match(/^VmRSS:\s+(\d+) kB$/m)?.[1] ?? 0) * 1024;
}

export const mib = (bytes: number): number => Number((bytes / MIB).toPrecision(5));
