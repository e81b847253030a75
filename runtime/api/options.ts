// Checks what a user passes, and fills in defaults. Wrong options fail where they were written, not in a worker.
import { statSync } from 'node:fs';
import type { ActorSpec, Bundle, ResourceRequest, Strategy } from '../control/index.ts';
import { nodeCapacity } from '../node/capacity.ts';
import { defaultStoreBytes } from '../objects/index.ts';
import { bad, checkKnown, count, type Known, LONGEST_MS, ms } from './check.ts';
import type {
  BundleOptions,
  CallOptions,
  ChannelOptions,
  InitOptions,
  KillOptions,
  PlacementGroupOptions,
  PlacementOptions,
  ResourceOptions,
  SpawnOptions,
} from './types.ts';

const RESOURCES = { cpus: true, gpus: true, memory: true, resources: true } as const;

export const SPAWN: Known<SpawnOptions> = {
  ...RESOURCES,
  labels: true,
  strategy: true,
  placementGroup: true,
  bundle: true,
  args: true,
  name: true,
  getIfExists: true,
  lifetime: true,
  isolation: true,
  threads: true,
  maxRestarts: true,
  restartWindowMs: true,
  restartBackoffMs: true,
  maxConcurrency: true,
  maxPending: true,
  onFull: true,
  env: true,
  cwd: true,
  execArgv: true,
  checkpointIntervalMs: true,
  unresponsiveMs: true,
  imports: true,
};

const CALL: Known<CallOptions> = {
  timeoutMs: true,
  signal: true,
  maxRetries: true,
  retryOn: true,
  concurrencyGroup: true,
  cancellable: true,
  streamWindow: true,
};

const INIT: Known<InitOptions> = {
  ...RESOURCES,
  labels: true,
  address: true,
  objectStoreMemory: true,
  spillFolder: true,
  tokenFile: true,
  listen: true,
  tlsCert: true,
  tlsKey: true,
  tlsCa: true,
  warmWorkers: true,
  timeline: true,
  metricsPort: true,
  metricsTokenFile: true,
  sharedWorkers: true,
  maxInFlightBytes: true,
  channels: true,
  onOutput: true,
};

function folder(option: string, path: string): string {
  if (typeof path !== 'string' || !statSync(path, { throwIfNoEntry: false })?.isDirectory()) bad(option, path, 'a folder that is there');
  return path;
}

type Checked = Omit<
  ActorSpec,
  'actor' | 'kind' | 'definition' | 'module' | 'exportName' | 'methods' | 'streams' | 'args' | 'name' | 'concurrencyGroups' | 'owner'
> & {
  name: string | undefined;
};

export function checkSpawn(options: SpawnOptions): Checked {
  checkKnown('spawn', options, SPAWN);
  const { name, isolation = 'process', env = {}, imports = [], args, cwd, execArgv = [] } = options;
  if (name !== undefined && !/^[A-Za-z0-9._:/-]{1,128}$/.test(name)) bad('name', name, '1 to 128 characters of A-Z a-z 0-9 . _ : / -');
  if (isolation !== 'process' && isolation !== 'thread' && isolation !== 'shared')
    bad('isolation', isolation, "'process', 'thread' or 'shared'");
  if (Object.keys(env).length > 0 && isolation !== 'process') bad('env', JSON.stringify(env), "left out unless isolation is 'process'");
  if ((cwd !== undefined || execArgv.length > 0) && isolation !== 'process')
    bad(cwd === undefined ? 'execArgv' : 'cwd', cwd ?? execArgv.join(' '), "left out unless isolation is 'process'");
  if (options.onFull !== undefined && options.onFull !== 'wait' && options.onFull !== 'reject')
    bad('onFull', options.onFull, "'wait' or 'reject'");
  if (options.lifetime !== undefined && options.lifetime !== 'owned' && options.lifetime !== 'detached')
    bad('lifetime', options.lifetime, "'owned' or 'detached'");
  if (!Array.isArray(imports) || !imports.every((url) => URL.canParse(url)))
    bad('imports', imports, 'URLs of modules, such as import.meta.url');
  if (args !== undefined && !Array.isArray(args)) bad('args', args, 'an array of constructor arguments');
  return {
    name,
    isolation,
    env: { ...env },
    imports: [...imports],
    threads: count('threads', options.threads, Math.max(1, Math.floor(options.cpus ?? 1)), 1),
    request: checkRequest(options),
    getIfExists: options.getIfExists ?? false,
    lifetime: options.lifetime ?? 'owned',
    ...(cwd === undefined ? {} : { cwd }),
    execArgv: [...execArgv],
    checkpointIntervalMs: ms('checkpointIntervalMs', options.checkpointIntervalMs, 0),
    unresponsiveMs: ms('unresponsiveMs', options.unresponsiveMs, 0),
    maxRestarts: count('maxRestarts', options.maxRestarts, 0, 0),
    restartWindowMs: ms('restartWindowMs', options.restartWindowMs, 60_000),
    restartBackoffMs: ms('restartBackoffMs', options.restartBackoffMs, 100),
    maxConcurrency: count('maxConcurrency', options.maxConcurrency, 1, 1),
    maxPending: count('maxPending', options.maxPending, 10_000, 0),
    onFull: options.onFull ?? 'wait',
  };
}

