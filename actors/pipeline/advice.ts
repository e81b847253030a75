/** What a user can do next, put into words where the folders are known: after a checkpoint that cannot be read, and after a stop. */
import { existsSync, readdirSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { isSinkflexError, SinkflexError } from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';
import { readCheckpoint } from '../trainer/index.ts';
import type { RunFolder } from './run-folder.ts';

/** As a shell reads it back. */
export const shellWord = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

const resume = (path: string): string => `npx sinkflex launch --resume ${shellWord(path)}`;

/** The folder that the run took its model from: a checkpoint, or model.path. */
export interface ModelSource {
  checkpoint?: string | undefined;
  path?: string | null;
}

/** The same error, and what to take instead, where it is about a file of the folder that the run took its model from. */
export function withAdvice(error: unknown, { checkpoint, path }: ModelSource): unknown {
  const folder = checkpoint ?? path;
  if (!folder || !isSinkflexError(error) || !/^SINKFLEX_(CHECKPOINT_|TOKENIZER|CONFIG_INVALID)/.test(error.code)) return error;
  if (!error.message.includes(folder)) return error;
  const advice: string[] = [];
  if (error.code === 'SINKFLEX_TOKENIZER')
    advice.push(
      'where the environment has a tokenizer of its own (desk, code-bytes), tokenizer.json and tokenizer_config.json may be removed there',
    );
  else if (checkpoint === undefined)
    advice.push(
      'a model folder holds config.json and model.safetensors (and may hold tokenizer.json and tokenizer_config.json), such as <run>/checkpoints/step-0000000100/model',
    );
  if (checkpoint !== undefined) {
    const older = olderCheckpoint(checkpoint);
    advice.push(
      older
        ? `an older checkpoint stands beside it: ${resume(older)}`
        : 'no older checkpoint stands beside it: if it cannot be put back, start a new run',
    );
  }
  return new SinkflexError(error.code, `${error.message.replace(/\.$/, '')}; ${advice.join('; ')}`, {
    cause: error,
    ...(error.details ? { details: error.details } : {}),
  });
}

/** The newest one before it that has all its files. */
function olderCheckpoint(checkpoint: string): string | undefined {
  const [folder, name] = [dirname(checkpoint), basename(checkpoint)];
  const files = ['model/config.json', 'optimizer.safetensors'];
  const weights = ['model/model.safetensors', 'model/adapter_model.safetensors'];
  return (existsSync(folder) ? readdirSync(folder) : [])
    .filter((other) => /^step-\d{10}$/.test(other) && other < name)
    .sort()
    .reverse()
    .map((other) => join(folder, other))
    .find((other) => {
      try {
        readCheckpoint(other);
      } catch {
        return false;
      }
      return files.every((file) => existsSync(join(other, file))) && weights.some((file) => existsSync(join(other, file)));
    });
}

/** SINKFLEX_ABORTED with what is left of the run, and how it goes on. */
export function stopped(folder: RunFolder | undefined): ActorsError {
  if (!folder) return new ActorsError('SINKFLEX_ABORTED', 'stopped before the run began; nothing was written');
  const step = existsSync(folder.file('checkpoints')) ? folder.checkpoints().at(-1) : undefined;
  const next =
    step === undefined
      ? 'it has no checkpoint yet to go on from'
      : `it goes on from its checkpoint of step ${step} with\n  ${resume(folder.path)}`;
  return new ActorsError('SINKFLEX_ABORTED', `stopped; the run is in ${folder.path}, and ${next}`, {
    details: { folder: folder.path, step },
  });
}
