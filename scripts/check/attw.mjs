// Whether TypeScript finds the types of every export, in the package as it would be published: attw on a tarball. ESM only: older
// resolutions are not served.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** The problems; a string instead of a list says why nothing was looked at. */
export function checkAttw() {
  if (!existsSync('dist/scripts/index.d.ts')) return 'dist/ is not built';
  const folder = mkdtempSync(path.join(tmpdir(), 'sinkflex-attw-'));
  try {
    // Without scripts: `prepare` would build everything once more.
    const packed = spawnSync('npm', ['pack', '--ignore-scripts', '--json', '--pack-destination', folder], { encoding: 'utf8' });
    if (packed.status !== 0) return [`npm pack: ${packed.error ?? packed.stderr}`];
    const [{ filename }] = JSON.parse(packed.stdout);
    const attw = 'node_modules/@arethetypeswrong/cli/dist/index.js';
    const done = spawnSync(process.execPath, [attw, '--profile', 'esm-only', '--no-color', path.join(folder, filename)], {
      encoding: 'utf8',
    });
    return done.status === 0 ? [] : [`${done.stdout}${done.stderr}`.trim()];
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