const STRATEGIES: readonly Strategy[] = ['PACK', 'SPREAD', 'STRICT_PACK', 'STRICT_SPREAD'];

export function checkGroup(options: PlacementGroupOptions): {
  strategy: Strategy;
  name: string | undefined;
  lifetime: 'owned' | 'detached';
} {
  checkKnown('placementGroup', options, { strategy: true, name: true, lifetime: true });
  const { strategy = 'PACK', name, lifetime = 'owned' } = options;
  if (!STRATEGIES.includes(strategy)) bad('strategy', strategy, STRATEGIES.join(', '));
  if (lifetime !== 'owned' && lifetime !== 'detached') bad('lifetime', lifetime, "'owned' or 'detached'");
  return { strategy, name, lifetime };
}

export function checkBundles(bundles: readonly BundleOptions[]): Bundle[] {
  if (!Array.isArray(bundles) || bundles.length === 0) bad('bundles', bundles, 'a list of at least one bundle');
  return bundles.map((bundle) => {
    checkKnown('a bundle', bundle, { ...RESOURCES, labels: true });
    const { resources, labels } = checkRequest(bundle);
    if (Object.values(resources).every((value) => value === 0)) bad('bundles', JSON.stringify(bundle), 'bundles that reserve something');
    return { resources, labels };
  });
}

function amount(option: string, value: unknown): number {
  if (typeof value !== 'number' || !Number.isFinite(value) || value < 0 || Math.abs(value * 10_000 - Math.round(value * 10_000)) > 1e-6)
    bad(option, value, 'a number of at least 0, in steps of 0.0001');
  return value;
}

/** What a spawn, a task or a bundle asks of a node. */
export function checkRequest(options: PlacementOptions): ResourceRequest {
  const resources: Record<string, number> = {};
  for (const [key, value] of Object.entries(options.resources ?? {})) {
    if (key === 'cpus' || key === 'gpus' || key === 'memory') bad('resources', key, `other names; ${key} has an option of its own`);
    resources[key] = amount(`resources.${key}`, value);
  }
  for (const key of ['cpus', 'gpus', 'memory'] as const) if (options[key] !== undefined) resources[key] = amount(key, options[key]);
  const { strategy = 'hybrid', labels = {}, placementGroup, bundle } = options;
  if (strategy !== 'hybrid' && strategy !== 'spread' && typeof strategy?.node !== 'string')
    bad('strategy', JSON.stringify(strategy), "'hybrid', 'spread' or { node }");
  if (typeof strategy === 'object') checkKnown('strategy', strategy, { node: true, soft: true });
  return {
    resources,
    labels: { ...labels },
    strategy: typeof strategy === 'string' ? strategy : { node: strategy.node, soft: strategy.soft ?? false },
    ...(placementGroup === undefined ? {} : { group: groupId(placementGroup), bundle: count('bundle', bundle, -1, 0) }),
  };
}

function groupId(group: { readonly id: string }): string {
  if (typeof group?.id !== 'string') bad('placementGroup', group, 'the value of placementGroup(), or its { id }');
  return group.id;
}

const DRAIN_MS = 30_000;

/** graceMs 0: the usual. */
export function checkKill(options: KillOptions): { restart: boolean; drain: boolean; graceMs: number } {
  checkKnown('kill', options, { restart: true, drain: true, timeoutMs: true });
  const { restart = false, drain = false } = options;
  return { restart, drain, graceMs: ms('timeoutMs', options.timeoutMs, drain ? DRAIN_MS : 0) };
}

