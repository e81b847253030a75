// npm run build: compiles TypeScript into build-ts/, joins the modules that workers load (bundle.mjs) and writes what changed to dist/.
// Compiling into dist/ itself (`npx tsc`) works too: it writes all files anew after a build, without the joining.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundle, chunks, entries, folders } from './bundle.mjs';

const KEPT = '.joined.json';

function readIfThere(file) {
  try {
    return readFileSync(file);
  } catch {
    return undefined;
  }
}

/** Writes what is new or different; each file appears whole. */
function write(file, content) {
  if (readIfThere(file)?.equals(Buffer.from(content))) return;
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(`${file}.part`, content);
  renameSync(`${file}.part`, file);
}

/** What bundle() answers, kept beside the compiled files for as long as they and the bundler stay the same. */
async function joined(compiled, plan) {
  const version = createRequire(import.meta.url)('rollup/package.json').version;
  const hash = createHash('sha256').update(JSON.stringify([version, plan]));
  hash.update(readFileSync(new URL('./bundle.mjs', import.meta.url)));
  for (const folder of plan.folders) {
    for (const name of readdirSync(path.join(compiled, folder), { recursive: true }).sort())
      if (/\.js(\.map)?$/.test(name)) hash.update(`${name}\n`).update(readFileSync(path.join(compiled, folder, name)));
  }
  const key = hash.digest('hex');
  const kept = JSON.parse(readIfThere(path.join(compiled, KEPT))?.toString() ?? '{}');
  if (kept.key === key) return new Map(kept.files);
  const files = await bundle(compiled, plan);
  writeFileSync(path.join(compiled, KEPT), JSON.stringify({ key, files: [...files] }));
  return files;
}

/** Makes `out` the build of what tsc wrote to `compiled`. */
export async function assemble(compiled, out, plan) {
  const files = await joined(compiled, plan);
  // What is there is no longer what tsc wrote: without its notes it writes everything again, never one half of a build.
  for (const name of readdirSync(out, { withFileTypes: true }).map((entry) => entry.name))
    if (name === '.tsbuildinfo') rmSync(path.join(out, name));
  for (const [name, content] of files) write(path.join(out, name), content);
  for (const entry of readdirSync(compiled, { recursive: true, withFileTypes: true })) {
    const name = path.relative(compiled, path.join(entry.parentPath, entry.name)).split(path.sep).join('/');
    if (entry.isFile() && !name.startsWith('.') && !files.has(name)) write(path.join(out, name), readFileSync(path.join(compiled, name)));
  }
}

async function main() {
  const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
  const compiled = path.join(root, 'build-ts');
  const out = path.join(root, 'dist');
  const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
  const options = ['-p', path.join(root, 'tsconfig.json'), '--outDir', compiled, '--tsBuildInfoFile', path.join(compiled, '.tsbuildinfo')];
  const { status } = spawnSync(process.execPath, [tsc, ...options], { stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
  mkdirSync(out, { recursive: true });
  await assemble(compiled, out, { folders, entries, chunks });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
