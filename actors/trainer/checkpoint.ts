/**
 * A checkpoint is a folder that is whole or is not there: everything is written beside its place, flushed, and renamed.
 *   model/{config.json, model.safetensors, ...}   a Hugging Face folder
 *   optimizer.safetensors                         AdamW moments and step
 *   trainer.json                                  step, lineage, version, data cursor, ledger, and what the pipeline adds
 *   manifest.json                                 size and checksum of all of these
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { os } from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';
import type { LedgerSnapshot } from '../trajectory/index.ts';
import { writeManifest } from './checkpoint-manifest.ts';

export interface CheckpointState {
  format: 1;
  /** GRPO steps done. */
  step: number;
  lineage: number;
  /** Version of the weights. */
  version: number;
  /** First task index that the next step draws. */
  cursor: number;
  ledger: LedgerSnapshot;
  /** Further state of the pipeline, as plain data. */
  extra: Record<string, unknown>;
}

export const modelFolder = (checkpoint: string): string => join(checkpoint, 'model');

/** Writes a checkpoint at `dir`: `write` fills a temporary folder beside it. What stood there before is replaced. */
export async function writeCheckpoint(
  dir: string,
  state: CheckpointState,
  files: Record<string, string>,
  write: (temporary: string) => Promise<void>,
): Promise<void> {
  const temporary = join(dirname(dir), `.${basename(dir)}.tmp-${process.pid}`);
  rmSync(temporary, { recursive: true, force: true });
  try {
    mkdirSync(modelFolder(temporary), { recursive: true });
    await write(temporary);
    for (const [name, content] of Object.entries(files)) writeFileSync(join(modelFolder(temporary), name), content);
    writeFileSync(join(temporary, 'trainer.json'), `${JSON.stringify(state, null, 1)}\n`);
    await writeManifest(temporary);
    for (const name of [
      'trainer.json',
      'optimizer.safetensors',
      'manifest.json',
      ...Object.keys(files).map((f) => join('model', f)),
      'model',
      '.',
    ])
      await flush(join(temporary, name));
    const previous = `${temporary}.old`;
    if (existsSync(dir)) renameSync(dir, previous);
    renameSync(temporary, dir);
    await flush(dirname(dir));
    rmSync(previous, { recursive: true, force: true });
  } catch (e) {
    rmSync(temporary, { recursive: true, force: true });
    throw e;
  }
}

/** Takes away what killed processes left half-written beside the checkpoints of a folder. */
export function sweepCheckpoints(folder: string): void {
  for (const name of existsSync(folder) ? readdirSync(folder) : []) {
    const found = /^\.(.+)\.tmp-(\d+)(\.old)?$/.exec(name);
    if (!found || isRunning(Number(found[2]))) continue;
    const place = join(folder, found[1]!);
    // Killed between the two renames that replace a checkpoint: the old one is whole, and goes back.
    if (found[3] && !existsSync(place)) renameSync(join(folder, name), place);
    else rmSync(join(folder, name), { recursive: true, force: true });
  }
}

function isRunning(pid: number): boolean {
  const state = os.processState(pid);
  return state !== undefined && state !== 'Z';
}

export function readCheckpoint(dir: string): CheckpointState {
  const path = join(dir, 'trainer.json');
  let state: CheckpointState;
  try {
    state = JSON.parse(readFileSync(path, 'utf8')) as CheckpointState;
  } catch (cause) {
    throw new ActorsError(
      'SINKFLEX_CHECKPOINT_INVALID',
      `${dir} is not a checkpoint of SinkFlex (cannot read trainer.json): give a folder such as <run>/checkpoints/step-0000000010.`,
      { cause },
    );
  }
  if (state.format !== 1)
    throw new ActorsError('SINKFLEX_CHECKPOINT_INVALID', `${path} has format ${state.format}, this version reads format 1.`);
  return state;
}

/** To the disk, without holding the event loop meanwhile. */
async function flush(path: string): Promise<void> {
  if (!existsSync(path)) return;
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