export function checkCall(options: CallOptions): CallOptions {
  checkKnown('withOptions', options, CALL);
  if (options.timeoutMs !== undefined) ms('timeoutMs', options.timeoutMs, 0);
  if (options.concurrencyGroup !== undefined && (typeof options.concurrencyGroup !== 'string' || options.concurrencyGroup === ''))
    bad('concurrencyGroup', options.concurrencyGroup, 'the name of a group of the actor');
  if (options.signal !== undefined && !(options.signal instanceof AbortSignal)) bad('signal', options.signal, 'an AbortSignal');
  count('maxRetries', options.maxRetries, 0, 0);
  count('streamWindow', options.streamWindow, 64, 1);
  if (options.retryOn !== undefined && typeof options.retryOn !== 'function') bad('retryOn', options.retryOn, 'a function');
  return options;
}

export interface CheckedInit
  extends Required<Pick<InitOptions, 'sharedWorkers' | 'maxInFlightBytes' | 'channels' | 'warmWorkers' | 'timeline' | 'objectStoreMemory'>>,
    Pick<InitOptions, 'spillFolder'> {
  /** Beside the address. */
  place: Pick<InitOptions, 'tokenFile' | 'listen' | 'tlsCert' | 'tlsKey' | 'tlsCa'>;
  /** What this node has for placement. */
  total: Record<string, number>;
  labels: Record<string, string>;
}

/** What a node has, unless told otherwise. */
export function checkTotal(options: ResourceOptions): Record<string, number> {
  const own = nodeCapacity();
  const { cpus = own.cpus, gpus = own.gpus, memory = own.memory, resources: more = {} } = options;
  const { resources } = checkRequest({ cpus, gpus, memory, resources: more });
  if ((resources.cpus ?? 0) <= 0) bad('cpus', options.cpus, 'more than 0');
  return resources;
}

/** Where a node keeps large values: what was given, checked. */
export function checkStore(
  options: Pick<InitOptions, 'objectStoreMemory' | 'spillFolder'>,
): Pick<InitOptions, 'objectStoreMemory' | 'spillFolder'> {
  const { objectStoreMemory, spillFolder } = options;
  return {
    ...(objectStoreMemory === undefined ? {} : { objectStoreMemory: count('objectStoreMemory', objectStoreMemory, 0, 2 ** 20) }),
    ...(spillFolder === undefined ? {} : { spillFolder: folder('spillFolder', spillFolder) }),
  };
}

/** How other hosts are reached. */
export function placeOptions(options: CheckedInit['place']): CheckedInit['place'] {
  const place: CheckedInit['place'] = {};
  for (const name of ['tokenFile', 'listen', 'tlsCert', 'tlsKey', 'tlsCa'] as const) {
    const value = options[name];
    if (value === undefined) continue;
    if (typeof value !== 'string' || value === '') bad(name, value, name === 'listen' ? 'host:port' : 'the path of a file');
    place[name] = value;
  }
  return place;
}

/** When channels are closed: what was given, checked. */
export function checkChannels(options: ChannelOptions = {}): ChannelOptions {
  checkKnown('channels', options, { idleMs: true, most: true });
  const { idleMs, most } = options;
  return {
    ...(idleMs === undefined ? {} : { idleMs: idleMs === Number.POSITIVE_INFINITY ? LONGEST_MS : ms('channels.idleMs', idleMs, 0) }),
    ...(most === undefined ? {} : { most: count('channels.most', most, 0, 1) }),
  };
}

export function checkInit(options: InitOptions): CheckedInit {
  checkKnown('init', options, INIT);
  const { warmWorkers = {} } = options;
  checkKnown('warmWorkers', warmWorkers, { process: true, thread: true });
  const { process, thread } = warmWorkers;
  const port = count('metricsPort', options.metricsPort, 0, 0);
  if (port > 65_535) bad('metricsPort', port, 'a port, 0 to 65535');
  return {
    total: checkTotal(options),
    labels: { ...options.labels },
    place: placeOptions(options),
    sharedWorkers: count('sharedWorkers', options.sharedWorkers, 1, 1),
    maxInFlightBytes: count('maxInFlightBytes', options.maxInFlightBytes, 2 ** 30, 1),
    channels: checkChannels(options.channels),
    timeline: options.timeline === true,
    objectStoreMemory: count('objectStoreMemory', options.objectStoreMemory, defaultStoreBytes(), 2 ** 20),
    ...(options.spillFolder === undefined ? {} : { spillFolder: folder('spillFolder', options.spillFolder) }),
    warmWorkers: {
      ...(process === undefined ? {} : { process: count('warmWorkers.process', process, 0, 0) }),
      ...(thread === undefined ? {} : { thread: count('warmWorkers.thread', thread, 0, 0) }),
    },
  };
}
