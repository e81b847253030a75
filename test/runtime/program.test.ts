// A program's identity: what its manifest lists, when two are the same, and bundles that are whole or refused.
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { describeProgram, differences, openProgram, parseManifest, storeProgram } from '../../runtime/index.ts';

function folderOf(files: Record<string, string>): string {
  const root = mkdtempSync(join(tmpdir(), 'program-'));
  t.teardown(() => rmSync(root, { recursive: true, force: true }));
  write(root, files);
  return root;
}

function write(root: string, files: Record<string, string>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
}

const sample = {
  'package.json': '{"name":"sample","version":"1.2.3","type":"module","exports":{"./inner":"./src/inner.js"}}',
  'src/main.js': `import { a } from './a.js';
import 'dependency/sub';
import { readFile } from 'node:fs/promises';
const later = await import('./later.js');
const worker = new Worker(new URL('./worker.js', import.meta.url));
const folder = new URL('./data/', import.meta.url);
const computed = await import(name);
export * from 'sample/inner';`,
  'src/a.js': `import './main.js'; // a cycle\nexport const a = 1;`,
  'src/later.js': 'export {};',
  'src/worker.js': `import type { X } from './types.js';\nconst x: number = 1;`,
  'src/inner.js': `import data from './data/table.json' with { type: 'json' };`,
  'src/data/table.json': '[1,2]',
  'src/data/extra.txt': 'extra',
  'src/unused.js': 'export {};',
  'node_modules/dependency/package.json': '{"name":"dependency","version":"4.5.6"}',
};

t.test('a manifest lists what imports lead to, and the versions of packages', async (t) => {
  const root = folderOf(sample);
  const { manifest } = await describeProgram({ entries: [join(root, 'src/main.js')] });
  t.match(manifest, { name: 'sample', version: '1.2.3', packages: { dependency: '4.5.6' } });
  t.same(
    manifest.files.map(({ path }) => path),
    ['package.json', 'src/a.js', 'src/data/table.json', 'src/inner.js', 'src/later.js', 'src/main.js', 'src/worker.js'],
  );
  const more = await describeProgram({ entries: [join(root, 'src/main.js')], include: ['src/data/extra.txt'] });
  t.same(differences(manifest, more.manifest), ['file src/data/extra.txt is missing here']);
});

t.test('the same files have the same hash wherever they are; any change of any file or package has another', async (t) => {
  const [one, two] = [folderOf(sample), folderOf(sample)];
  const hash = async (root: string): Promise<string> => (await describeProgram({ entries: [join(root, 'src/main.js')] })).manifest.hash;
  const before = await hash(one);
  t.equal(await hash(two), before);
  write(two, { 'src/unused.js': 'changed' });
  t.equal(await hash(two), before, 'what the program does not import is not part of it');
  const { manifest } = await describeProgram({ entries: [join(one, 'src/main.js')] });
  const changed = [...manifest.files.map(({ path }) => path), 'node_modules/dependency/package.json'];
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...changed), fc.nat(), async (path, n) => {
      const original = sample[path as keyof typeof sample];
      write(two, {
        [path]: path.endsWith('dependency/package.json')
          ? `{"name":"dependency","version":"9.0.${n}"}`
          : `${original}\n${' '.repeat(n % 50)}`,
      });
      const after = await describeProgram({ entries: [join(two, 'src/main.js')] });
      write(two, { [path]: original });
      const lines = differences(manifest, after.manifest);
      return after.manifest.hash !== before && lines.length === 1;
    }),
    { numRuns: 30, seed: 3 },
  );
  t.equal(await hash(two), before);
});

t.test('what is missing or outside is named', async (t) => {
  const cases: [Record<string, string>, RegExp][] = [
    [{ 'src/main.js': `import './gone.js';` }, /main\.js imports \.\/gone\.js, and there is no such file/],
    [{ 'src/main.js': `import 'absent';` }, /imports the package absent, which is not installed/],
    [{ 'src/main.js': `import 'sample/no-such-export';` }, /its own package does not resolve/],
    [{ 'src/main.js': `import {` }, /main\.js cannot be read as a module/],
    [{ 'src/main.js': `import '../../outside.js';` }, /outside\.js, (and there is no such file|which is outside)/],
  ];
  for (const [files, message] of cases) {
    const root = folderOf({ ...sample, ...files });
    await t.rejects(describeProgram({ entries: [join(root, 'src/main.js')] }), { code: 'SINKFLEX_BAD_PROGRAM', message });
  }
  const root = folderOf(sample);
  const other = folderOf({ 'x.js': '' });
  symlinkSync(join(other, 'x.js'), join(root, 'src/linked.js'));
  write(root, { 'src/main.js': `import './linked.js';` });
  await t.rejects(describeProgram({ entries: [join(root, 'src/main.js')] }), { message: /outside of the program's folder/ });
});

t.test('the program that runs here lists its actors by their ids', async (t) => {
  const { Probe } = await import('./fixtures/actors.ts');
  const { manifest } = await describeProgram();
  t.match(manifest.actors[Probe.id], { path: /test\/runtime\/fixtures\/actors\.[jt]s$/, exportName: 'Probe' });
  t.ok(manifest.files.length > 20);
});

t.test('a bundle is stored once, opened whole, and refused when anything in it was touched', async (t) => {
  const root = folderOf(sample);
  const cache = folderOf({});
  const program = await describeProgram({ entries: [join(root, 'src/main.js')] });
  const folders = await Promise.all([1, 2, 3].map(() => storeProgram(program, cache)));
  t.same(new Set(folders).size, 1);
  t.same(readdirSync(cache), [program.manifest.hash], 'nothing temporary is left');
  const folder = folders[0]!;
  t.same((await openProgram(folder)).manifest, program.manifest);
  const refusal = (message: RegExp): { code: string; message: RegExp } => ({ code: 'SINKFLEX_BAD_PROGRAM', message });
  write(folder, { 'src/a.js': 'something else' });
  await t.rejects(openProgram(folder), refusal(/src\/a\.js in .* is not the file of the manifest/));
  t.equal(await storeProgram(program, cache), folder, 'a damaged one is made again');
  await openProgram(folder);
  unlinkSync(join(folder, 'src/later.js'));
  await t.rejects(openProgram(folder), refusal(/src\/later\.js is missing/));
  await t.rejects(openProgram(join(cache, 'nowhere')), refusal(/holds no program/));
  write(root, { 'src/a.js': 'export const a = 2;' });
  await t.rejects(storeProgram(program, cache), refusal(/src\/a\.js has changed since/));
});

t.test('a manifest that was received cannot lead out of its folder or lie about its hash', async (t) => {
  const root = folderOf(sample);
  const { manifest } = await describeProgram({ entries: [join(root, 'src/main.js')] });
  t.same(parseManifest(JSON.stringify(manifest)), manifest);
  for (const path of ['../x', '/etc/passwd', 'a/../../x', '', '.sinkflex-program.json', 7]) {
    const files = [{ ...manifest.files[0], path }];
    t.throws(() => parseManifest(JSON.stringify({ ...manifest, files })), { code: 'SINKFLEX_BAD_PROGRAM' }, String(path));
  }
  t.throws(() => parseManifest(JSON.stringify({ ...manifest, packages: { dependency: '6.6.6' } })), { message: /hash that it names/ });
  for (const text of ['', 'null', '[]', '{"files":[null]}', JSON.stringify({ ...manifest, files: [{}] })])
    t.throws(() => parseManifest(text), { code: 'SINKFLEX_BAD_PROGRAM' }, text.slice(0, 20));
});
