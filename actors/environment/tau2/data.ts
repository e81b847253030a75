/** The benchmark's data folder: databases, tasks, splits, policies. Read once in a process and shared by all environments. */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { parse as parseToml } from 'smol-toml';
import { ActorsError, didYouMean } from '../../errors.ts';
import { exactJson, readExact } from '../../exact-json.ts';
import { airline } from './airline/index.ts';
import type { Domain, DomainName } from './domain.ts';
import { mock } from './mock/index.ts';
import { retail } from './retail/index.ts';
import { sha256 } from './table.ts';
import { readTasks, type Tau2Task } from './tasks.ts';
import { telecom } from './telecom/index.ts';

export interface DomainData {
  readonly domain: Domain;
  readonly tasks: readonly Tau2Task[];
  task(id: string): Tau2Task;
  /** Ids of a split, in the order of the tasks. */
  split(name: string): string[];
  readonly splits: readonly string[];
  policy(o: { solo: boolean; variant?: string }): string;
  /** Which state of the benchmark this is, where it is a known one; else the beginning of the tasks' digest. */
  readonly version: string;
}

/** sha256 of tasks.json (telecom: what of the whole set is there), and the version that it belongs to. */
const VERSIONS: Readonly<Record<string, string>> = {
  '8e03ebce7901bd62': 'v1.0.0 (a2c02472)',
  '76e1fa649a359bef': 'v0.2.0',
  ccd8ba737b4cc371: 'v1.0.0 (a2c02472)',
  '40d692b3fca780f4': 'v0.2.0',
  '37e562e1ae324257': 'v1.0.0 (a2c02472)',
  '192a2c143b3b512c': 'v1.0.0 (a2c02472)',
  '0d8bcd14798bf2e6': 'v1.0.0 (a2c02472)',
};

const loaded = new Map<string, DomainData>();

/** `folder`: the one with a folder a domain in it (`data/tau2/domains` of the original's repository). SINKFLEX_TAU2_DATA where it is not. */
export function tau2Data(folder: string, name: DomainName): DomainData {
  const key = `${resolve(folder)}\u0000${name}`;
  let data = loaded.get(key);
  if (!data) {
    data = load(locate(folder, name), name);
    loaded.set(key, data);
  }
  return data;
}

/** The domain's folder, whether the folder of the domains, of the data or of the repository was given. */
function locate(folder: string, name: DomainName): string {
  const places = ['.', 'domains', 'tau2/domains', 'data/tau2/domains', 'data'];
  for (const place of places) {
    const path = join(resolve(folder), place, name);
    if (existsSync(join(path, 'db.json')) || existsSync(join(path, 'db.toml'))) return path;
  }
  throw new ActorsError(
    'SINKFLEX_TAU2_DATA',
    `there is no ${name} domain of tau2-bench under ${resolve(folder)}: expected ${join(resolve(folder), name, 'db.json')}; ` +
      'sinkflex data tau2 fetches it, or name the folder (--tau2-data, or the option data)',
    { details: { folder: resolve(folder), domain: name } },
  );
}

function read(path: string): string {
  try {
    return path.endsWith('.gz') ? gunzipSync(readFileSync(path)).toString('utf8') : readFileSync(path, 'utf8');
  } catch (cause) {
    throw new ActorsError('SINKFLEX_TAU2_DATA', `cannot read ${path}: ${(cause as Error).message}`, { cause, details: { path } });
  }
}

function json(path: string): unknown {
  try {
    return readExact(read(path));
  } catch (cause) {
    if (cause instanceof ActorsError) throw cause;
    throw new ActorsError('SINKFLEX_TAU2_DATA', `${path} is no JSON: ${(cause as Error).message}`, { cause, details: { path } });
  }
}

