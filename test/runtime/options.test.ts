// Every function that takes options refuses names that are none, and says which was meant: a misspelt option is never silently its default.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import * as runtime from '../../runtime/index.ts';
import { lookUntil } from '../until.ts';
import { Counter } from './fixtures/actors.ts';
import { add } from './fixtures/tasks.ts';

const {
  ActorPool,
  createCollective,
  createQueue,
  defineActor,
  describeProgram,
  drainNode,
  get,
  init,
  injectFaults,
  joinCollective,
  joinHead,
  kill,
  placementGroup,
  put,
  ready,
  shutdown,
  spawn,
  spawnGroup,
  stack,
  startHead,
  task,
  wait,
  withOptions,
} = runtime;

/** Called with options that TypeScript would refuse. */
type Given = never;
interface Row {
  /** Of runtime/index.ts, with a method of what it makes. */
  of: string;
  call: (options: Given) => unknown;
  /** A slip, and what was meant. */
  slip: [string, string];
  /** Names that are right with a value that is not. */
  outOfBounds?: object;
}

delete process.env.NODE_OPTIONS;
const base = mkdtempSync(join(tmpdir(), 'sf-o-'));
await init({ onOutput: () => {}, channels: { idleMs: 100, most: 8 } });
const counter = spawn(Counter, { isolation: 'thread' });
await ready(counter);
const queue = createQueue<number>({ isolation: 'thread' });
const group = spawnGroup(Counter, 1, { isolation: 'thread' });
const bundles = placementGroup([{ cpus: 1 }]);
const collective = await joinCollective(createCollective(1), 0);
const observer = await runtime.RunObserver.attach(runtime.chooseRun(runtime.runFolder()));
t.teardown(async () => {
  observer.close();
  await shutdown();
  rmSync(base, { recursive: true, force: true });
});

