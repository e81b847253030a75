// Modules of an actor as this host has them: hosts need not have a program under the same path. A spec says which package each of its modules is
// of and where that is on the host that wrote it; here the same path below this host's own copy of the package is meant.
import { fileURLToPath, pathToFileURL } from 'node:url';
import { packageOf } from '../api/definition.ts';
import type { ActorSpec } from '../control/index.ts';

/** Package -> URL of its folder on this host: this package, and those of `folders`. */
export function programsOf(folders: readonly string[]): ReadonlyMap<string, string> {
  const inside = [fileURLToPath(import.meta.url), ...folders.map((folder) => `${folder}/package.json`)];
  return new Map(inside.map(packageOf).map(({ name, folder }) => [name, pathToFileURL(folder).href]));
}

export function relocate(spec: ActorSpec, programs: ReadonlyMap<string, string>): ActorSpec {
  const { roots } = spec;
  if (roots === undefined) return spec;
  const here = (url: string): string => {
    for (const [name, there] of Object.entries(roots)) {
      const own = programs.get(name);
      if (own !== undefined && url.startsWith(`${there}/`)) return own + url.slice(there.length);
    }
    return url;
  };
  return { ...spec, module: here(spec.module), imports: spec.imports.map(here) };
}
