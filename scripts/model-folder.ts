// Which model a user means: a Hugging Face folder, one checkpoint of a run, a run (its last checkpoint), or a model of the hub by its name.
import { existsSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { downloadModel, type HubProgress, isHubName, RunFolder, ServedModel, type ServedModelOptions } from '../actors/index.ts';
import { CommandError } from './errors.ts';
import { bytes } from './text.ts';

/** Downloads what is named and not in the cache; its progress goes to stderr. */
export async function modelFolderOf(target: string, signal?: AbortSignal): Promise<string> {
  if (isHubName(target)) return hubModel(target, signal);
  const folder = resolve(target);
  for (const candidate of [folder, join(folder, 'model')]) if (existsSync(join(candidate, 'config.json'))) return candidate;
  if (basename(dirname(folder)) === 'checkpoints' || !existsSync(folder))
    throw new CommandError(
      'SINKFLEX_USAGE',
      `${target} is no model: it has no config.json, nor a model/ with one (a model of the hub is written org/name)`,
    );
  const run = RunFolder.open(target);
  return join(await lastCheckpoint(run, target), 'model');
}

/** The model that is meant, ready to answer. What takes longer than a second to read has its progress on stderr. */
export async function openModel(target: string, signal: AbortSignal, o: ServedModelOptions): Promise<ServedModel> {
  const { stderr } = process;
  let shown = Date.now() + (stderr.isTTY ? 1000 : 0);
  let drawn = false;
  const onProgress = (done: number, total: number): void => {
    const now = Date.now();
    if (now - shown < (stderr.isTTY ? 100 : 10_000)) return;
    shown = now;
    drawn = true;
    const line = `weights: ${bytes(done)} of ${bytes(total)}`;
    stderr.write(stderr.isTTY ? `\r\u001b[K${line}` : `${line}\n`);
  };
  try {
    return await ServedModel.open(await modelFolderOf(target, signal), { ...o, signal, onProgress });
  } finally {
    if (drawn && stderr.isTTY) stderr.write('\n');
  }
}

/** The newest checkpoint of a run that is as it was written; a damaged one is told on stderr. */
export async function lastCheckpoint(run: RunFolder, target: string): Promise<string> {
  const last = await run.newestWhole({
    onDamaged: ({ message }) => void process.stderr.write(`warning: ${message}; an older one is used\n`),
  });
  if (last === undefined)
    throw new CommandError(
      'SINKFLEX_USAGE',
      `${target} has no whole checkpoint; a run writes one every trainer.save_freq steps and at its end`,
    );
  return last.dir;
}

export async function hubModel(name: string, signal?: AbortSignal): Promise<string> {
  const { stderr } = process;
  let shown = 0;
  let file = '';
  const onProgress = (p: HubProgress): void => {
    const now = Date.now();
    // A line is drawn again and again on a terminal; a log gets one a file, and one every ten seconds.
    if (p.bytes < p.size && now - shown < (stderr.isTTY ? 100 : 10_000) && file === p.file) return;
    shown = now;
    file = p.file;
    const line = `${name}: ${p.file} ${bytes(p.bytes)} of ${bytes(p.size)} (${bytes(p.totalBytes)} of ${bytes(p.totalSize)})`;
    stderr.write(stderr.isTTY ? `\r\u001b[K${line}` : `${line}\n`);
  };
  try {
    return await downloadModel(name, {
      onProgress,
      onWarning: (message) => void stderr.write(`${message}\n`),
      ...(signal === undefined ? {} : { signal }),
    });
  } finally {
    if (shown > 0 && stderr.isTTY) stderr.write('\n');
  }
}
