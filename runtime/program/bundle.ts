// A program as a folder named by its hash: written once on a host, checked before use, shared by every run of that program.
import { randomBytes } from 'node:crypto';
import { copyFile, mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, isAbsolute, join, normalize, sep } from 'node:path';
import { failure } from './graph.ts';
import { hashFile, manifestHash, type Program, type ProgramManifest } from './manifest.ts';

const MANIFEST = '.sinkflex-program.json';
const MAX_MANIFEST_BYTES = 64 * 2 ** 20;

/** A path of a manifest that was received must not lead out of the bundle. */
function checkPath(path: unknown): string {
  const clean = typeof path === 'string' ? normalize(path) : '';
  if (clean === '' || isAbsolute(clean) || clean.split(sep).includes('..') || clean === MANIFEST)
    throw failure(`the manifest names ${JSON.stringify(path)}, which is no path within a program`);
  return clean;
}

/** Checks the form of a manifest, and that its hash is that of its own lists. */
export function parseManifest(text: string): ProgramManifest {
  if (text.length > MAX_MANIFEST_BYTES) throw failure(`the manifest is larger than ${MAX_MANIFEST_BYTES} bytes`);
  let manifest: Partial<ProgramManifest>;
  try {
    manifest = JSON.parse(text) as Partial<ProgramManifest>;
  } catch (error) {
    throw failure(`the manifest is no JSON: ${(error as Error).message}`, error);
  }
  const { name, version, hash, files, packages, actors } = manifest ?? {};
  const plain = (value: unknown): boolean => typeof value === 'object' && value !== null && !Array.isArray(value);
  if (typeof name !== 'string' || typeof version !== 'string' || !Array.isArray(files) || !plain(packages) || !plain(actors))
    throw failure('the manifest lacks name, version, files, packages or actors');
  for (const file of files) {
    checkPath(file?.path);
    if (!Number.isSafeInteger(file.bytes) || !/^[0-9a-f]{64}$/.test(file.sha256))
      throw failure(`the manifest's entry for ${file.path} is damaged`);
  }
  if (manifestHash(files, packages as Record<string, string>) !== hash) throw failure('the manifest does not have the hash that it names');
  return manifest as ProgramManifest;
}

/**
 * Puts the program into `<cache>/<hash>` unless it is there and whole, and answers that folder. Safe when several do so at once: the
 * folder appears in one step.
 */
export async function storeProgram({ root, manifest }: Program, cache: string): Promise<string> {
  const folder = join(cache, manifest.hash);
  if (await isWhole(folder)) return folder;
  await rm(folder, { recursive: true, force: true });
  const temporary = join(cache, `.${manifest.hash}-${randomBytes(6).toString('hex')}`);
  try {
    for (const { path, sha256 } of manifest.files) {
      const target = join(temporary, checkPath(path));
      await mkdir(dirname(target), { recursive: true, mode: 0o700 });
      await copyFile(join(root, path), target);
      if ((await hashFile(target)) !== sha256) throw failure(`${path} has changed since the manifest was made: describe the program again`);
    }
    await writeFile(join(temporary, MANIFEST), JSON.stringify(manifest));
    await rename(temporary, folder).catch(async (error: NodeJS.ErrnoException) => {
      // Another was quicker; the name says that it is the same.
      if (!(await isWhole(folder))) throw error;
    });
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
  return folder;
}

/** Reads a bundle's manifest and checks every file against it. Throws SINKFLEX_BAD_PROGRAM that names the first that does not fit. */
export async function openProgram(folder: string): Promise<Program> {
  let text: string;
  try {
    text = await readFile(join(folder, MANIFEST), 'utf8');
  } catch (error) {
    throw failure(`${folder} holds no program`, error);
  }
  const manifest = parseManifest(text);
  for (const { path, bytes, sha256 } of manifest.files) {
    const file = join(folder, path);
    const size = await stat(file).then(
      (found) => found.size,
      () => -1,
    );
    if (size < 0) throw failure(`${path} is missing in ${folder}`);
    if (size !== bytes || (await hashFile(file)) !== sha256) throw failure(`${path} in ${folder} is not the file of the manifest`);
  }
  return { root: folder, manifest };
}

async function isWhole(folder: string): Promise<boolean> {
  return openProgram(folder).then(
    () => true,
    () => false,
  );
}
