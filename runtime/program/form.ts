// What a manifest says, checked and compared without looking at a file: the light part of this room, which every worker loads.
import { createHash } from 'node:crypto';
import { isAbsolute, normalize, sep } from 'node:path';
import { RuntimeFailure } from '../api/errors.ts';

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

export function failure(message: string, cause?: unknown): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_BAD_PROGRAM', message, cause === undefined ? {} : { cause });
}

export function manifestHash(files: readonly ProgramFile[], packages: Record<string, string>): string {
  const hash = createHash('sha256');
  for (const { path, sha256 } of files) hash.update(`${sha256} ${path}\n`);
  for (const [name, version] of Object.entries(packages)) hash.update(`package ${name}@${version}\n`);
  return hash.digest('hex');
}

/** Its name in a bundle. */
export const MANIFEST = '.sinkflex-program.json';
const MAX_MANIFEST_BYTES = 64 * 2 ** 20;

/** A path of a manifest that was received must not lead out of the bundle. */
export function checkPath(path: unknown): string {
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
