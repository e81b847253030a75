/** The benchmark's guidelines for a language model that plays the user, from its data folder. */
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const read = new Map<string, string | undefined>();

/** `folder` as for the data: of the domains, of the data or of the repository. Undefined where they are not there. */
export function userGuidelines(folder: string, tools: boolean): string | undefined {
  const name = tools ? 'simulation_guidelines_tools.md' : 'simulation_guidelines.md';
  const key = `${resolve(folder)}\u0000${name}`;
  if (!read.has(key)) {
    const places = ['.', '..', 'tau2', 'data/tau2', 'data'];
    const path = places.map((place) => join(resolve(folder), place, 'user_simulator', name)).find((p) => existsSync(p));
    read.set(key, path === undefined ? undefined : readFileSync(path, 'utf8'));
  }
  return read.get(key);
}
