// The code in the documentation type-checks against the package as users import it. (Pieces of examples: test/examples.)
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import ts from 'typescript';

t.setTimeout(600_000);
const root = resolve(fileURLToPath(new URL('../../..', import.meta.url)));
const faces = ['runtime', 'kernels', 'actors'] as const;

/** What a page takes as given. Its blocks are told apart by their number only where that differs. */
const given: Record<string, string> = {
  'attention.md': 'declare const q: Float32Array, k: Float32Array, v: Float32Array, sink: Float32Array, dout: Float32Array;',
  'environments.md': `import { z } from 'zod';
    declare class Shop { orders: Map<string, string> }
    declare function refuse(why: string): never;`,
  'errors.md': 'declare const handle: { method(): Promise<void> };',
  'generation.md': `declare const store: import('sinkflex/kernels').WeightStore;
    declare const tokens: Int32Array;
    declare const seed: number, task: number, sample: number;`,
  'rewards.md': `type Messages = Parameters<import('sinkflex/actors').EngineStates['lastOf']>[0][number]['messages'];
    declare const liked: Messages, disliked: Messages;`,
  'runtime-calls.md': `declare function open(path: string): AsyncIterable<string>;
    declare const reader: import('sinkflex/runtime').ActorHandle<typeof Reader>;`,
  'runtime-collectives.md':
    "import { Trainer } from './runtime-collectives-0.ts';\ndeclare const trainers: import('sinkflex/runtime').ActorHandle<typeof Trainer>[];",
  'runtime-hosts.md': "declare const segment: import('sinkflex/kernels').VersionedSegment;",
  'runtime-objects.md': `declare class TrainerClass { step(batch: { tokens: Int32Array; masks: Uint8Array }): number; learn(rewards: Float32Array): void }
    declare const tokens: Int32Array, masks: Uint8Array;
    declare const trainer: import('sinkflex/runtime').HandleOf<TrainerClass>;
    declare const trainers: import('sinkflex/runtime').HandleOf<TrainerClass>[];
    declare function fill(array: Float32Array): void;`,
  'cuda.md': `import { sinkAttention } from 'sinkflex/kernels';
    declare const q: Float32Array, k: Float32Array, v: Float32Array, sink: Float32Array;
    declare const heads: number, kvHeads: number, headDim: number;`,
  'runtime-patterns.md': 'declare class EngineClass { health(): string; updateWeights(): void; generate(): string }',
  'runtime-placement.md': `declare const Trainer: import('sinkflex/runtime').ActorDefinition<new () => { step(): void }>;
    declare const Judge: typeof Trainer;
    const { Cluster } = await controlPlane();`,
  'runtime-tasks.md': `interface Tree { nodes: number }
    declare function parseTree(text: string): Tree;
    declare const files: string[];
    declare const parse: import('sinkflex/runtime').TaskDefinition<(text: string) => Tree>;
    declare const merge: import('sinkflex/runtime').TaskDefinition<(a: Tree, b: Tree) => Tree>;`,
  'training.md': `declare const folder: string;
    declare const engine: import('sinkflex/kernels').Engine;
    declare const collective: import('sinkflex/kernels').Collective;
    declare const dLogprobs: Float32Array, lr: number, version: number;`,
};

interface Block {
  page: string;
  number: number;
  line: number;
  code: string;
  /** As a comment in its first line says: a file that others import, or an example that this is part of. */
  named: string | undefined;
}

