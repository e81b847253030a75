/** The task source that the settings of a run describe; reads and checks its files. */
import { entry } from '../environment/index.ts';
import { readPlainRow, readTaskFiles, TaskSource } from '../tasks/index.ts';
import type { TrainingConfig } from './config.ts';
import { environmentOptions } from './settings.ts';

export async function openTaskSource(c: TrainingConfig): Promise<TaskSource> {
  const { readTask, validationSeeds } = entry(c.env.name);
  const read = readTask ?? readPlainRow;
  const { sampler, train_files: train, val_files: heldOut, shuffle } = c.data;
  const { adaptive_n: adaptive } = c.rollout;
  return new TaskSource({
    sampler: sampler.class_name,
    train: train === null ? undefined : await readTaskFiles(train, read),
    heldOut: heldOut === null ? undefined : await readTaskFiles(heldOut, read),
    heldOutSeeds: validationSeeds?.(environmentOptions(c)),
    levels: sampler.levels,
    seed: c.seed,
    shuffle,
    promoteAt: sampler.promote_at,
    minGroups: sampler.min_groups,
    review: sampler.review,
    band: sampler.band,
    explore: sampler.explore,
    decay: sampler.decay,
    samples: c.rollout.n,
    adaptive: adaptive.enable ? { least: Math.min(adaptive.min, c.rollout.n), target: adaptive.target } : undefined,
  });
}
