// defineActor: a class under a registered id. The id names a module and an export of the program; it is all that ever names code, and
// workers load it from the program's own modules.
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { checkKnown } from './check.ts';
import { RuntimeFailure } from './errors.ts';
import type { ActorClass, ActorDefinition, ActorOptions } from './types.ts';

/** What the runtime knows of a definition. */
export interface Definition extends ActorDefinition<ActorClass> {
  readonly module: string;
  readonly type: ActorClass;
  readonly methods: readonly string[];
  readonly concurrencyGroups: Record<string, { maxConcurrency: number; methods: string[] }>;
  /** Those of them that are generators. */
  readonly streams: readonly string[];
}

const reserved = new Set(['constructor', 'start', 'stop', 'drain', 'checkpoint', 'restore']);
const forbidden = new Set(['then', 'toJSON']);

interface Package {
  folder: string;
  name: string;
}

const packages = new Map<string, Package>();

/** The package that a file is of. */
export function packageOf(file: string): Package {
  const known = packages.get(dirname(file));
  if (known !== undefined) return known;
  const found = findPackage(file);
  packages.set(dirname(file), found);
  return found;
}

function findPackage(file: string): Package {
  for (let folder = dirname(file); ; folder = dirname(folder)) {
    const path = join(folder, 'package.json');
    if (existsSync(path)) {
      const { name } = JSON.parse(readFileSync(path, 'utf8')) as { name?: unknown };
      if (typeof name === 'string') return { folder, name };
    }
    if (dirname(folder) === folder) return { folder: dirname(file), name: 'main' };
  }
}

export const GeneratorFunction = function* () {}.constructor as FunctionConstructor;
export const AsyncGeneratorFunction = async function* () {}.constructor as FunctionConstructor;

/** `<package>/<module without extension>#<export>`; the same from the sources and from a build folder. */
export function idOf(module: string, exportName: string): string {
  if (!module.startsWith('file:')) return `${module}#${exportName}`;
  const file = fileURLToPath(module);
  const found = packageOf(file);
  const path = relative(found.folder, file).split(sep).join('/');
  return `${found.name}/${path.replace(/^dist\//, '').replace(/\.[cm]?[jt]s$/, '')}#${exportName}`;
}

/** Package -> URL of its folder, of the packages that these modules are of. */
export function rootsOf(modules: readonly string[]): Record<string, string> {
  const files = modules.filter((url) => url.startsWith('file:')).map((url) => packageOf(fileURLToPath(url)));
  return Object.fromEntries(files.map(({ name, folder }) => [name, pathToFileURL(folder).href]));
}

const registered = new Map<string, { id: string; module: string; exportName: string }>();

/** Notes a definition for the program's manifest. */
export function register(definition: { id: string; module: string; exportName: string }): void {
  registered.set(definition.id, definition);
}

/** Every definition that this process has made: what a program's manifest lists as its actors. */
export function registeredDefinitions(): { id: string; module: string; exportName: string }[] {
  return [...registered.values()];
}

/** The public methods of a class and its ancestors; what a handle answers and what a host runs. */
function methodsOf(type: ActorClass): { methods: string[]; streams: string[] } {
  const names = new Set<string>();
  const streams = new Set<string>();
  for (
    let prototype = type.prototype as object;
    prototype !== null && prototype !== Object.prototype;
    prototype = Object.getPrototypeOf(prototype)
  ) {
    for (const name of Object.getOwnPropertyNames(prototype)) {
      const property = Object.getOwnPropertyDescriptor(prototype, name);
      if (reserved.has(name) || typeof property?.value !== 'function' || names.has(name)) continue;
      names.add(name);
      if (property.value instanceof GeneratorFunction || property.value instanceof AsyncGeneratorFunction) streams.add(name);
    }
  }
  return { methods: [...names].sort(), streams: [...streams].sort() };
}

