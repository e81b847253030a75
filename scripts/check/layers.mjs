// Imports only go down: scripts -> actors -> runtime -> kernels, and into another floor only through its face, <floor>/index.ts, or the light
// part of the engine's, kernels/host.ts.
// test/ and examples/ may import anything; nothing imports them. In kernels/, C++ includes stay inside kernels/.
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import ts from 'typescript';
import { sourceFiles } from './files.mjs';

const height = { kernels: 1, runtime: 2, actors: 3, scripts: 4 };

/** Why `from` may not import `target` (paths from the root), or undefined. */
function refusal(from, target) {
  const floor = from.split('/')[0];
  const other = target.split('/')[0];
  if (!(floor in height)) return undefined;
  if (!(other in height)) {
    return target === 'package.json' ? undefined : `${floor}/ may not import ${target}: it is on none of the floors`;
  }
  if (floor === other) return undefined;
  if (height[other] > height[floor]) return `${floor}/ may not import ${other}/: imports only go down`;
  return target === `${other}/index.ts` || target === 'kernels/host.ts'
    ? undefined
    : `import ${other}/index.ts instead: another floor is entered through its face`;
}

/** The problems of all files, `file:line: why`. */
export function checkLayers() {
  const problems = [];
  for (const file of sourceFiles(/^(kernels|runtime|actors|scripts)\/.*\.(ts|mts|mjs|js)$/)) {
    const text = readFileSync(file, 'utf8');
    for (const { fileName, pos } of ts.preProcessFile(text, true, true).importedFiles) {
      const line = text.slice(0, pos).split('\n').length;
      const own = fileName.match(/^sinkflex(?:\/(\w+))?$/);
      if (!fileName.startsWith('.') && !own) continue;
      const target = own ? `${own[1] ?? 'scripts'}/index.ts` : path.posix.normalize(path.posix.join(path.posix.dirname(file), fileName));
      const why = own ? 'inside the package, import relatively' : refusal(file, target);
      if (why) problems.push(`${file}:${line}: ${why}`);
    }
  }
  for (const file of sourceFiles(/^kernels\/.*\.(h|hpp|cpp|cc|cu|cuh)$/)) {
    const lines = readFileSync(file, 'utf8').split('\n');
    lines.forEach((line, i) => {
      const included = line.match(/^\s*#\s*include\s*"([^"]+)"/)?.[1];
      if (!included) return;
      const beside = path.posix.normalize(path.posix.join(path.posix.dirname(file), included));
      const inside = [beside, `kernels/${included}`].some((target) => target.startsWith('kernels/') && existsSync(target));
      if (!inside) problems.push(`${file}:${i + 1}: "${included}" is not in kernels/ (system headers stand in <>)`);
    });
  }
  return problems;
}
