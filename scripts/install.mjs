// Builds the native addon when npm installs the package: needs a C++20 compiler, make and Python (node-gyp's own needs), downloads
// nothing. Quiet unless it fails; run it again by hand after changing C++ (`node scripts/install.mjs`): make rebuilds what changed.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const require = createRequire(import.meta.url);

/** A folder with include/node/node_api.h: what npm was told, else beside the node binary, else made from node-api-headers. */
function headers() {
  const beside = path.dirname(path.dirname(realpathSync(process.execPath)));
  for (const folder of [process.env.npm_config_nodedir, beside]) {
    if (folder && existsSync(path.join(folder, 'include/node/node_api.h'))) return folder;
  }
  const made = path.join(root, 'build-headers');
  const include = path.join(made, 'include/node');
  mkdirSync(include, { recursive: true });
  const source = require('node-api-headers').include_dir;
  for (const name of readdirSync(source)) copyFileSync(path.join(source, name), path.join(include, name));
  const common = { target_defaults: { default_configuration: 'Release', configurations: { Release: {} }, cflags: ['-fPIC'] } };
  writeFileSync(path.join(include, 'common.gypi'), JSON.stringify(common));
  writeFileSync(path.join(include, 'config.gypi'), JSON.stringify({ variables: process.config.variables, target_defaults: {} }));
  return made;
}

/** npm's own node-gyp: the one that runs this script, else the one beside the node binary. */
function nodeGyp() {
  const beside = path.dirname(path.dirname(realpathSync(process.execPath)));
  const candidates = [
    process.env.npm_config_node_gyp,
    process.env.npm_execpath && path.join(path.dirname(process.env.npm_execpath), '../node_modules/node-gyp/bin/node-gyp.js'),
    path.join(beside, 'lib/node_modules/npm/node_modules/node-gyp/bin/node-gyp.js'),
    path.join(beside, 'share/nodejs/npm/node_modules/node-gyp/bin/node-gyp.js'),
  ];
  return candidates.find((file) => file && existsSync(file));
}

/** What usually helps, by what the log says. */
function fix(log) {
  if (/not found: make|make: not found|spawn make ENOENT/.test(log)) return 'install make (Debian, Ubuntu: apt install build-essential)';
  if (/Could not find any Python|You need to install the latest version of Python/.test(log))
    return 'install Python 3.8 or newer, or set npm_config_python to it';
  if (/(g\+\+|c\+\+|clang\+\+|cc): (command )?not found|No such file or directory: '(g|c)\+\+'/.test(log)) {
    return 'install a C++20 compiler (Debian, Ubuntu: apt install g++; macOS: xcode-select --install)';
  }
  if (/unrecognized command.line option|unknown argument|std=c\+\+20/.test(log))
    return 'use a newer compiler: g++ 11, clang 14 or later (CXX=...)';
  if (/node_api\.h|node\.h: No such file/.test(log)) return 'set npm_config_nodedir to a folder with include/node/node_api.h';
  if (/Killed|virtual memory exhausted|out of memory/i.test(log)) return 'the compiler ran out of memory: JOBS=1 npm install';
  return 'the first error above names the cause; the whole log is in build/install.log';
}

function fail(log, reason) {
  const lines = log.trimEnd().split('\n');
  const first = lines.findIndex((line) => /error: |: error /i.test(line));
  if (first >= 0 && first < lines.length - 30) console.error(lines.slice(first, first + 10).join('\n'), '\n  ...');
  console.error(lines.slice(-30).join('\n'));
  console.error(`\nsinkflex: the native addon could not be built.\nsinkflex: ${reason}`);
  process.exit(1);
}

/** Whether the addon there has the size that its build noted. */
function whole() {
  try {
    return JSON.parse(readFileSync(receipt, 'utf8')).bytes === statSync(addon).size;
  } catch {
    return false;
  }
}

const gyp = nodeGyp();
if (!gyp) fail('', "npm's node-gyp was not found; run this through npm (npm install), or set npm_config_node_gyp to node-gyp.js");
const jobs = process.env.JOBS || String(availableParallelism());
const nodedir = headers();
const steps = [
  ['configure', `--nodedir=${nodedir}`],
  ['build', '--jobs', jobs, `--nodedir=${nodedir}`],
];
const addon = path.join(root, 'build/Release/sinkflex.node');
// What a whole build is: kernels/native.ts compares before it maps the file, since one that was cut off would end the process with SIGBUS.
const receipt = `${addon}.json`;
if (!whole()) {
  // make goes by dates and would keep a link that was cut off. Until this build is done, no file is whole.
  for (const file of [addon, path.join(root, 'build/Release/obj.target/sinkflex.node')]) rmSync(file, { force: true });
  mkdirSync(path.dirname(receipt), { recursive: true });
  writeFileSync(receipt, '{"bytes":0}\n');
}
let log = '';
for (const args of steps) {
  const env = { ...process.env, npm_config_nodedir: nodedir };
  const done = spawnSync(process.execPath, [gyp, ...args], { cwd: root, env, encoding: 'utf8', maxBuffer: 1 << 28 });
  log += `${done.stdout ?? ''}${done.stderr ?? ''}${done.error ? `${done.error}\n` : ''}`;
  mkdirSync(path.join(root, 'build'), { recursive: true });
  writeFileSync(path.join(root, 'build/install.log'), log);
  if (done.status !== 0) fail(log, fix(log));
}
const built = readFileSync(addon);
writeFileSync(receipt, `${JSON.stringify({ bytes: built.length, sha256: createHash('sha256').update(built).digest('hex') })}\n`);
