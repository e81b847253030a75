// The examples run and print what they promise; the pages' code is theirs; the pages' links and commands exist.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';

const root = fileURLToPath(new URL('../../../', import.meta.url));
const read = (path: string): string => readFileSync(join(root, path), 'utf8');

/** What each example prints. */
const examples: Record<string, RegExp> = {
  actors: /^5 7 12\n\[ \[ 'the', 4 \], \[ 'dock', 2 \] \]\n$/,
  attention: /head 0: .* together 1\.000\nhead 1: .* together 1\.000\nd\(sum of out\)\/d\(sink\): -[\d.]+, -[\d.]+\n$/,
  environment: /^problems: \[\]\n40 steps: 0\.\d\d -> 0\.[4-9]\d, /,
  patterns: /^1 4 9 16 25\n5050\n3 3 3\nActorDiedError\nincarnations 2 2 2\n$/,
  restart: /alive, incarnation 1[\s\S]*SINKFLEX_ACTOR_DIED SIGKILL may have run: true[\s\S]*incarnation 1 -> 2, another process: true/,
  tasks: /^2 3 5 7 11 13 17 19\n9592\nattempt 2\ntask primes\(\) was aborted; it may have run\n1 2 4 8 16 32 64 128 256 512\n$/,
  train: /^start [\s\S]*\ngrpo [\d.]+ s\n[\s\S]* -> [\d.]+ .*-tiny\n$/,
  weights: /version: 0[\s\S]*version: 1[\s\S]*log-probability -[\d.]+ -> -[\d.]+\n$/,
};

t.test('every example runs from its command', async (t) => {
  t.same(readdirSync(join(root, 'examples')).sort(), Object.keys(examples), 'all of them are here');
  const cwd = t.testdir();
  const { NODE_OPTIONS, ...env } = process.env; // without the test runner's loaders
  for (const [name, prints] of Object.entries(examples)) {
    const command = `dist/examples/${name}/main.js`;
    t.match(read(`examples/${name}/main.ts`).split('\n')[1], `node ${command}`, `${name}: the header tells the command`);
    const child = spawn(process.execPath, [join(root, command)], { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
    let [out, errors] = ['', ''];
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      out += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      errors += text;
    });
    const [code] = (await once(child, 'close')) as [number | null];
    t.equal(code, 0, `${name}: ${errors}`);
    t.match(out, prints, name);
  }
});

const pages = ['README.md', 'CONTRIBUTING.md', ...readdirSync(join(root, 'docs')).flatMap((f) => (f.endsWith('.md') ? [`docs/${f}`] : []))];

t.test('code that a page takes from an example is that code', async (t) => {
  let found = 0;
  for (const page of pages)
    for (const [, file, code] of read(page).matchAll(/```ts\n\/\/ (examples\/\S+)\n([\s\S]*?)```/g)) {
      found++;
      t.ok(read(file!).includes(code!), `${page} shows ${file} as it is`);
    }
  t.ok(found >= 4, `${found} pieces of code`);
});

t.test('links of the pages lead somewhere, and their commands exist', async (t) => {
  const scripts = Object.keys((JSON.parse(read('package.json')) as { scripts: Record<string, string> }).scripts);
  const help = spawnSync(process.execPath, [join(root, 'dist', 'scripts', 'sinkflex.js'), '--help'], { encoding: 'utf8' }).stdout;
  const commands = [...help.matchAll(/^ {2}([a-z]+) /gm)].map((match) => match[1]);
  for (const page of pages) {
    const text = read(page);
    for (const [, target] of text.matchAll(/\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)/g))
      t.ok(existsSync(join(root, dirname(page), target!)), `${page}: ${target}`);
    for (const [, script] of text.matchAll(/\bnpm run ([\w:]+)/g)) t.ok(scripts.includes(script!), `${page}: npm run ${script}`);
    for (const [, command] of text.matchAll(/\bnpx sinkflex (\w+)/g)) t.ok(commands.includes(command!), `${page}: sinkflex ${command}`);
  }
});
