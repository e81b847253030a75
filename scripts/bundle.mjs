// Joins modules into few files, since Node's loader takes about half a millisecond for each file that a worker imports. The modules keep
// their files, which re-export from the joined ones: whichever way a module is imported, there is one instance of it.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { rollup } from 'rollup';

/** Folders of a build whose modules are looked at. */
export const folders = ['kernels', 'runtime'];

/** Modules that start something when they are imported; each stays a file of its own. */
export const entries = [
  'runtime/worker/thread-main.js',
  'runtime/worker/process-main.js',
  'runtime/worker/spare-main.js',
  'runtime/worker/stack-main.js',
  'runtime/node/monitor-main.js',
  'runtime/head/job-main.js',
  'runtime/tasks/thread-main.js',
];

/**
 * Joined files: what these import statically and no file before has. Whoever needs little comes first, so that a monitor thread does not
 * load what actors need, nor a worker what an agent needs.
 */
export const chunks = {
  host: ['kernels/host.js'],
  monitor: ['runtime/node/monitor-main.js'],
  stack: ['runtime/worker/stack-main.js'],
  worker: ['runtime/worker/thread-main.js', 'runtime/worker/process-main.js'],
  face: ['runtime/index.js', 'runtime/worker/rehearsal.js'],
  tasks: ['runtime/tasks/thread-main.js'],
  links: ['runtime/links/direct.js'],
  driver: [
    'runtime/api/local-run.js',
    'runtime/api/attached-run.js',
    'runtime/tasks/engine.js',
    'runtime/head/index.js',
    'runtime/node/index.js',
  ],
  engine: ['kernels/index.js'],
};

/** What a joined file says where its modules say import.meta.url. */
function urlOf(moduleFile, chunkFile) {
  const to = path.posix.relative(path.posix.dirname(chunkFile), moduleFile);
  return moduleFile === chunkFile ? 'import.meta.url' : `new URL('${to.startsWith('.') ? to : `./${to}`}', import.meta.url).href`;
}

/** Which joined file each module goes to, from what imports what. */
function assign(chunks, entries, importsOf) {
  const assigned = new Map();
  for (const [name, roots] of Object.entries(chunks)) {
    const seen = new Set();
    const queue = [...roots];
    for (let file = queue.pop(); file !== undefined; file = queue.pop()) {
      if (seen.has(file)) continue;
      seen.add(file);
      queue.push(...importsOf(file));
    }
    for (const file of seen) if (!assigned.has(file) && !entries.includes(file)) assigned.set(file, name);
  }
  return assigned;
}

/**
 * The files that take the place of those in `root`, by their path in it. Joined files are in `joined/`.
 *
 * @param {string} root Folder that tsc wrote.
 * @param {{ folders: string[], entries: string[], chunks: Record<string, string[]> }} plan
 * @returns {Promise<Map<string, string>>}
 */
export async function bundle(root, plan) {
  const files = plan.folders.flatMap((folder) =>
    readdirSync(path.join(root, folder), { recursive: true })
      .filter((name) => name.endsWith('.js'))
      .map((name) => `${folder}/${name.split(path.sep).join('/')}`),
  );
  for (const name of [...plan.entries, ...Object.values(plan.chunks).flat()])
    if (!files.includes(name)) throw new Error(`what scripts/bundle.mjs joins names ${name}, which the build has not: correct it there`);
  const nameOf = (id) => path.relative(root, id).split(path.sep).join('/');
  const build = await rollup({
    input: Object.fromEntries(files.map((name) => [name.slice(0, -'.js'.length), path.join(root, name)])),
    external: (id) => !id.startsWith('.') && !path.isAbsolute(id),
    preserveEntrySignatures: 'strict',
    treeshake: false,
    onLog(level, log, report) {
      // The first: in code that tsc adds, which allows for it. The second: modules that need each other when they are called.
      if (log.code !== 'THIS_IS_UNDEFINED' && log.code !== 'CIRCULAR_DEPENDENCY') report(level === 'warn' ? 'error' : level, log);
    },
    plugins: [
      {
        name: 'tsc-output',
        load: (id) => ({
          code: readFileSync(id, 'utf8').replace(/\n\/\/# sourceMappingURL=\S+\s*$/, '\n'),
          map: JSON.parse(readFileSync(`${id}.map`, 'utf8')),
        }),
        resolveImportMeta: (property, { moduleId, chunkId }) => (property === 'url' ? urlOf(nameOf(moduleId), chunkId) : null),
      },
    ],
  });
  let assigned;
  const { output } = await build.generate({
    dir: root,
    format: 'es',
    sourcemap: true,
    // A file of an older build must not find another function under a name.
    minifyInternalExports: false,
    hoistTransitiveImports: false,
    chunkFileNames: 'joined/[name].js',
    manualChunks(id, { getModuleInfo }) {
      const importsOf = (name) =>
        getModuleInfo(path.join(root, name))
          .importedIds.filter((to) => path.isAbsolute(to))
          .map(nameOf);
      assigned ??= assign(plan.chunks, plan.entries, importsOf);
      return assigned.get(nameOf(id));
    },
  });
  await build.close();
  return new Map(output.map((file) => [file.fileName, file.type === 'chunk' ? file.code : file.source]));
}
