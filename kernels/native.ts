// Finds and loads the built addon (build/Release/sinkflex.node), from the sources as well as from dist/.
import { existsSync, readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { fromNative, SinkflexError } from './errors.ts';

/** Nearest folder upwards that holds package.json: the package root, for kernels/ as well as dist/kernels/. */
export function packageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json'))) {
    const up = dirname(folder);
    if (up === folder) throw new SinkflexError('SINKFLEX_ADDON_MISSING', 'the package root (package.json) was not found above the engine');
    folder = up;
  }
  return folder;
}

/** Mapping a file that was cut off ends the process with SIGBUS, so its size is compared with what the build noted, where it did. */
function checkWhole(path: string): void {
  let built: unknown;
  try {
    built = (JSON.parse(readFileSync(`${path}.json`, 'utf8')) as { bytes?: unknown } | null)?.bytes;
  } catch {
    return;
  }
  const { size } = statSync(path);
  if (typeof built !== 'number' || built === size) return;
  throw new SinkflexError(
    'SINKFLEX_ADDON_MISSING',
    `the native addon build/Release/sinkflex.node is damaged: it has ${size} bytes, the build made ${built} (was a build interrupted, or the disk full?): run \`node scripts/install.mjs\` again`,
    { details: { path, size, built } },
  );
}

function load(): unknown {
  const path = join(packageRoot(), 'build', 'Release', 'sinkflex.node');
  if (!existsSync(path)) {
    throw new SinkflexError(
      'SINKFLEX_ADDON_MISSING',
      'the native addon build/Release/sinkflex.node is missing: run `npm install` or `node scripts/install.mjs` in the package (needs a C++20 compiler and Python)',
      { details: { path } },
    );
  }
  checkWhole(path);
  try {
    return createRequire(import.meta.url)(path);
  } catch (e) {
    const error = fromNative(e);
    if (error !== e) throw error;
    throw new SinkflexError(
      'SINKFLEX_ADDON_MISSING',
      `the native addon does not load (${(e as Error).message}): run \`node scripts/install.mjs\` again`,
      {
        cause: e,
        details: { path },
      },
    );
  }
}

/** The addon's exports. Each face module (engine, segment, os, ...) narrows them to the classes that it wraps. */
export const addon = load() as Record<string, unknown>;