function load(folder: string, name: DomainName): DomainData {
  let domain: Domain;
  try {
    domain = open(folder, name);
  } catch (cause) {
    if (cause instanceof ActorsError) throw cause;
    throw new ActorsError('SINKFLEX_TAU2_DATA', `the data under ${folder} do not fit: ${(cause as Error).message}`, {
      cause,
      details: { folder },
    });
  }
  const { tasks, version } = tasksOf(folder);
  const policies = new Map<string, string>();
  const byId = new Map(tasks.map((task) => [task.id, task]));
  const splitFile = join(folder, 'split_tasks.json');
  const splits = existsSync(splitFile) ? (JSON.parse(read(splitFile)) as Record<string, string[]>) : { base: tasks.map((task) => task.id) };
  const unknown = (what: string, wanted: string, known: string[]) => {
    const near = didYouMean(wanted, known);
    const hint = near ? `did you mean "${near}"?` : `known: ${known.slice(0, 12).join(', ')}${known.length > 12 ? ', ...' : ''}`;
    return new ActorsError('SINKFLEX_ENVIRONMENT_OPTION', `tau2-${name}: there is no ${what} "${wanted}": ${hint}`, {
      details: { environment: `tau2-${name}`, option: what, value: wanted },
    });
  };
  return {
    domain,
    tasks,
    splits: Object.keys(splits),
    version,
    task(id) {
      const found = byId.get(id);
      if (!found) throw unknown('task', id, [...byId.keys()]);
      return found;
    },
    split(which) {
      const ids = Object.hasOwn(splits, which) ? splits[which] : undefined;
      if (!ids) throw unknown('split', which, Object.keys(splits));
      const wanted = new Set(ids);
      return tasks.filter((task) => wanted.has(task.id)).map((task) => task.id);
    },
    policy(o) {
      const key = `${o.solo} ${o.variant}`;
      let text = policies.get(key);
      if (text === undefined) {
        text = policyOf(folder, name, o);
        policies.set(key, text);
      }
      return text;
    },
  };
}

function open(folder: string, name: DomainName): Domain {
  switch (name) {
    case 'retail':
      return retail(json(join(folder, 'db.json'))) as Domain;
    case 'airline':
      return airline(json(join(folder, 'db.json'))) as Domain;
    case 'mock':
      return mock(json(join(folder, 'db.json')), json(join(folder, 'user_db.json'))) as Domain;
    case 'telecom':
      return telecom(book(folder, 'db'), book(folder, 'user_db')) as Domain;
  }
}

/** The original's TOML; JSON of the same content where that is what there is. */
function book(folder: string, name: string): unknown {
  const toml = join(folder, `${name}.toml`);
  return existsSync(toml) ? exactJson(parseToml(read(toml), { integersAsBigInt: true }), 'bigints') : json(join(folder, `${name}.json`));
}

/** The whole set where it is there; the two smaller ones that the telecom domain also has otherwise. */
function tasksOf(folder: string): { tasks: Tau2Task[]; version: string } {
  for (const file of ['tasks.json', 'tasks_full.json', 'tasks_full.json.gz', 'tasks_base.json']) {
    const path = join(folder, file);
    if (statSync(path, { throwIfNoEntry: false })?.isFile()) {
      const text = read(path);
      const digest = sha256(text).slice(0, 16);
      return { tasks: readTasks(text), version: VERSIONS[digest] ?? `unknown (${digest})` };
    }
  }
  throw new ActorsError('SINKFLEX_TAU2_DATA', `there is no tasks.json in ${folder}`, { details: { folder } });
}

function policyOf(folder: string, name: DomainName, o: { solo: boolean; variant?: string }): string {
  if (name !== 'telecom') {
    const solo = join(folder, 'policy_solo.md');
    return read(o.solo && existsSync(solo) ? solo : join(folder, 'policy.md'));
  }
  const ending = o.solo ? '_solo' : '';
  const main = read(join(folder, `main_policy${ending}.md`));
  const support = o.variant === 'workflow' ? `tech_support_workflow${ending}.md` : 'tech_support_manual.md';
  return `<main_policy>\n${main}\n</main_policy>\n<tech_support_policy>\n${read(join(folder, support))}\n</tech_support_policy>`;
}
