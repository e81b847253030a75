// What this machine has for placement, if nobody says otherwise.
import { readdirSync } from 'node:fs';
import { availableParallelism, freemem } from 'node:os';

export function nodeCapacity(): { cpus: number; gpus: number; memory: number } {
  const limit = process.constrainedMemory();
  // 0: no limit known.
  const memory = limit > 0 ? Math.min(limit, freemem()) : freemem();
  return { cpus: availableParallelism(), gpus: gpus(), memory: Math.floor(memory) };
}

function gpus(): number {
  try {
    return readdirSync('/proc/driver/nvidia/gpus').length;
  } catch {
    return 0;
  }
}
