// The built addon as a file: one that was cut off is told of instead of ending the process with SIGBUS, and install makes it anew.
import { spawnSync } from 'node:child_process';
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';

const root = process.cwd();
const addon = readFileSync(join(root, 'build/Release/sinkflex.node'));

/** A package of its own: the loader, install.mjs and a build; node-gyp, like make, only makes what is not there. */
function packaged(folder: string): { file: string; install: () => unknown; load: () => string } {
  for (const name of ['build/Release', 'dist/kernels', 'scripts', 'include/node']) mkdirSync(join(folder, name), { recursive: true });
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }');
  writeFileSync(join(folder, 'include/node/node_api.h'), '');
  // Where the build joined them, they are among others.
  for (const part of ['kernels', 'joined'])
    if (existsSync(join(root, 'dist', part))) cpSync(join(root, 'dist', part), join(folder, 'dist', part), { recursive: true });
  copyFileSync(join(root, 'scripts/install.mjs'), join(folder, 'scripts/install.mjs'));
  const file = join(folder, 'build/Release/sinkflex.node');
  const gyp = join(folder, 'gyp.cjs');
  const source = JSON.stringify(join(root, 'build/Release/sinkflex.node'));
  writeFileSync(gyp, `const fs = require('fs'); const f = ${JSON.stringify(file)}; if (!fs.existsSync(f)) fs.copyFileSync(${source}, f);`);
  const env = { ...process.env, npm_config_nodedir: folder, npm_config_node_gyp: gyp };
  const load = "import('./dist/kernels/native.js').then(() => console.log('loaded'), (e) => console.log(e.code, e.message))";
  return {
    file,
    install: () => spawnSync(process.execPath, ['scripts/install.mjs'], { cwd: folder, env }).status,
    load: () => {
      const { stdout, signal } = spawnSync(process.execPath, ['-e', load], { cwd: folder, encoding: 'utf8' });
      return signal ?? stdout.trim();
    },
  };
}

t.test('an addon that was cut off is told of, and install mends it', (t) => {
  const { file, install, load } = packaged(t.testdir());
  t.match(load(), /^SINKFLEX_ADDON_MISSING .* is missing: /);
  writeFileSync(`${file}.json`, 'cut off');
  t.equal(install(), 0);
  t.equal(load(), 'loaded');
  truncateSync(file, addon.length >> 1);
  t.match(
    load(),
    new RegExp(`^SINKFLEX_ADDON_MISSING .* damaged: it has ${addon.length >> 1} bytes, the build made ${addon.length} .*install\\.mjs`),
  );
  t.equal(install(), 0, 'although make would keep it');
  t.ok(readFileSync(file).equals(addon));
  t.equal(load(), 'loaded');
  rmSync(`${file}.json`);
  t.equal(load(), 'loaded', 'the build of an older version noted nothing');
  t.end();
});

t.test('a worker that is terminated inside calls of the addon ends alone, and not with its process', (t) => {
  // In a process of its own: what went wrong here was an abort. The worker does little but have errors thrown from native code.
  const host = JSON.stringify(new URL('../../kernels/host.js', import.meta.url).href);
  const worker = `import(${host}).then(({ openBlock, SharedMemory }) => {
    require('worker_threads').parentPort.postMessage('ready');
    for (;;) for (const call of [() => SharedMemory.create(-1), () => openBlock(new Uint8Array(3), false)]) try { call(); } catch {}
  });`;
  const main = `const { Worker } = require('worker_threads');
    (async () => {
      for (let i = 0; i < 24; i++) {
        const worker = new Worker(${JSON.stringify(worker)}, { eval: true });
        await new Promise((ready) => worker.once('message', ready));
        await new Promise((wait) => setTimeout(wait, i / 4));
        await worker.terminate();
      }
    })();`;
  const env = { ...process.env };
  delete env.NODE_OPTIONS;
  const { status, signal, stderr } = spawnSync(process.execPath, ['-e', main], { env, encoding: 'utf8', timeout: 60_000 });
  t.strictSame({ status, signal, stderr }, { status: 0, signal: null, stderr: '' });
  t.end();
});
