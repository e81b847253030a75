/** Fixed policies on the held-out tasks, scored in slices so that the loop stays free. */
import { entry } from '../environment/index.ts';
import type { TaskSource } from '../tasks/index.ts';
import type { TrainingConfig } from './config.ts';
import type { Baseline } from './progress.ts';
import { environmentOptions } from './settings.ts';

/** Longest slice of work between two turns of the event loop, ms. */
const slice = 10;

export async function scoreBaselines(config: TrainingConfig, source: TaskSource, signal: AbortSignal): Promise<Baseline[]> {
  const options = environmentOptions(config);
  const out: Baseline[] = [];
  for (const [name, score] of Object.entries(entry(config.env.name).baselines ?? {})) {
    let sum = 0;
    let began = performance.now();
    for (let i = 0; i < config.data.val_size; i++) {
      const task = source.heldOut(i);
      sum += score(task.seed, { ...options, ...task.options });
      if (performance.now() - began > slice) {
        await new Promise((next) => setImmediate(next));
        signal.throwIfAborted();
        began = performance.now();
      }
    }
    out.push({ name: name.replaceAll(' ', '-'), score: sum / config.data.val_size });
  }
  return out;
}
