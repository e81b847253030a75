/**
 * The Node of a sandbox: where it is, and with what arguments it waits for a program. Where it can, it starts from a snapshot of a Node that has
 * loaded what every program uses: a quarter less processor time than from the runner as a script.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { ENVIRONMENT, HOME, insideFolder, type Preparation } from './launch.ts';

export interface InsideNode {
  /** Of this machine; inside it is HOME/node. */
  path: string;
  /** A file of this machine that goes in as SNAPSHOT. */
  snapshot?: string;
  /** Up to its program, which it reads from descriptor 3. */
  arguments: string[];
}

export const SNAPSHOT = `${HOME}/node.blob`;
const BUILD_TIMEOUT_MS = 30_000;
/** A fixed seed of hash tables and a file that nobody checks again: both are this machine's own, and the program alone suffers from them. */
const SNAPSHOT_FLAGS = ['--no-rehash-snapshot', '--no-verify-snapshot-checksum'];

/** `snapshot: false` where what keeps a program in is no kernel that the snapshot was tried on. */
export function insideNode(p: Preparation, o: { snapshot: boolean }): InsideNode {
  const path = reachableNode(p.stateFolder);
  // V8's heap stays below the limit of all, so that a program that fills it hears of it.
  const flags = [`--max-old-space-size=${Math.max(16, Math.floor((p.limits.memoryBytes / 2 ** 20) * 0.6))}`, '--v8-pool-size=1'];
  const snapshot = o.snapshot ? snapshotOf(path, [...flags, ...SNAPSHOT_FLAGS], p) : undefined;
  if (snapshot === undefined) return { path, arguments: [...flags, `${HOME}/runner.cjs`] };
  return { path, snapshot, arguments: [...flags, ...SNAPSHOT_FLAGS, `--snapshot-blob=${SNAPSHOT}`] };
}

/** This Node, where a sandbox's user can reach it; else a copy in the state folder, made once. */
function reachableNode(state: string): string {
  const node = realpathSync(process.execPath);
  for (let path = node; path !== '/'; path = dirname(path)) {
    if ((statSync(path).mode & 0o005) !== 0o005) {
      const copy = join(state, `node-${process.version}`);
      if (!existsSync(copy)) copyFileSync(node, copy);
      chmodSync(copy, 0o755);
      return copy;
    }
  }
  return node;
}

/** A snapshot in the state folder, made once for a Node, its flags and the runner; undefined where this Node makes none that works. */
function snapshotOf(node: string, flags: readonly string[], p: Preparation): string | undefined {
  // Named as what would lie inside: stack traces show it.
  const script = JSON.stringify(`(require) => {${readFileSync(join(insideFolder(), 'runner.cjs'), 'utf8')}\n}`);
  const main = `require('node:vm').runInThisContext(${script}, '${HOME}/runner.cjs')(require);\n`;
  const digest = createHash('sha256')
    .update(`${process.version} ${flags.join(' ')} ${main}`)
    .digest('hex');
  const blob = join(p.stateFolder, `node-${digest.slice(0, 16)}.blob`);
  if (existsSync(blob) && works(node, flags, blob, p)) return blob;
  const [fresh, entry] = [join(p.ownFolder, 'node.blob'), join(p.ownFolder, 'entry.js')];
  writeFileSync(entry, main);
  const options = { env: ENVIRONMENT, cwd: p.ownFolder, stdio: 'ignore', timeout: BUILD_TIMEOUT_MS } as const;
  const { status } = spawnSync(node, [...flags, `--snapshot-blob=${fresh}`, '--build-snapshot', entry], options);
  if (status !== 0 || !works(node, flags, fresh, p)) return undefined;
  chmodSync(fresh, 0o644);
  // Both folders are of one file system: whoever finds it finds it whole.
  renameSync(fresh, blob);
  return blob;
}

function works(node: string, flags: readonly string[], blob: string, p: Preparation): boolean {
  const program = join(p.ownFolder, 'first.js');
  writeFileSync(program, "console.log(require('node:path').basename(process.argv[1]))");
  const fd = openSync(program, 'r');
  try {
    const { status, stdout } = spawnSync(node, [...flags, `--snapshot-blob=${blob}`], {
      env: ENVIRONMENT,
      cwd: p.ownFolder,
      stdio: ['ignore', 'pipe', 'ignore', fd],
      encoding: 'utf8',
      timeout: BUILD_TIMEOUT_MS,
    });
    return status === 0 && stdout === 'main.js\n';
  } finally {
    closeSync(fd);
  }
}
