/** Importing the module of `env.module`: user code that registers environments, advantage estimators or policy losses. */
import { statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { ActorsError } from '../errors.ts';
import type { TrainingConfig } from './config.ts';

/**
 * Imports it, once in a process however often it is asked for, and answers its path. `name` is a path relative to `folder`, a file URL, or
 * the name of a package as `folder` sees it.
 */
export async function importModule(name: string, folder = process.cwd()): Promise<string> {
  const path = locate(name, folder);
  try {
    await import(pathToFileURL(path).href);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new ActorsError('SINKFLEX_ENVIRONMENT_MODULE', `env.module = ${name}: ${path} cannot be imported: ${why}`, {
      cause,
      details: { module: name, path },
    });
  }
  return path;
}

function locate(name: string, folder: string): string {
  const file = name.startsWith('file:') ? fileURLToPath(name) : resolve(folder, name);
  if (statSync(file, { throwIfNoEntry: false })?.isFile()) return file;
  const isPath = /^(file:|\.{0,2}\/)/.test(name);
  const found = isPath ? undefined : packageEntry(name, folder);
  if (found !== undefined) return found;
  throw new ActorsError(
    'SINKFLEX_ENVIRONMENT_MODULE',
    `env.module = ${name}: there is no file ${file}${isPath ? '' : `, and no package of that name is installed for ${resolve(folder)}`}; give the path of a built module (.js) or an installed package`,
    { details: { module: name, path: file } },
  );
}

/** As `folder` sees it; else, for packages that `require` may not enter, as this package does. */
function packageEntry(name: string, folder: string): string | undefined {
  const ways = [() => createRequire(join(resolve(folder), 'settings')).resolve(name), () => fileURLToPath(import.meta.resolve(name))];
  for (const way of ways) {
    try {
      const path = way();
      if (statSync(path, { throwIfNoEntry: false })?.isFile()) return path;
    } catch {
      // Not this way.
    }
  }
  return undefined;
}

/** Settings whose module is imported, and named by its whole path. */
export async function withModule(config: TrainingConfig): Promise<TrainingConfig> {
  const { env } = config;
  return env.module === null ? config : { ...config, env: { ...env, module: await importModule(env.module) } };
}
