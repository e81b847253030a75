// The build joins modules: one instance of each whichever way it is imported, nothing of it left behind by a plain tsc, and workers of
// this very build see the same runtime as their actors.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import { init, shutdown, spawn } from '../../runtime/index.ts';
import { Importer } from './fixtures/importer.ts';

delete process.env.NODE_OPTIONS;

interface Plan {
  folders: string[];
  entries: string[];
  chunks: Record<string, string[]>;
}
const { assemble } = (await import(pathToFileURL(join(process.cwd(), 'scripts/build.mjs')).href)) as {
  assemble(compiled: string, out: string, plan: Plan): Promise<void>;
};

const modules: Record<string, string> = {
  'low/state.js': "export let count = 0; export function add() { count += 1; } export const url = import.meta.url; console.log('state');",
  'low/name.js': "export const name = 'low'; export default class Low {}",
  'low/only.js': "import { name } from './name.js'; export const only = 'only ' + name;",
  'low/index.js': "export { add, count } from './state.js'; export { default as Low, name } from './name.js';",
  'high/name.js':
    "import { name as below } from '../low/index.js'; export const name = 'high over ' + below; export const entry = new URL('./main.js', import.meta.url).href;",
  'high/index.js': "export * from './name.js'; export { add } from '../low/index.js'; export const later = () => import('./later.js');",
  'high/later.js':
    "import { count } from '../low/state.js'; import { name } from './name.js'; export const seen = () => name + ' ' + count;",
  'high/main.js': "import { add } from '../low/index.js'; add(); console.log('main');",
};
const plan: Plan = {
  folders: ['low', 'high'],
  entries: ['high/main.js'],
  chunks: { base: ['high/main.js'], face: ['high/index.js'] },
};
const program = `
  const of = (name) => import(new URL(name, import.meta.url));
  const face = await of('./high/index.js');
  const low = await of('./low/index.js');
  const state = await of('./low/state.js');
  await of('./high/main.js');
  face.add();
  console.log(JSON.stringify({
    same: face.add === state.add && low.add === state.add && low.Low === (await of('./low/name.js')).default,
    names: [face.name, low.name, (await of('./high/name.js')).name, (await of('./low/only.js')).only],
    counts: [state.count, low.count, (await face.later()).seen()],
    urls: [state.url, face.entry].map((url) => url.slice(new URL('.', import.meta.url).href.length)),
  }));
`;

function compiled(folder: string): void {
  for (const [name, code] of Object.entries({ ...modules, 'user.js': program })) {
    const file = join(folder, name);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, `${code}\n//# sourceMappingURL=${name.split('/').pop()}.map\n`);
    writeFileSync(`${file}.map`, JSON.stringify({ version: 3, file: name, sources: [`../src/${name}`], names: [], mappings: 'AAAA' }));
  }
  writeFileSync(join(folder, '.tsbuildinfo'), '{}');
}

function run(folder: string): { lines: string[]; seen: unknown } {
  const { stdout, stderr } = spawnSync(process.execPath, [join(folder, 'user.js')], { encoding: 'utf8' });
  if (stderr !== '') throw new Error(stderr);
  const lines = stdout.trim().split('\n');
  return { seen: JSON.parse(lines.pop()!), lines };
}

t.test('joined modules are those that they were: identity, live values, their own URLs, loaded once and in order', async (t) => {
  const root = t.testdir({ 'package.json': '{"type":"module"}', ts: {}, dist: {} });
  const [ts, dist] = [join(root, 'ts'), join(root, 'dist')];
  compiled(ts);
  await assemble(ts, dist, plan);
  const expected = {
    lines: ['state', 'main'],
    seen: {
      same: true,
      names: ['high over low', 'low', 'high over low', 'only low'],
      counts: [2, 2, 'high over low 2'],
      urls: ['low/state.js', 'high/main.js'],
    },
  };
  t.same(run(ts), expected);
  t.same(run(dist), expected);
  t.match(readFileSync(join(dist, 'low/state.js'), 'utf8'), /^export \{[^}]*\} from '\.\.\/joined\/base\.js';/);
  t.match(readFileSync(join(dist, 'high/main.js'), 'utf8'), /console\.log\('main'\)/, 'what starts something stays its own file');
  t.match(readFileSync(join(dist, 'joined/base.js'), 'utf8'), /'state'/);
  t.notMatch(readFileSync(join(dist, 'joined/base.js'), 'utf8'), /high over|only/, 'nothing that the first does not need');
  const { sources } = JSON.parse(readFileSync(join(dist, 'joined/base.js.map'), 'utf8')) as { sources: string[] };
  t.same(sources.sort(), ['../src/low/name.js', '../src/low/state.js'], 'stacks can be read back to the sources');
  await t.rejects(assemble(ts, dist, { ...plan, chunks: { base: ['low/gone.js'] } }), /low\/gone\.js, which the build has not/);
});

t.test('the build writes what changed only, and what tsc wrote in between is replaced as a whole', async (t) => {
  const root = t.testdir({ 'package.json': '{"type":"module"}', ts: {}, dist: {} });
  const [ts, dist] = [join(root, 'ts'), join(root, 'dist')];
  compiled(ts);
  compiled(dist);
  await assemble(ts, dist, plan);
  t.notOk(existsSync(join(dist, '.tsbuildinfo')), 'a plain tsc will write all files, since it finds no notes');
  const { seen } = run(dist);
  const [base, user] = [join(dist, 'joined/base.js'), join(dist, 'user.js')];
  for (const file of [base, user]) utimesSync(file, 1000, 1000);
  await assemble(ts, dist, plan);
  t.same(
    [base, user].map((file) => statSync(file).mtimeMs),
    [1_000_000, 1_000_000],
    'nothing is touched',
  );
  compiled(dist);
  t.match(readFileSync(join(dist, 'low/state.js'), 'utf8'), /count \+= 1/);
  await assemble(ts, dist, plan);
  t.match(readFileSync(join(dist, 'low/state.js'), 'utf8'), /joined\/base/);
  writeFileSync(join(ts, 'low/name.js'), "export const name = 'new'; export default class Low {}\n");
  await assemble(ts, dist, plan);
  t.match(run(dist).seen, { names: ['high over new', 'new'] });
  t.match(seen, { names: ['high over low', 'low'] });
});

t.test("a worker's own modules are those that its actor imports, by every way to them", async (t) => {
  await init();
  t.teardown(() => shutdown());
  for (const isolation of ['process', 'thread', 'shared'] as const)
    t.same(
      await spawn(Importer, { isolation }).look(),
      { face: true, package: true, inside: true, errors: true, mine: 'Importer' },
      isolation,
    );
});
