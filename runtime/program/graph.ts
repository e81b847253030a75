// Which files a program is made of: follows imports (static, dynamic with a literal, and `new URL('...', import.meta.url)`) from its
// entries through its own package, and names the version of every package that they come to.
import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { createRequire, isBuiltin } from 'node:module';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { failure } from './form.ts';

export interface ModuleGraph {
  /** Paths relative to the root, with forward slashes, sorted. */
  files: string[];
  /** Name -> version of packages that the files import. */
  packages: Record<string, string>;
}

const moduleFile = /\.[cm]?[jt]sx?$/;
const packageName = /^(?:@[^/]+\/)?[^/]+/;
/** Assets and workers are named this way; a lexer of imports does not see them. */
const asset = /new\s+URL\(\s*(['"])(\.{1,2}\/[^'"\n]+)\1\s*,\s*import\.meta\.url\s*\)/g;

/** The folder of the nearest package.json with a name, above a file. */
export function packageRoot(file: string): string | undefined {
  for (let folder = dirname(file); ; folder = dirname(folder)) {
    if (packageAt(folder)?.name !== undefined) return folder;
    if (dirname(folder) === folder) return undefined;
  }
}

export function packageAt(folder: string): { name?: string; version?: string } | undefined {
  try {
    return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { name?: string; version?: string };
  } catch {
    return undefined;
  }
}

type Lexer = typeof import('es-module-lexer');

class Walk {
  readonly #root: string;
  readonly #lexer: Lexer;
  readonly #name: string | undefined;
  readonly #files = new Set<string>();
  readonly #packages = new Map<string, string>();
  readonly #queue: string[] = [];

  constructor(root: string, lexer: Lexer) {
    this.#root = root;
    this.#lexer = lexer;
    this.#name = packageAt(root)?.name;
  }

  add(file: string, from: string): void {
    const real = realpathSync(file);
    if (this.#files.has(real)) return;
    const path = relative(this.#root, real);
    if (path.startsWith('..') || path.split(sep).includes('node_modules'))
      throw failure(`${from} imports ${file}, which is outside of the program's folder ${this.#root}: make it a package, or move it there`);
    this.#files.add(real);
    if (moduleFile.test(real)) this.#queue.push(real);
  }

  run(): ModuleGraph {
    for (let file = this.#queue.pop(); file !== undefined; file = this.#queue.pop()) this.#read(file);
    const files = [...this.#files].map((file) => relative(this.#root, file).split(sep).join('/'));
    return { files: files.sort(), packages: Object.fromEntries([...this.#packages].sort(([a], [b]) => (a < b ? -1 : 1))) };
  }

  #read(file: string): void {
    const source = readFileSync(file, 'utf8');
    let imports: ReturnType<Lexer['parse']>[0];
    try {
      [imports] = this.#lexer.parse(source, file);
    } catch (error) {
      throw failure(`${file} cannot be read as a module: ${(error as Error).message}`, error);
    }
    for (const found of imports) {
      if (found.type === 'import-meta' || ('typeOnly' in found && found.typeOnly)) continue;
      const { specifier } = found;
      // A computed import names nothing that could be followed: whoever writes one lists its files under `include`.
      if (specifier !== undefined && !('glob' in found && found.glob)) this.#follow(specifier, file);
    }
    for (const match of source.matchAll(asset)) {
      const target = fileURLToPath(new URL(match[2]!, pathToFileURL(file)));
      // Extensions may be chosen at run time, and a folder is only a place: what is no file is left to `include`.
      if (existsSync(target) && statSync(target).isFile()) this.add(target, file);
    }
  }

  #follow(specifier: string, file: string): void {
    if (isBuiltin(specifier) || specifier.startsWith('data:')) return;
    if (specifier.startsWith('.') || specifier.startsWith('/') || specifier.startsWith('file:')) {
      const target = fileURLToPath(new URL(specifier, pathToFileURL(file)));
      if (!existsSync(target)) throw failure(`${file} imports ${specifier}, and there is no such file`);
      this.add(target, file);
      return;
    }
    const name = packageName.exec(specifier)?.[0] ?? specifier;
    if (specifier.startsWith('#') || name === this.#name) {
      this.add(resolveOwn(specifier, file), file);
      return;
    }
    if (!this.#packages.has(name)) this.#packages.set(name, versionOf(name, file));
  }
}

function resolveOwn(specifier: string, file: string): string {
  try {
    return createRequire(file).resolve(specifier);
  } catch (error) {
    throw failure(`${file} imports ${specifier}, which its own package does not resolve: ${(error as Error).message}`, error);
  }
}

function versionOf(name: string, file: string): string {
  for (const folder of createRequire(file).resolve.paths(name) ?? []) {
    const found = packageAt(join(folder, name));
    if (found !== undefined) return found.version ?? '0.0.0';
  }
  throw failure(`${file} imports the package ${name}, which is not installed`);
}

/** Follows the imports of `entries` (absolute paths) within `root`. Throws SINKFLEX_BAD_PROGRAM for what is missing or outside. */
export async function moduleGraph(entries: readonly string[], root: string): Promise<ModuleGraph> {
  const lexer = await import('es-module-lexer'); // not for workers, which import this file too
  await lexer.init;
  const walk = new Walk(realpathSync(root), lexer);
  for (const entry of entries) {
    if (!existsSync(entry)) throw failure(`there is no file ${entry}`);
    walk.add(entry, 'the program');
  }
  return walk.run();
}
