/**
 * The manifest of a checkpoint, written last: size and SHA-256 of every other file. A checkpoint that does not agree with it was cut short, or
 * damaged since, and is not used.
 */
import { createHash } from 'node:crypto';
import { createReadStream, existsSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { isSinkflexError } from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';
import { filesBelow } from '../files-below.ts';

const MANIFEST = 'manifest.json';

interface Manifest {
  format: 1;
  /** By path within the checkpoint, `/` between the parts. */
  files: Record<string, { bytes: number; sha256: string }>;
}

/** Of everything that stands in the folder. */
export async function writeManifest(checkpoint: string): Promise<void> {
  const files: Manifest['files'] = {};
  for (const path of filesOf(checkpoint)) {
    const full = join(checkpoint, path);
    files[path] = { bytes: statSync(full).size, sha256: await sha256(full) };
  }
  const manifest: Manifest = { format: 1, files };
  writeFileSync(join(checkpoint, MANIFEST), `${JSON.stringify(manifest, null, 1)}\n`);
}

/** SINKFLEX_CHECKPOINT_DAMAGED, naming the file, unless every file is as it was written. Reads all of it. */
export async function verifyCheckpoint(checkpoint: string): Promise<void> {
  for (const [path, { bytes, sha256: written }] of Object.entries(readManifest(checkpoint).files)) {
    const full = join(checkpoint, path);
    if (!existsSync(full)) throw damaged(checkpoint, path, 'is missing');
    const { size } = statSync(full);
    if (size !== bytes) throw damaged(checkpoint, path, `has ${size} bytes, ${bytes} were written`);
    if ((await sha256(full)) !== written) throw damaged(checkpoint, path, 'is not what was written (its SHA-256 differs)');
  }
}

export interface WholeCheckpoint {
  dir: string;
  step: number;
}

/** Steps that have a checkpoint in the folder, ascending. */
export function checkpointSteps(folder: string): number[] {
  return (existsSync(folder) ? readdirSync(folder) : [])
    .flatMap((name) => /^step-(\d{10})$/.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b);
}

export const checkpointName = (step: number): string => `step-${String(step).padStart(10, '0')}`;

/**
 * The newest checkpoint of a folder that is as it was written. Those after it that are not are told to `onDamaged`; with `setAside` they are
 * renamed to damaged-step-..., so that the run goes on as if they had never been.
 */
export async function newestWhole(
  folder: string,
  o: { onDamaged: (error: ActorsError) => void; setAside?: boolean },
): Promise<WholeCheckpoint | undefined> {
  for (const step of checkpointSteps(folder).reverse()) {
    const dir = join(folder, checkpointName(step));
    try {
      await verifyCheckpoint(dir);
      return { dir, step };
    } catch (e) {
      if (!isSinkflexError(e) || e.code !== 'SINKFLEX_CHECKPOINT_DAMAGED') throw e;
      if (o.setAside) setAside(dir, 'damaged');
      o.onDamaged(e as ActorsError);
    }
  }
  return undefined;
}

/** Keeps a checkpoint under a name that nothing goes on from. */
export function setAside(checkpoint: string, why: 'damaged' | 'abandoned'): void {
  const aside = join(dirname(checkpoint), `${why}-${basename(checkpoint)}`);
  rmSync(aside, { recursive: true, force: true });
  renameSync(checkpoint, aside);
}

function readManifest(checkpoint: string): Manifest {
  const path = join(checkpoint, MANIFEST);
  if (!existsSync(path)) throw damaged(checkpoint, MANIFEST, 'is missing');
  try {
    const { format, files } = JSON.parse(readFileSync(path, 'utf8')) as Manifest;
    if (format === 1 && Object.values(files).every((f) => Number.isInteger(f.bytes) && typeof f.sha256 === 'string'))
      return { format, files };
  } catch (cause) {
    throw damaged(checkpoint, MANIFEST, 'cannot be read', cause);
  }
  throw damaged(checkpoint, MANIFEST, 'is no manifest of a checkpoint');
}

/** What the manifest lists: every file but itself, sorted. */
const filesOf = (folder: string): string[] => filesBelow(folder).filter((path) => path !== MANIFEST);

async function sha256(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path, { highWaterMark: 1 << 20 }), hash);
  return hash.digest('hex');
}

function damaged(checkpoint: string, file: string, what: string, cause?: unknown): ActorsError {
  return new ActorsError('SINKFLEX_CHECKPOINT_DAMAGED', `the checkpoint ${checkpoint} is damaged: ${file} ${what}`, {
    details: { checkpoint, file, run: dirname(dirname(checkpoint)) },
    cause,
  });
}
