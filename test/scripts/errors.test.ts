// Every error code and every environment variable that the sources name is documented, and nothing else is.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { errorsMarkdown } from '../../scripts/errors-page.ts';

const root = process.cwd();
const FLOORS = ['kernels', 'runtime', 'actors', 'scripts'];
/** Names that are neither: build-time definitions of the native code. */
const DEFINITIONS = /^SINKFLEX_(H|HPP|API_VERSION|BUILD_.*|HAVE_.*|ISA_.*|EXPORT|.*_H_?)$/;

/** SINKFLEX_... in quotation marks (an error code), or read from the environment. */
function named(): { codes: Set<string>; variables: Set<string> } {
  const codes = new Set<string>();
  const variables = new Set<string>();
  for (const floor of FLOORS) {
    for (const name of readdirSync(join(root, floor), { recursive: true, encoding: 'utf8' })) {
      const path = join(root, floor, name);
      if (!/\.(ts|mjs|cpp|h|cc|cu)$/.test(name) || name.includes('node_modules')) continue;
      const text = readFileSync(path, 'utf8');
      for (const [, variable] of text.matchAll(/(?:env\.|env\[['"]|getenv\(")(SINKFLEX_[A-Z0-9_]+)/g)) variables.add(variable!);
      for (const [, code] of text.matchAll(/['"`](SINKFLEX_[A-Z0-9_]+)['"`]|^\s+(?=SINKFLEX_[A-Z0-9_]+: ['"])/gm))
        if (code) codes.add(code);
      for (const [, code] of text.matchAll(/^\s+(SINKFLEX_[A-Z0-9_]+):/gm)) codes.add(code!);
    }
  }
  for (const variable of variables) codes.delete(variable);
  for (const code of codes) if (DEFINITIONS.test(code)) codes.delete(code);
  return { codes, variables };
}

const documented = (page: string): Set<string> =>
  new Set([...readFileSync(join(root, 'docs', page), 'utf8').matchAll(/^\| `(SINKFLEX_[A-Z0-9_]+)` \|/gm)].map((m) => m[1]!));
const difference = (a: Set<string>, b: Set<string>): string[] => [...a].filter((x) => !b.has(x)).sort();

t.test('docs/errors.md lists exactly the codes of the sources', async (t) => {
  const { codes } = named();
  const listed = documented('errors.md');
  t.ok(codes.size > 40, 'the scan finds codes');
  t.same(difference(codes, listed), [], 'codes without a line in docs/errors.md: add them to the table of their floor');
  t.same(difference(listed, codes), [], 'lines of docs/errors.md without a code');
  t.equal(
    readFileSync(join(root, 'docs/errors.md'), 'utf8'),
    errorsMarkdown(),
    'generated: npm run -s build && node dist/scripts/errors-page.js',
  );
});

t.test('docs/configuration.md lists exactly the environment variables of the sources', async (t) => {
  const { variables } = named();
  const listed = documented('configuration.md');
  t.ok(variables.has('SINKFLEX_CPU'));
  t.same(difference(variables, listed), []);
  t.same(difference(listed, variables), []);
});

t.test('the pages that messages point to exist', async (t) => {
  for (const page of ['docs/errors.md', 'docs/configuration.md']) t.ok(existsSync(join(root, page)), page);
});
