// The fields that each list can be filtered by. The compiler keeps them in step with what is shown; a name that is none would otherwise
// match nothing, or with `!` everything.
import { didYouMean } from '../../kernels/host.ts';
import { RuntimeFailure } from '../api/errors.ts';
import type { ActorRow, EventInfo, GroupInfo, NodeInfo, ObjectInfo, SummaryRow, TaskInfo, WorkerInfo } from './facts.ts';

/** `any`: a record whose names are the user's (labels, resources), or values of several shapes. */
type Fields<T> = { readonly [K in keyof Required<T>]: true | 'any' | Readonly<Record<string, true>> };

interface Lists {
  actors: ActorRow;
  tasks: TaskInfo;
  objects: ObjectInfo;
  workers: WorkerInfo;
  nodes: NodeInfo;
  groups: GroupInfo;
  events: EventInfo;
  summary: SummaryRow;
}

export type ListName = keyof Lists;

const fields: { readonly [K in ListName]: Fields<Lists[K]> } = {
  actors: {
    id: true,
    name: true,
    kind: true,
    state: true,
    health: true,
    isolation: true,
    node: true,
    pid: true,
    incarnation: true,
    restarts: true,
    cause: true,
    running: true,
    queued: true,
  },
  tasks: {
    actor: true,
    kind: true,
    method: true,
    state: true,
    caller: true,
    call: true,
    worker: true,
    pid: true,
    ageMs: true,
    runningMs: true,
    remainingMs: true,
  },
  objects: {
    id: true,
    state: true,
    owner: true,
    pid: true,
    bytes: true,
    place: true,
    pins: true,
    origin: true,
    holders: 'any',
  },
  workers: {
    worker: true,
    name: true,
    isolation: true,
    pid: true,
    state: true,
    actors: true,
    running: true,
    queued: true,
    lag: { p50Ms: true, p99Ms: true, maxMs: true },
    memory: { rss: true, heapUsed: true, external: true },
    unanswered: true,
    bytesInFlight: true,
    channels: true,
    uptimeMs: true,
  },
  nodes: { node: true, state: true, labels: 'any', total: 'any', free: 'any', actors: true, leases: true, because: true },
  groups: {
    group: true,
    name: true,
    state: true,
    strategy: true,
    attempt: true,
    bundles: 'any',
    lifetime: true,
    owner: true,
    because: true,
  },
  events: { time: true, what: true, name: true, change: true, details: 'any' },
  summary: {
    kind: true,
    method: true,
    started: true,
    failed: true,
    running: true,
    queued: true,
    recorded: true,
    p50Ms: true,
    p99Ms: true,
    maxMs: true,
  },
};

/** Throws SINKFLEX_BAD_OPTION, with the names that there are, unless each is a field of that list. */
export function checkFields(list: ListName, where: Readonly<Record<string, string>>): void {
  const known: Readonly<Record<string, true | 'any' | Readonly<Record<string, true>>>> = fields[list];
  for (const path of Object.keys(where)) {
    const [first = '', second, ...rest] = path.split('.');
    const under = Object.hasOwn(known, first) ? known[first] : undefined;
    if (under === 'any') continue;
    if (under !== undefined && second === undefined) continue;
    if (typeof under === 'object' && second !== undefined && Object.hasOwn(under, second) && rest.length === 0) continue;
    const names = namesOf(known);
    const near = didYouMean(path, names);
    throw new RuntimeFailure(
      'SINKFLEX_BAD_OPTION',
      `the list of ${list} has no field ${JSON.stringify(path.slice(0, 100))}; ${near === undefined ? '' : `did you mean ${JSON.stringify(near)}? `}its fields are ${names.join(', ')}`,
    );
  }
}

function namesOf(known: Readonly<Record<string, true | 'any' | Readonly<Record<string, true>>>>): string[] {
  return Object.entries(known).flatMap(([name, under]) =>
    typeof under === 'object' ? Object.keys(under).map((each) => `${name}.${each}`) : [name],
  );
}
