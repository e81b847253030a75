// The manifest of a program: its files with their hashes, the packages it stands on, and where its actors are. Two hosts run the same
// program when their manifests have the same hash; what an actor's registered id means is looked up in here, never taken from a peer.
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { registeredDefinitions } from '../api/definition.ts';
import { failure, moduleGraph, packageAt, packageRoot } from './graph.ts';

export interface ProgramFile {
  /** Relative to the program's root, with forward slashes. */
  path: string;
  bytes: number;
  /** Hexadecimal. */
  sha256: string;
}

export interface ProgramManifest {
  name: string;
  version: string;
  /** Of files and packages: equal exactly when both are. */
  hash: string;
  files: ProgramFile[];
  packages: Record<string, string>;
  /** Registered id of each actor known to the process that made the manifest -> where it is defined. */
  actors: Record<string, { path: string; exportName: string }>;
}

export interface ProgramOptions {
  /** Entry modules, as paths or file URLs; default the program that runs, and every module that has defined an actor. */
  entries?: readonly (string | URL)[];
  /** Files that no import leads to (data, computed imports), relative to the root. */
  include?: readonly string[];
}

export interface Program {
  root: string;
  manifest: ProgramManifest;
}

export async function hashFile(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}

export function manifestHash(files: readonly ProgramFile[], packages: Record<string, string>): string {
  const hash = createHash('sha256');
  for (const { path, sha256 } of files) hash.update(`${sha256} ${path}\n`);
  for (const [name, version] of Object.entries(packages)) hash.update(`package ${name}@${version}\n`);
  return hash.digest('hex');
}

function pathOf(entry: string | URL): string {
  return typeof entry === 'string' && !entry.startsWith('file:') ? entry : fileURLToPath(entry);
}

/**
 * Describes the program that runs here.
 *
 * @example
 * const { manifest } = await describeProgram();
 * console.log(manifest.hash, manifest.files.length);
 */
export async function describeProgram(options: ProgramOptions = {}): Promise<Program> {
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

/** What differs between two programs, a line each; empty when their hashes are equal. */
export function differences(ours: ProgramManifest, theirs: ProgramManifest): string[] {
  const lines: string[] = [];
  const compare = (kind: string, a: Map<string, string>, b: Map<string, string>): void => {
    for (const [key, value] of a) {
      const other = b.get(key);
      if (other === undefined) lines.push(`${kind} ${key} is missing there`);
      else if (other !== value)
        lines.push(kind === 'package' ? `package ${key} is ${value} here and ${other} there` : `file ${key} differs`);
    }
    for (const key of b.keys()) if (!a.has(key)) lines.push(`${kind} ${key} is missing here`);
  };
  const byPath = (manifest: ProgramManifest): Map<string, string> => new Map(manifest.files.map(({ path, sha256 }) => [path, sha256]));
  compare('file', byPath(ours), byPath(theirs));
  compare('package', new Map(Object.entries(ours.packages)), new Map(Object.entries(theirs.packages)));
  return lines;
}
