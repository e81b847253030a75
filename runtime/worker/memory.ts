// How a worker process makes itself known to the kernel's memory accounting.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Of a scale to 1000, on top of its share of the machine's memory. */
const FIRST_TO_GO = 300;
const path = '/proc/self/oom_score_adj';

/** When the machine has no memory left, the kernel ends workers and what they started before it ends their agent. */
export function preferAsVictim(): void {
  try {
    if (Number(readFileSync(path, 'latin1')) < FIRST_TO_GO) writeFileSync(path, String(FIRST_TO_GO));
  } catch {
    // Not this kernel, or not this container: it chooses without our advice.
  }
}

/** What it starts later is in the group, too. Without it the monitor still watches this process. */
export function enterMemoryGroup(group: string): void {
  try {
    writeFileSync(join(group, 'cgroup.procs'), String(process.pid));
  } catch (error) {
    process.stderr.write(`[sinkflex] the memory control group ${group} cannot be entered: ${(error as Error).message}\n`);
  }
}
