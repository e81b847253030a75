// A file of settings, YAML or TOML by its name, as one layer of a configuration that knows on which line each key stands.
import { readFileSync } from 'node:fs';
import { dirname, extname } from 'node:path';
import { parse as parseToml, TomlError } from 'smol-toml';
import { isMap, isScalar, LineCounter, parseDocument } from 'yaml';
import { ConfigError } from './config-error.ts';

/** Settings from one place. `values` may be nested (`{ rollout: { n: 4 } }`), dotted (`{ 'rollout.n': 4 }`) or a mixture. */
export interface ConfigLayer {
  /** Where the values come from, for messages: a file name, `command line`, ... */
  source: string;
  values: Record<string, unknown>;
  /** What relative paths of env.module are relative to; the working directory unless given. */
  folder?: string;
  /** The line (from 1) of a dotted key, or of the group that holds it. */
  lineOf?: (key: string) => number | undefined;
}

/** A file as a layer: TOML where its name ends in .toml, else YAML. An empty file is an empty layer. TOML has no null: the text "null" is it. */
export function readConfigFile(path: string): ConfigLayer {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw new ConfigError([
      `${path}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unreadable'}); give the path of a YAML or TOML file`,
    ]);
  }
  const { values, lines } = extname(path).toLowerCase() === '.toml' ? readToml(path, text) : readYaml(path, text);
  return { source: path, values, folder: dirname(path), lineOf: (key) => nearest(lines, key) };
}

interface Content {
  values: Record<string, unknown>;
  lines: Map<string, number>;
}

function readYaml(path: string, text: string): Content {
  const lineCounter = new LineCounter();
  const document = parseDocument(text, { lineCounter });
  const fault = document.errors[0];
  if (fault) throw new ConfigError([`${path}:${fault.linePos?.[0].line ?? 1}: not YAML (${fault.message.split(/ at line |\n/)[0]})`]);
  const values: unknown = document.toJS() ?? {};
  if (typeof values !== 'object' || Array.isArray(values))
    throw new ConfigError([`${path}: must be a mapping of settings, such as "rollout: { n: 4 }"`]);
  const lines = new Map<string, number>();
  const note = (node: unknown, prefix: string): void => {
    if (!isMap(node)) return;
    for (const { key, value } of node.items) {
      if (!isScalar(key)) continue;
      const name = prefix + String(key.value);
      if (key.range) lines.set(name, lineCounter.linePos(key.range[0]).line);
      note(value, `${name}.`);
    }
  };
  note(document.contents, '');
  return { values: values as Record<string, unknown>, lines };
}

function readToml(path: string, text: string): Content {
  let values: Record<string, unknown>;
  try {
    values = parseToml(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const what = error.message.split('\n')[0]!.replace('Invalid TOML document: ', '');
    throw new ConfigError([`${path}:${error.line}: not TOML (${what})`]);
  }
  const lines = new Map<string, number>();
  let table: string[] = [];
  for (const [index, line] of text.split('\n').entries()) {
    const header = /^\s*\[\[?(.+?)\]/.exec(line)?.[1];
    const names = keyPath(header ?? /^([^=#]+)=/.exec(line)?.[1]);
    if (names === undefined) continue;
    const path = header === undefined ? [...table, ...names] : names;
    // A line of a text or list that goes over several may look like a key; what was parsed tells.
    if (path.reduce<unknown>((at, name) => (at as Record<string, unknown> | undefined)?.[name], values) === undefined) continue;
    if (header !== undefined) table = names;
    lines.set(path.join('.'), index + 1);
  }
  return { values: nullsOf(values) as Record<string, unknown>, lines };
}

/** The names of a bare, quoted or dotted TOML key; undefined for what is none. */
function keyPath(key: string | undefined): string[] | undefined {
  if (key === undefined) return undefined;
  const names: string[] = [];
  try {
    for (let at: unknown = parseToml(`${key} = 0`); typeof at === 'object'; ) {
      const [name, inner] = Object.entries(at as object)[0]!;
      names.push(name);
      at = inner;
    }
  } catch {
    return undefined;
  }
  return names;
}

function nullsOf(value: unknown): unknown {
  if (value === 'null') return null;
  if (Array.isArray(value)) return value.map(nullsOf);
  if (value === null || typeof value !== 'object' || value instanceof Date) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, nullsOf(inner)]));
}

function nearest(lines: ReadonlyMap<string, number>, key: string): number | undefined {
  for (let at = key; at !== ''; at = at.slice(0, Math.max(at.lastIndexOf('.'), 0))) {
    const line = lines.get(at);
    if (line !== undefined) return line;
  }
  return undefined;
}
