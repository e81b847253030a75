/** Where a resumed run goes on: the checkpoint that `resume` names, or the newest whole one of the run folder that it names. */
import { basename, dirname, resolve } from 'node:path';
import { ActorsError } from '../errors.ts';
import { checkpointName, readCheckpoint, verifyCheckpoint } from '../trainer/index.ts';
import { RunFolder } from './run-folder.ts';

type Warn = (text: string) => void;

/** The checkpoint folder that is named, or undefined where a run folder is. */
export function namedCheckpoint(path: string): string | undefined {
  const full = resolve(path);
  return basename(dirname(full)) === 'checkpoints' ? full : undefined;
}

/** Checks a checkpoint that was named. Those of later steps are not of the course that the run takes from it, and are set aside. */
export async function goOnFrom(checkpoint: string, warn: Warn): Promise<void> {
  const { step } = readCheckpoint(checkpoint);
  await verifyCheckpoint(checkpoint);
  for (const later of RunFolder.open(checkpoint).setAsideAfter(step))
    warn(`the checkpoint of step ${later} is kept as abandoned-${checkpointName(later)}: the run goes on from step ${step}`);
}

/** The newest whole checkpoint of a run. Damaged ones are told and set aside. */
export async function newestCheckpoint(path: string, warn: Warn): Promise<string> {
  const folder = RunFolder.open(path);
  const onDamaged = ({ message }: Error) => warn(`${message}; it is set aside, and an older one is used`);
  const newest = await folder.newestWhole({ setAside: true, onDamaged });
  if (newest === undefined)
    throw new ActorsError('SINKFLEX_CHECKPOINT_INVALID', `${path} has no checkpoint to go on from: start the run anew in another folder.`);
  readCheckpoint(newest.dir);
  return newest.dir;
}
