// This package as other machines get it: its program files, and the packages that they stand on with all that those need. Named by a hash of
// what is in it, so that a machine that has it is sent nothing.
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { describeProgram } from '../../runtime/index.ts';
import { packageRoot } from '../package-root.ts';

/** Folders of this package whose files are chosen at run time. */
const FOLDERS = ['dist/joined', 'dist/kernels', 'dist/runtime', 'dist/actors', 'dist/scripts', 'scripts/presets', 'actors/sandbox/inside'];
const FILES = ['package.json', 'build/Release/sinkflex.node', 'build/Release/sinkflex.node.json'];

export interface Bundle {
  hash: string;
  /** `tar`, with the bundle on its standard output. */
  pack(): ChildProcess;
}

interface InstalledPackage {
  name: string;
  version: string;
  folder: string;
  /** Where it goes: `node_modules/...`. */
  path: string;
}

export async function makeBundle(): Promise<Bundle> {
  const files = FOLDERS.flatMap(filesOf);
  const { manifest } = await describeProgram({
    entries: [join(packageRoot, 'dist/scripts/sinkflex.js')],
    include: [...files, ...FILES].filter((path) => path !== 'package.json'),
  });
  const packages = closure(Object.keys(manifest.packages));
  const hash = createHash('sha256').update(`${manifest.hash}\n${process.platform} ${process.arch}\n`);
  for (const { path, version } of packages) hash.update(`${path}@${version}\n`);
  return { hash: hash.digest('hex'), pack: () => pack(manifest, packages) };
}

function filesOf(folder: string): string[] {
  const full = join(packageRoot, folder);
  if (!existsSync(full)) return [];
  return readdirSync(full, { recursive: true })
    .map(String)
    .filter((name) => !name.endsWith('.map') && !name.endsWith('.d.ts') && statSync(join(full, name)).isFile())
    .map((name) => `${folder}/${name}`)
    .sort();
}

/** Those packages, and what they need to run, each once for each place where it is installed. */
function closure(names: readonly string[]): InstalledPackage[] {
  const found = new Map<string, InstalledPackage>();
  const ancestors: string[] = [];
  for (let at = packageRoot; ; at = dirname(at)) {
    ancestors.push(at);
    if (dirname(at) === at) break;
  }
  const follow = (name: string, from: string, optional: boolean): void => {
    const folder = (createRequire(join(from, 'package.json')).resolve.paths(name) ?? [])
      .map((each) => join(each, name))
      .find((each) => existsSync(join(each, 'package.json')));
    if (folder === undefined) {
      if (optional) return; // for another platform
      throw new Error(`the package ${name}, which ${from} needs, is not installed`);
    }
    if (found.has(folder)) return;
    const about = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as {
      version?: string;
      dependencies?: Record<string, string>;
      optionalDependencies?: Record<string, string>;
    };
    const base = ancestors.find((each) => folder.startsWith(`${each}/node_modules/`)) ?? packageRoot;
    const path = relative(base, folder);
    found.set(folder, { name, version: about.version ?? '0.0.0', folder, path });
    const maybe = about.optionalDependencies ?? {};
    for (const each of Object.keys({ ...about.dependencies, ...maybe })) follow(each, folder, each in maybe);
  };
  for (const name of names) follow(name, packageRoot, false);
  return [...found.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
}

/** Its manifest goes last: a bundle that has one is whole. */
export const BUNDLE_MANIFEST = '.sinkflex-program.json';

function pack(manifest: { files: { path: string }[] }, packages: readonly InstalledPackage[]): ChildProcess {
  const work = mkdtempSync(join(tmpdir(), 'sinkflex-bundle-'));
  writeFileSync(join(work, 'files'), manifest.files.map(({ path }) => `${path}\n`).join(''));
  writeFileSync(join(work, BUNDLE_MANIFEST), JSON.stringify(manifest));
  const roots = packages.map(({ folder, path }) => ['-C', folder.slice(0, -path.length), path]);
  // Packages within packages come with those.
  const outer = packages.flatMap(({ path }, i) => (path.indexOf('/node_modules/') < 0 ? roots[i]! : []));
  const words = ['-cf', '-', '--exclude=*.map', '-C', packageRoot, '-T', join(work, 'files'), ...outer, '-C', work, BUNDLE_MANIFEST];
  const child = spawn('tar', words, { stdio: ['ignore', 'pipe', 'inherit'] });
  child.once('close', () => rmSync(work, { recursive: true, force: true }));
  return child;
}
