// A program as a folder named by its hash: written once on a host, checked before use, shared by every run of that program.
import { randomBytes } from 'node:crypto';
import { copyFile, mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { checkPath, failure, MANIFEST, type Program, parseManifest } from './form.ts';
import { hashFile } from './manifest.ts';

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
