// Starts the thread that can tell what this worker process is executing.
import { mkdirSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import type { WorkerBirth } from '../control/index.ts';
import { STACK_WAIT_MS, stackFolder } from '../observe/stack-sample.ts';

const entry = new URL(`./stack-main${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url);

export function watchStack({ folder, token, worker }: WorkerBirth): void {
  const own = stackFolder(folder);
  try {
    mkdirSync(own, { recursive: true, mode: 0o700 });
  } catch {
    return; // The run is ending.
  }
  const thread = new Worker(entry, {
    workerData: { folder: own, token, worker, waitMs: STACK_WAIT_MS },
    execArgv: [],
    env: {}, // without the loaders of NODE_OPTIONS
    resourceLimits: { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 2, stackSizeMb: 1 },
    name: 'sinkflex-stack',
  });
  thread.on('error', () => {}); // then there are no stacks
  thread.unref();
}
