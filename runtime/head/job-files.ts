// Files of a job's folder: JSON, each written in one step, so that whoever reads one finds all of it.
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export function writeFile(folder: string, name: string, value: object): void {
  writeFileSync(join(folder, `.${name}`), JSON.stringify(value), { mode: 0o600 });
  renameSync(join(folder, `.${name}`), join(folder, name));
}

/** Undefined: it is not there yet. */
export function readFile<T>(folder: string, name: string): T | undefined {
  try {
    return JSON.parse(readFileSync(join(folder, name), 'utf8')) as T;
  } catch {
    return undefined;
  }
}
