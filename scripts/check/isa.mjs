// The operator libraries are compiled for other processors than the one they may run on, and the linker keeps one copy of every weak
// symbol (inline functions, templates): a weak function outside the namespaces sfx_<isa> could bring AVX-512 to a machine without it.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';

const folder = 'build/Release';

/** The problems, `library: symbol`; a string instead of a list says why nothing was looked at. */
export function checkIsa() {
  const libraries = existsSync(folder) ? readdirSync(folder).filter((name) => /^ops_.*\.a$/.test(name)) : [];
  if (libraries.length === 0) return 'the addon is not built here';
  const problems = [];
  for (const library of libraries) {
    const done = spawnSync('nm', ['-C', `${folder}/${library}`], { encoding: 'utf8', maxBuffer: 1 << 28 });
    if (done.error) return 'nm is not installed';
    for (const [, symbol] of done.stdout.matchAll(/^[0-9a-f]* W (.*)$/gm)) {
      if (!/\bsfx_(portable|neon|avx2|avx512)::/.test(symbol)) problems.push(`${library}: ${symbol} is weak and outside its namespace`);
    }
  }
  return [...new Set(problems)];
}