const late = { timeoutMs: -1 };
const { listActorLoad, listEvents, listGroups, listObjects, listTasks, listWorkers, summary } = runtime;
const lists = { listActorLoad, listEvents, listGroups, listObjects, listTasks, listWorkers, summary };
const rows: Row[] = [
  { of: 'ActorPool', call: (o) => new ActorPool([counter], o), slip: ['perActors', 'perActor'], outOfBounds: { perActor: 0 } },
  { of: 'Collective.barrier', call: (o) => collective.barrier(o), slip: ['timeout', 'timeoutMs'] },
  { of: 'createCollective', call: (o) => createCollective(1, o), slip: ['chunkByte', 'chunkBytes'] },
  { of: 'createQueue', call: (o) => createQueue(o), slip: ['maxsize', 'maxSize'], outOfBounds: { maxSize: 0 } },
  { of: 'createQueue: put', call: (o) => queue.put(1, o), slip: ['timeout', 'timeoutMs'], outOfBounds: late },
  { of: 'createQueue: getMany', call: (o) => queue.getMany(1, o), slip: ['timeout', 'timeoutMs'], outOfBounds: late },
  { of: 'defineActor', call: (o) => defineActor(import.meta.url, 'X', class {}, o), slip: ['concurencyGroups', 'concurrencyGroups'] },
  {
    of: 'defineActor: concurrencyGroups',
    call: (o) => defineActor(import.meta.url, 'X', class {}, { concurrencyGroups: { a: o } }),
    slip: ['method', 'methods'],
  },
  { of: 'describeProgram', call: (o) => describeProgram(o), slip: ['includes', 'include'] },
  { of: 'drainNode', call: (o) => drainNode('local', o), slip: ['timeout', 'timeoutMs'], outOfBounds: late },
  { of: 'get', call: (o) => get(put(1), o), slip: ['timeout', 'timeoutMs'], outOfBounds: late },
  { of: 'init', call: (o) => init(o), slip: ['sharedWorker', 'sharedWorkers'], outOfBounds: { sharedWorkers: 0 } },
  { of: 'init: channels', call: (o) => init({ channels: o }), slip: ['idleM', 'idleMs'], outOfBounds: { most: 0 } },
  { of: 'init: warmWorkers', call: (o) => init({ warmWorkers: o }), slip: ['proces', 'process'], outOfBounds: { process: -1 } },
  { of: 'injectFaults', call: (o) => injectFaults({ faults: [] }, o), slip: ['starts', 'start'] },
  { of: 'injectFaults: start', call: (o) => injectFaults({ faults: [] }, { start: o }), slip: ['agents', 'agent'] },
  { of: 'joinCollective', call: (o) => joinCollective(createCollective(1), 0, o), slip: ['timeout', 'timeoutMs'] },
  {
    of: 'joinHead',
    call: (o: object) => joinHead({ address: base, ...o }),
    slip: ['label', 'labels'],
    outOfBounds: { sharedWorkers: 0 },
  },
  { of: 'spread', call: (o) => runtime.spread(1, [], o), slip: ['timeout', 'timeoutMs'], outOfBounds: late },
  { of: 'submitJob', call: (o) => runtime.submitJob(['true'], o), slip: ['jobs', 'job'] },
  { of: 'stopJob', call: (o) => runtime.stopJob('one', o), slip: ['timeout', 'timeoutMs'], outOfBounds: late },
  { of: 'kill', call: (o) => kill(counter, o), slip: ['restarts', 'restart'], outOfBounds: late },
  { of: 'logs', call: (o) => runtime.logs(counter, o), slip: ['tails', 'tail'], outOfBounds: { tail: -1 } },
  { of: 'metrics', call: (o) => runtime.metrics(o), slip: ['timeout', 'timeoutMs'], outOfBounds: late },
  {
    of: 'placementGroup',
    call: (o) => placementGroup([{ cpus: 1 }], o),
    slip: ['strategies', 'strategy'],
    outOfBounds: { strategy: 'NEAR' },
  },
  { of: 'placementGroup: a bundle', call: (o) => placementGroup([o]), slip: ['cpu', 'cpus'], outOfBounds: { cpus: -1 } },
  { of: 'placementGroup: ready', call: (o) => bundles.ready(o), slip: ['timeout', 'timeoutMs'], outOfBounds: late },
  { of: 'ready', call: (o) => ready(counter, o), slip: ['timeout', 'timeoutMs'], outOfBounds: late },
  { of: 'RunObserver: ask', call: (o) => observer.ask('status', o), slip: ['limits', 'limit'], outOfBounds: late },
  { of: 'shutdown', call: (o) => shutdown(o), slip: ['timeout', 'timeoutMs'], outOfBounds: late },
  { of: 'spawn', call: (o) => spawn(Counter, o), slip: ['maxRestart', 'maxRestarts'], outOfBounds: { maxRestarts: -1 } },
  { of: 'spawn: strategy', call: (o: object) => spawn(Counter, { strategy: { node: 'a', ...o } }), slip: ['sofd', 'soft'] },
  { of: 'spawnGroup', call: (o) => spawnGroup(Counter, 1, o), slip: ['supervison', 'supervision'], outOfBounds: { supervision: 'none' } },
  { of: 'spawnGroup: ready', call: (o) => group.ready(o), slip: ['timeout', 'timeoutMs'], outOfBounds: late },
  { of: 'spawnGroup: kill', call: (o) => group.kill(o), slip: ['drains', 'drain'], outOfBounds: late },
  { of: 'stack', call: (o) => stack(counter, o), slip: ['timeout', 'timeoutMs'], outOfBounds: late },
  {
    of: 'startHead',
    call: (o: object) => startHead({ folder: join(base, 'none'), ...o }),
    slip: ['metricPort', 'metricsPort'],
    outOfBounds: { folder: '' },
  },
  { of: 'status', call: (o) => runtime.status(o), slip: ['timeout', 'timeoutMs'], outOfBounds: late },
  { of: 'task', call: (o) => task(add, o), slip: ['maxRetrys', 'maxRetries'], outOfBounds: { maxRetries: -1 } },
  { of: 'timeline', call: (o) => runtime.timeline(o), slip: ['timeout', 'timeoutMs'], outOfBounds: late },
  { of: 'wait', call: (o) => wait([put(1)], o), slip: ['numReturn', 'numReturns'], outOfBounds: { numReturns: -1 } },
  { of: 'withOptions', call: (o) => withOptions(counter, o), slip: ['timeout', 'timeoutMs'], outOfBounds: late },
  ...Object.entries(lists).map(([of, list]): Row => ({ of, call: (o) => list(o), slip: ['limits', 'limit'], outOfBounds: { limit: -1 } })),
];

