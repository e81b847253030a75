// A program and its identity: manifest, and bundles named by content. Every worker loads this face; what reads files is loaded by its
// first use.
import { checkKnown } from '../api/check.ts';
import type { Program, ProgramOptions } from './form.ts';

export { differences, type Program, type ProgramFile, type ProgramManifest, type ProgramOptions, parseManifest } from './form.ts';

/**
 * Describes the program that runs here.
 *
 * @example
 * const { manifest } = await describeProgram();
 * console.log(manifest.hash, manifest.files.length);
 */
export async function describeProgram(options: ProgramOptions = {}): Promise<Program> {
  checkKnown('describeProgram', options, { entries: true, include: true });
  return (await import('./manifest.ts')).describeProgram(options);
}

/**
 * Puts the program into `<cache>/<hash>` unless it is there and whole, and answers that folder. Safe when several do so at once: the
 * folder appears in one step.
 */
export async function storeProgram(program: Program, cache: string): Promise<string> {
  return (await import('./bundle.ts')).storeProgram(program, cache);
}

/** Reads a bundle's manifest and checks every file against it. Throws SINKFLEX_BAD_PROGRAM that names the first that does not fit. */
export async function openProgram(folder: string): Promise<Program> {
  return (await import('./bundle.ts')).openProgram(folder);
}