function groupsOf(
  kind: string,
  methods: readonly string[],
  groups: Record<string, { maxConcurrency: number; methods?: readonly string[] }>,
): Definition['concurrencyGroups'] {
  const owner = new Map<string, string>();
  const bad = (message: string): RuntimeFailure => new RuntimeFailure('SINKFLEX_BAD_DEFINITION', `actor ${kind}: ${message}`);
  return Object.fromEntries(
    Object.entries(groups).map(([name, group]) => {
      checkKnown(`concurrency group ${name}`, group, { maxConcurrency: true, methods: true });
      const { maxConcurrency, methods: members = [] } = group;
      if (name === '') throw bad('a concurrency group needs a name');
      if (!Number.isSafeInteger(maxConcurrency) || maxConcurrency < 1)
        throw bad(`maxConcurrency of group ${name} is ${maxConcurrency}; it must be an integer of at least 1`);
      for (const method of members) {
        if (!methods.includes(method)) throw bad(`group ${name} names ${method}(), which the class does not declare`);
        if (owner.has(method)) throw bad(`${method}() is in the groups ${owner.get(method)} and ${name}`);
        owner.set(method, name);
      }
      return [name, { maxConcurrency, methods: [...members] }];
    }),
  );
}

/**
 * Makes a class an actor. Export the result under the name given, from a module that starts nothing when it is imported.
 *
 * @example
 * export const Counter = defineActor(import.meta.url, 'Counter', class {
 *   #n = 0;
 *   add(by: number) { return (this.#n += by); }
 *   health() { return 'ok'; }
 * }, { concurrencyGroups: { control: { maxConcurrency: 1, methods: ['health'] } } });
 */
export function defineActor<C extends ActorClass>(
  module: string,
  exportName: string,
  type: C,
  options: ActorOptions<NoInfer<C>> = {},
): ActorDefinition<C> {
  if (typeof module !== 'string' || !URL.canParse(module))
    throw new RuntimeFailure('SINKFLEX_BAD_DEFINITION', 'the first argument of defineActor is import.meta.url');
  if (typeof exportName !== 'string' || exportName === '')
    throw new RuntimeFailure('SINKFLEX_BAD_DEFINITION', 'the second argument of defineActor is the name of the export');
  if (typeof type !== 'function')
    throw new RuntimeFailure('SINKFLEX_BAD_DEFINITION', `the third argument of defineActor is a class (${exportName})`);
  const { methods, streams } = methodsOf(type);
  const bad = methods.find((name) => forbidden.has(name));
  if (bad !== undefined)
    throw new RuntimeFailure(
      'SINKFLEX_BAD_DEFINITION',
      `actor ${exportName} declares ${bad}(), which would make its handle look like something else`,
    );
  checkKnown(`actor ${exportName}`, options, { concurrencyGroups: true });
  const concurrencyGroups = groupsOf(exportName, methods, options.concurrencyGroups ?? {});
  const definition = { id: idOf(module, exportName), kind: exportName, module, type, methods, streams, concurrencyGroups };
  register({ id: definition.id, module, exportName });
  return Object.freeze(definition) as unknown as ActorDefinition<C>;
}

export function definitionOf(value: unknown): Definition {
  const definition = value as Partial<Definition> | null | undefined;
  if (
    typeof definition !== 'object' ||
    definition === null ||
    typeof definition.id !== 'string' ||
    typeof definition.type !== 'function' ||
    !Array.isArray(definition.methods)
  ) {
    throw new RuntimeFailure('SINKFLEX_BAD_DEFINITION', 'this is not the value of defineActor');
  }
  return definition as Definition;
}

/** The class behind a registered id, loaded in a worker. */
export async function loadDefinition(module: string, exportName: string, id: string): Promise<Definition> {
  const loaded = (await import(module)) as Record<string, unknown>;
  const value = Object.hasOwn(loaded, exportName) ? loaded[exportName] : undefined;
  if (value === undefined) {
    throw new RuntimeFailure(
      'SINKFLEX_BAD_DEFINITION',
      `${module} exports no ${exportName}: export the value of defineActor under the name given to it`,
    );
  }
  const definition = definitionOf(value);
  if (definition.id !== id)
    throw new RuntimeFailure('SINKFLEX_BAD_DEFINITION', `${exportName} of ${module} is registered as ${definition.id}, not ${id}`);
  return definition;
}