/** Those that take no object of options. */
const without = new Set(
  `allocate buildTimeline cancel checkFaultPlan chooseRun collectiveSlice controlPlane currentActor currentHost currentTask defineTask differences explain faultReportText findRuns
   getActor listActors listJobs listNodes metricsPort nodesWanted pendingDemand readJobLog onAbort onActorChange openProgram parseManifest put runFolder stackText storeProgram
   ActorGroup ActorBusyError ActorDiedError ActorFailedError CallAbortedError CallTimeoutError RemoteError RuntimeFailure`.split(/\s+/),
);

t.test('no function with options is missing here', async (t) => {
  const covered = new Set(rows.map(({ of }) => of.split(/[.:]/)[0]));
  const functions = Object.entries(runtime).filter(([, value]) => typeof value === 'function');
  t.same(
    functions.map(([name]) => name).filter((name) => !covered.has(name) && !without.has(name)),
    [],
  );
});

async function failureOf(call: Row['call'], options: unknown): Promise<unknown> {
  try {
    await call(options as Given);
    return 'it did not fail';
  } catch (error) {
    return error;
  }
}

for (const { of, call, slip, outOfBounds } of rows)
  t.test(of, async (t) => {
    const [slipped, meant] = slip;
    const error = (await failureOf(call, { [slipped]: 1 })) as Error;
    t.match(error, { code: 'SINKFLEX_BAD_OPTION' });
    t.match(error.message, `has no option "${slipped}"; did you mean "${meant}"? its options are `);
    if (outOfBounds !== undefined) t.match(await failureOf(call, outOfBounds), { code: 'SINKFLEX_BAD_OPTION' }, 'out of bounds');
  });

t.test('the fields that a list can be filtered by', async (t) => {
  for (const [list, field, message] of [
    ['listTasks', 'stat', /the list of tasks has no field "stat"; did you mean "state"\? its fields are actor, kind, /],
    ['listWorkers', 'memory.rrs', /did you mean "memory.rss"/],
    ['listWorkers', 'lag.p99Ms.x', /no field/],
    ['listActorLoad', 'kinds', /did you mean "kind"/],
    ['listGroups', 'strategi', /did you mean "strategy"/],
    ['listEvents', 'changed', /did you mean "change"/],
    ['listObjects', '__proto__', /no field/],
    ['summary', 'methods', /did you mean "method"/],
  ] as const)
    await t.rejects(
      lists[list]({ where: { [field]: '!x' } }) as Promise<unknown>,
      { code: 'SINKFLEX_BAD_OPTION', message },
      `${list} ${field}`,
    );
  await t.rejects(observer.ask('nodes', { where: { label: 'x' } }), { code: 'SINKFLEX_BAD_OPTION', message: /did you mean "labels"/ });
  // Names below these are whatever somebody gave.
  t.equal((await observer.ask('nodes', { where: { 'labels.zone': '!x' } })).total, 1);
  t.equal((await runtime.listEvents({ where: { 'details.anything': '' }, limit: 1 })).items.length, 1);
  t.ok((await runtime.listWorkers({ where: { 'memory.rss': '!0' } })).total >= 2);
});

t.test('channels close after the time that init() was given, and open again', async (t) => {
  t.equal(await counter.add(1), 1);
  const channels = async (): Promise<number> => (await listWorkers({ where: { worker: '0' } })).items[0]!.channels!;
  // Unless told otherwise they would stay open for a minute.
  t.equal(await lookUntil(channels, (open) => open === 0, 30_000), 0);
  t.equal(await counter.add(1), 2);
  t.equal(await channels(), 1);
});
