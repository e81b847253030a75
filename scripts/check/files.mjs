// The files that the checks look at: what git tracks or would track, so that build outputs never count.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';

const skipped = new Set([
  'node_modules',
  'dist',
  'build',
  'build-headers',
  'build-sanitize',
  'build-emulation',
  'build-cuda',
  'build-ts',
  'runs',
  '.tap',
  '.git',
]);

function walk(folder, found) {
  for (const entry of readdirSync(folder || '.', { withFileTypes: true })) {
    const name = folder ? `${folder}/${entry.name}` : entry.name;
    if (entry.isDirectory()) {
      if (!skipped.has(entry.name)) walk(name, found);
    } else if (entry.isFile()) found.push(name);
  }
  return found;
}

/** Paths relative to the package, with forward slashes, that match. */
export function sourceFiles(pattern) {
  const git = spawnSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '-z'], { encoding: 'utf8', maxBuffer: 1 << 26 });
  const all = git.status === 0 ? git.stdout.split('\0').filter((name) => name && existsSync(name)) : walk('', []);
  return [...new Set(all)].filter((name) => pattern.test(name)).sort();
}
