/** Whether the machine has room for a run: memory for its weights and its trainer, disk for its checkpoints. Asked before anything starts. */
import { existsSync, readdirSync, statfsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { type ModelConfig, WeightStore } from '../../kernels/index.ts';
import type { TrainingConfig } from './config.ts';
import { checkRunMemory, runMemory, sizeText as size } from './memory.ts';
import { adaptersOf } from './model.ts';
import { RunFolderError } from './run-folder-io.ts';

export interface Room {
  /** Bytes free in memory, and where the run folder would be; by default as the machine says. */
  memory?: number;
  disk?: number;
}

/** SINKFLEX_MEMORY_SHORT or SINKFLEX_DISK_FULL where a run of this model could only fail later. Writes nothing. */
export function checkRoom(config: TrainingConfig, model: ModelConfig, room: Room = {}): void {
  const { dtype } = config.model;
  const shape = ['hidden_size', 'intermediate_size', 'num_hidden_layers', 'num_local_experts'] as const;
  const what = `a model of ${Math.round(WeightStore.imageBytes(model) / 4e6)} million parameters (${shape.map((key) => `${key} ${model[key]}`).join(', ')})`;
  checkRunMemory(config, model, what, room.memory);
  const path = config.resume ?? config.output ?? 'runs';
  const checkpoints = checkpointsToCome(config);
  const lora = adaptersOf(config, model);
  // A checkpoint holds the weights, or the adapters, and the moments.
  const saved = WeightStore.imageBytes(model, { lora, dtype });
  const disk = checkpoints * (saved + runMemory(config, model).optimizer) + (config.resume === null ? saved : 0);
  const free = room.disk ?? freeBytes(path);
  if (disk > free) {
    throw new RunFolderError(
      'SINKFLEX_DISK_FULL',
      `${what} needs ${size(disk)} for ${checkpoints} checkpoints and the reference, ${size(free)} are free where ${path} is; free some, ` +
        'lower trainer.max_ckpt_to_keep or the size of the model, or choose another disk with --output',
      { path, needed: disk, free },
    );
  }
}

/** At most those kept and the one being written: fewer in a short run, and those of an earlier process are on the disk already. */
function checkpointsToCome(config: TrainingConfig): number {
  const { save_freq: every, total_training_steps: steps, max_ckpt_to_keep: keep } = config.trainer;
  const ever = 2 + (every > 0 ? Math.floor(steps / every) : 0);
  const most = Math.min(keep + 1, ever);
  if (config.resume === null) return most;
  const folder = join(resolve(config.resume), 'checkpoints');
  const there = existsSync(folder) ? readdirSync(folder).length : 0;
  return Math.max(1, most - there);
}

function freeBytes(path: string): number {
  let existing = resolve(path);
  while (!existsSync(existing)) existing = dirname(existing);
  const { bavail, bsize } = statfsSync(existing);
  return bavail * bsize;
}
