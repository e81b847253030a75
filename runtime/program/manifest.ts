// The manifest of a program: its files with their hashes, the packages it stands on, and where its actors are. Two hosts run the same
// program when their manifests have the same hash; what an actor's registered id means is looked up in here, never taken from a peer.
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { registeredDefinitions } from '../api/definition.ts';
import { failure, manifestHash, type Program, type ProgramFile, type ProgramManifest, type ProgramOptions } from './form.ts';
import { moduleGraph, packageAt, packageRoot } from './graph.ts';

export async function hashFile(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}

function pathOf(entry: string | URL): string {
  return typeof entry === 'string' && !entry.startsWith('file:') ? entry : fileURLToPath(entry);
}

export async function describeProgram(options: ProgramOptions): Promise<Program> {
  const definitions = registeredDefinitions().filter(({ module }) => module.startsWith('file:'));
  const main = process.argv[1];
  const entries = (options.entries ?? [...(main === undefined ? [] : [main]), ...definitions.map(({ module }) => module)]).map(pathOf);
  const first = entries[0];
  if (first === undefined) throw failure('a program has at least one entry module: pass `entries`');
  const root = packageRoot(first);
  if (root === undefined) throw failure(`${first} is in no package: put a package.json with a name in its folder`);
  // Actors of other packages are that package's own: its version stands for them.
  const own = entries.filter((entry) => packageRoot(entry) === root);
  const included = (options.include ?? []).map((path) => join(root, path));
  const graph = await moduleGraph([...own, ...included, join(root, 'package.json')], root);
  const files = await Promise.all(
    graph.files.map(async (path): Promise<ProgramFile> => {
      const file = join(root, path);
      return { path, bytes: (await stat(file)).size, sha256: await hashFile(file) };
    }),
  );
  const actors: ProgramManifest['actors'] = {};
  for (const { id, module, exportName } of definitions) {
    const path = relative(root, fileURLToPath(module)).split(sep).join('/');
    if (!path.startsWith('..')) actors[id] = { path, exportName };
  }
  const { name = 'main', version = '0.0.0' } = packageAt(root) ?? {};
  return { root, manifest: { name, version, hash: manifestHash(files, graph.packages), files, packages: graph.packages, actors } };
}
