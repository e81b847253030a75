/** `sinkflex env`: what `new` writes works and conforms, `check` tells what a bad one does not keep; `data tau2` checks what it fetches. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import t from 'tap';
import { main } from '../../scripts/main.ts';

delete process.env.NODE_OPTIONS;
const script = resolve('dist/scripts/sinkflex.js');
const sinkflex = (...words: string[]) => spawnSync(process.execPath, [script, ...words], { encoding: 'utf8', timeout: 60_000 });

t.test('a new environment passes its test and the check', async (t) => {
  const folder = t.testdir();
  const made = sinkflex('env', 'new', 'shop', '--to', folder);
  t.equal(made.status, 0, made.stderr);
  const source = readFileSync(join(folder, 'shop.js'), 'utf8');
  t.ok(source.split('\n').length < 60, `${source.split('\n').length} lines`);
  const own = spawnSync(process.execPath, ['--test', join(folder, 'shop.test.js')], { encoding: 'utf8', timeout: 60_000 });
  t.equal(own.status, 0, own.stdout);
  const checked = sinkflex('env', 'check', join(folder, 'shop.js'));
  t.equal(checked.status, 0, checked.stderr);
  t.equal(checked.stdout, 'shop: ok\n');
  t.equal(sinkflex('env', 'new', 'shop', '--to', folder).status, 2, 'nothing is overwritten');
  t.equal(sinkflex('env', 'new', 'A shop').status, 2);
});

t.test('a new environment needs no package but this one', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sinkflex-new-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(resolve('.'), join(folder, 'node_modules/sinkflex'));
  t.equal(sinkflex('env', 'new', 'shop', '--to', folder).status, 0);
  const own = spawnSync(process.execPath, ['--test', join(folder, 'shop.test.js')], { encoding: 'utf8', timeout: 60_000 });
  t.equal(own.status, 0, own.stdout);
  t.equal(sinkflex('env', 'check', join(folder, 'shop.js')).stdout, 'shop: ok\n');
});

t.test('the check finds what an environment does not keep', async (t) => {
  const folder = t.testdir({
    'bad.js': `
      import { register } from 'sinkflex/actors';
      let shared = 0;
      register({
        name: 'bad', summary: '', create: () => ({
          reset: () => ({ observation: [{ role: 'user', content: String(shared++) }], info: {} }),
          step(action) { if (action.toolCalls.length > 0) throw new Error('no such tool'); return { observation: [{ role: 'user', content: 'x' }], reward: NaN, terminated: false, truncated: false, info: { at: () => 1 } }; },
          close() {},
        }),
      });`,
    'none.js': 'export {};',
  });
  const { status, stdout } = sinkflex('env', 'check', join(folder, 'bad.js'));
  t.equal(status, 1);
  for (const what of ['second reset', 'another object', 'threw', 'the reward is NaN', 'not serialisable']) t.match(stdout, what);
  t.match(sinkflex('env', 'check', join(folder, 'none.js')), { status: 2, stderr: /registers no environment/ });
  t.match(sinkflex('env', 'check', 'desk', 'level=1'), { status: 0, stdout: 'desk: ok\n' });
});

t.test('fetched files are checked', async (t) => {
  const folder = t.testdir();
  const server = createServer((request, response) => {
    response.statusCode = request.url?.includes('retail/db.json') ? 200 : 404;
    response.end('{}');
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  t.teardown(() => server.close());
  const from = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  t.equal(await main(['data', 'tau2', '--to', folder, '--from', from]), 2);
  t.notOk(existsSync(join(folder, 'domains/retail/db.json')), 'what is wrong is not kept');
});
