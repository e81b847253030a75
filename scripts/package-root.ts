// The folder of the package: sources stand one level below it, built files two.
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const packageRoot = findRoot(dirname(fileURLToPath(import.meta.url)));

function findRoot(from: string): string {
  for (let at = from; ; at = dirname(at)) {
    if (existsSync(join(at, 'package.json')) && existsSync(join(at, 'scripts', 'presets'))) return at;
    if (dirname(at) === at) throw new Error(`the package around ${from} is incomplete (no scripts/presets); install it again`);
  }
}
