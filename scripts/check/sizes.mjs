// A file of over 400 lines is two concepts.
import { readFileSync } from 'node:fs';
import { sourceFiles } from './files.mjs';

const limit = 400;

/** Larger files, each with the reason why it is one concept all the same. */
const exceptions = {};

/** The problems, `file: why`. */
export function checkSizes() {
  const problems = [];
  const large = new Set();
  for (const file of sourceFiles(/\.(ts|mts|mjs|js|cpp|cc|h|hpp|cu|cuh|py)$/)) {
    const lines = readFileSync(file, 'utf8').trimEnd().split('\n').length;
    if (lines <= limit) continue;
    large.add(file);
    if (!exceptions[file])
      problems.push(`${file}: ${lines} lines, at most ${limit}: split it, or give a reason in scripts/check/sizes.mjs`);
  }
  for (const file of Object.keys(exceptions)) {
    if (!large.has(file)) problems.push(`${file}: no longer over ${limit} lines: remove it from the exceptions in scripts/check/sizes.mjs`);
  }
  return problems;
}
