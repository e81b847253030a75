/** Whether the machine has room for a run: memory for its weights and its trainer, disk for its checkpoints. Asked before anything starts. */
import { existsSync, readdirSync, statfsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { type ModelConfig, os, SinkflexError, WeightStore } from '../../kernels/index.ts';
import type { TrainingConfig } from './config.ts';
import { RunFolderError } from './run-folder-io.ts';
import { usesReference } from './settings.ts';

/** Slots that the store of the policy takes at once, and that of the reference. */
const POLICY_SLOTS = 3;
const REFERENCE_SLOTS = 2;
/** The trainer keeps gradients and two moments; a checkpoint holds the weights and the moments. */
const TRAINER_COPIES = 3;
const CHECKPOINT_COPIES = 3;
/** The engine shows JavaScript a slot as one view, which is no larger. */
const LARGEST_IMAGE = 2 ** 32;

export interface Room {
  /** Bytes free in memory, and where the run folder would be; by default as the machine says. */
  memory?: number;
  disk?: number;
}

/** SINKFLEX_MEMORY_SHORT or SINKFLEX_DISK_FULL where a run of this model could only fail later. Writes nothing. */
export function checkRoom(config: TrainingConfig, model: ModelConfig, room: Room = {}): void {
  const image = WeightStore.imageBytes(model);
  const shape = ['hidden_size', 'intermediate_size', 'num_hidden_layers', 'num_local_experts'] as const;
  const what = `a model of ${Math.round(image / 4e6)} million parameters (${shape.map((key) => `${key} ${model[key]}`).join(', ')})`;
  const lower = 'lower model.hidden_size, model.intermediate_size, model.num_hidden_layers or model.num_local_experts';
  if (image > LARGEST_IMAGE) {
    throw new SinkflexError('SINKFLEX_CONFIG_UNSUPPORTED', `${what} is ${size(image)}, more than the 4 GiB of one weight image: ${lower}`, {
      details: { image },
    });
  }
  const slots = POLICY_SLOTS + (usesReference(config) ? REFERENCE_SLOTS : 0);
  const memory = (slots + TRAINER_COPIES) * image;
  const available = room.memory ?? os.availableMemory();
  if (memory > available) {
    const reference = usesReference(config)
      ? `, ${size(REFERENCE_SLOTS * image)} for the reference (actor.use_kl_loss or algorithm.use_kl_in_reward)`
      : '';
    throw new SinkflexError(
      'SINKFLEX_MEMORY_SHORT',
      `${what} needs ${size(memory)} of memory, ${size(available)} are available: ${size(POLICY_SLOTS * image)} for the weights, ` +
        `${size(TRAINER_COPIES * image)} for gradients and moments${reference}; ${lower}, or use a machine with more memory`,
      { details: { memory, available } },
    );
  }
  const path = config.resume ?? config.output ?? 'runs';
  const checkpoints = checkpointsToCome(config);
  const disk = checkpoints * CHECKPOINT_COPIES * image + (config.resume === null ? image : 0);
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

function size(bytes: number): string {
  const mib = bytes / 2 ** 20;
  return mib < 1024 ? `${mib < 10 ? mib.toFixed(1) : Math.round(mib)} MiB` : `${(mib / 1024).toFixed(1)} GiB`;
}