const pages = [
  'README.md',
  ...readdirSync(join(root, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];
const blocks = pages.flatMap((page): Block[] => {
  const text = readFileSync(join(root, page), 'utf8');
  return [...text.matchAll(/^```ts\n(.*?)^```/gms)].map((match, number) => ({
    page: page.replace('docs/', ''),
    number,
    line: text.slice(0, match.index).split('\n').length + 1,
    code: match[1]!,
    named: /^\/\/ ([\w./-]+\.ts)\b/.exec(match[1]!)?.[1],
  }));
});

/** Exports of each face, by name. */
function exportsOf(program: ts.Program): Map<string, string> {
  const checker = program.getTypeChecker();
  const all = new Map<string, string>();
  for (const face of faces) {
    const symbol = checker.getSymbolAtLocation(program.getSourceFile(join(root, `dist/${face}/index.d.ts`))!)!;
    for (const { name } of checker.getExportsOfModule(symbol)) if (!all.has(name)) all.set(name, face);
  }
  return all;
}

const options: ts.CompilerOptions = {
  module: ts.ModuleKind.NodeNext,
  target: ts.ScriptTarget.ES2023,
  lib: ['lib.es2023.d.ts', 'lib.esnext.disposable.d.ts'],
  types: ['node'],
  strict: true,
  noUncheckedIndexedAccess: false,
  allowImportingTsExtensions: true,
  erasableSyntaxOnly: true,
  skipLibCheck: true,
  noEmit: true,
};

/** What a block uses of the package and neither declares nor imports: pages name the import once. */
function imports(code: string, known: ReadonlyMap<string, string>): string {
  const source = ts.createSourceFile('block.ts', code, ts.ScriptTarget.ES2023, true);
  const used = new Set<string>();
  const declared = new Set<string>();
  const visit = (node: ts.Node): void => {
    if (ts.isIdentifier(node)) {
      const { parent } = node;
      const declares =
        ((ts.isVariableDeclaration(parent) || ts.isBindingElement(parent) || ts.isParameter(parent)) && parent.name === node) ||
        ts.isImportSpecifier(parent) ||
        ((ts.isClassDeclaration(parent) || ts.isFunctionDeclaration(parent) || ts.isInterfaceDeclaration(parent)) && parent.name === node);
      if (declares) declared.add(node.text);
      else if (!(ts.isPropertyAccessExpression(parent) && parent.name === node)) used.add(node.text);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return faces
    .map((face) => {
      const names = [...used].filter((name) => known.get(name) === face && !declared.has(name));
      return names.length === 0 ? '' : `import { ${names.join(', ')} } from 'sinkflex/${face}';`;
    })
    .join(' ');
}

t.test('what the pages show type-checks', (t) => {
  const base = ts.createProgram(
    faces.map((face) => join(root, `dist/${face}/index.d.ts`)),
    options,
  );
  const known = exportsOf(base);
  const files = new Map<string, { block: Block; text: string; before: number }>();
  for (const block of blocks) {
    const { page, number, code, named } = block;
    if (named?.startsWith('examples/')) continue;
    const before = `${imports(`${given[page] ?? ''}\n${code}`, known)}\n${withoutDeclared(given[page] ?? '', code, page, number)}\nexport {};\n`;
    const name = named ?? `${page.replace('.md', '')}-${number}.ts`;
    files.set(join(root, 'docs', name), { block, text: before + code, before: before.split('\n').length - 1 });
  }
  const host = ts.createCompilerHost(options);
  const { readFile, fileExists, getSourceFile } = host;
  host.fileExists = (name) => files.has(name) || fileExists(name);
  host.readFile = (name) => files.get(name)?.text ?? readFile(name);
  host.getSourceFile = (name, version, ...rest) => {
    const own = files.get(name);
    return own === undefined
      ? (base.getSourceFile(name) ?? getSourceFile(name, version, ...rest))
      : ts.createSourceFile(name, own.text, { languageVersion: ts.ScriptTarget.ES2023, impliedNodeFormat: ts.ModuleKind.ESNext }, true);
  };
  const program = ts.createProgram([...files.keys()], options, host);
  const wrong = ts.getPreEmitDiagnostics(program).map(({ file, start, messageText }) => {
    const own = file === undefined ? undefined : files.get(file.fileName);
    const text = ts.flattenDiagnosticMessageText(messageText, '\n');
    if (file === undefined || own === undefined) return text;
    const line = file.getLineAndCharacterOfPosition(start!).line - own.before;
    return `${own.block.page}:${own.block.line + line}: ${text}`;
  });
  t.same(wrong, []);
  t.ok(files.size > 20, `${files.size} blocks`);
  t.end();
});

/** A page may show what a later block of it takes as given. */
function withoutDeclared(prelude: string, code: string, page: string, number: number): string {
  const shown = [...code.matchAll(/^(?:export )?(?:const|class|function) (\w+)/gm)].map((match) => match[1]!);
  const lines = prelude
    .split('\n')
    .filter((line) => !shown.some((name) => new RegExp(`^\\s*(declare )?(const|class|function) ${name}\\b`).test(line)));
  const own = `./${page.replace('.md', '')}-${number}.ts`;
  return lines.filter((line) => !line.includes(own) && !(number === 0 && line.includes('typeof Trainer>[]'))).join(' ');
}
