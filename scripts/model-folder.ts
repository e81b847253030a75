// Which model a user means: a Hugging Face folder, one checkpoint of a run, or a run (its last checkpoint).
import { existsSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { RunFolder } from '../actors/index.ts';
import { CommandError } from './errors.ts';

export function modelFolderOf(target: string): string {
  const folder = resolve(target);
  for (const candidate of [folder, join(folder, 'model')]) if (existsSync(join(candidate, 'config.json'))) return candidate;
  if (basename(dirname(folder)) === 'checkpoints' || !existsSync(folder))
    throw new CommandError('SINKFLEX_USAGE', `${target} is no model: it has no config.json, nor a model/ with one`);
  const run = RunFolder.open(target);
  const last = run.checkpoints().at(-1);
  if (last === undefined) throw new CommandError('SINKFLEX_USAGE', `${target} has no checkpoint yet`);
  return join(run.checkpoint(last), 'model');
}
