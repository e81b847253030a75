// C++ is formatted by clang-format (.clang-format). `node scripts/check/format-cpp.mjs --fix [files]` formats in place.
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { sourceFiles } from './files.mjs';

const tool = path.join('node_modules', '.bin', 'clang-format');
const sources = () => sourceFiles(/^(kernels|test)\/.*\.(h|hpp|cpp|cc|cu|cuh)$/);

/** The files that are not, and the remedy. */
export function checkFormatCpp() {
  const done = spawnSync(tool, ['--dry-run', '-Werror', '--ferror-limit=1', ...sources()], { encoding: 'utf8', maxBuffer: 1 << 26 });
  if (done.error) return [`clang-format does not run (${done.error.message}): npm ci`];
  const files = new Set([...done.stderr.matchAll(/^(.+?):\d+:\d+: error: /gm)].map((match) => match[1]));
  if (files.size === 0 && done.status !== 0) return [done.stderr.trim()];
  return files.size === 0 ? [] : [...files, `not formatted (${files.size} files): node scripts/check/format-cpp.mjs --fix FILES`];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const named = process.argv.slice(2).filter((argument) => argument !== '--fix');
  if (process.argv.includes('--fix')) {
    process.exitCode = spawnSync(tool, ['-i', ...(named.length ? named : sources())], { stdio: 'inherit' }).status;
  } else {
    const problems = checkFormatCpp();
    for (const problem of problems) console.log(problem);
    process.exitCode = problems.length ? 1 : 0;
  }
}
