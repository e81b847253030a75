// The state as plain data and back. Canonical: equal states give equal JSON, so "restored" can be checked byte by byte. What can be derived
// (free amounts, queues, names, indexes, who owns what) is not in it.
import type { Life } from './actor.ts';
import type { ClusterSnapshot, GroupState, LeaseId, OwnerId, Strategy, TerminateReason } from './cluster-types.ts';
import { newBundle } from './groups.ts';
import type { ResourceRequest } from './messages.ts';
import { moveIn } from './nodes.ts';
import { hold } from './placement.ts';
import { Pool, type TakenGpu } from './pool.ts';
import type { ActorRecord, GroupRecord, Holding, LeaseRecord, Seeker, Shape, State } from './state.ts';
import { enqueue, enqueueGroup } from './waiting.ts';

interface SavedHolding {
  node: string;
  bundle?: number;
  gpus: readonly TakenGpu[];
}

interface SavedSeeker {
  id: number | string;
  order: number;
  /** Index into `shapes`. */
  shape: number;
  owner?: OwnerId;
  near?: string;
  holding?: SavedHolding;
  /** Place in the queue. */
  seq?: number;
}

interface SavedActor extends SavedSeeker {
  id: number;
  name: string;
  definition: string;
  lifetime: 'owned' | 'detached';
  life: Life;
  delayMs: number;
  why?: TerminateReason;
  because?: string;
}

interface SavedLease extends SavedSeeker {
  id: LeaseId;
  owner: OwnerId;
}

interface SavedGroup {
  id: string;
  order: number;
  name?: string;
  strategy: Strategy;
  lifetime: 'owned' | 'detached';
  owner?: OwnerId;
  state: GroupState;
  complete: boolean;
  attempt: number;
  awaiting: string[];
  refused: string[];
  failures: number;
  delayMs?: number;
  seq?: number;
  because?: string;
  bundles: SavedBundle[];
}

interface SavedBundle {
  /** As they were asked for. */
  resources: Readonly<Record<string, number>>;
  labels: Readonly<Record<string, string>>;
  node?: string;
  gpus: readonly TakenGpu[];
  attempt: number;
  committed: boolean;
}

interface SavedNode {
  node: string;
  order: number;
  /** In amounts. */
  total: Record<string, number>;
  gpuIds: number[];
  labels: Readonly<Record<string, string>>;
  draining: boolean;
  suspect?: string;
}

interface Saved extends ClusterSnapshot {
  order: number;
  seq: number;
  nextNode: number;
  nodes: SavedNode[];
  shapes: ResourceRequest[];
  actors: SavedActor[];
  leases: SavedLease[];
  groups: SavedGroup[];
  dead: number[];
  removed: string[];
  endedLeases: LeaseId[];
  goneOwners: OwnerId[];
}

const plain = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;

export function snapshot(state: State): ClusterSnapshot {
  // By key: the shape of a dead actor may be another object than that of a living one.
  const shapes = new Map<string, number>();
  const requests: ResourceRequest[] = [];
  const seeker = (one: Seeker): Omit<SavedSeeker, 'id' | 'owner'> => {
    let shape = shapes.get(one.shape.key);
    if (shape === undefined) {
      shape = requests.push(one.shape.request) - 1;
      shapes.set(one.shape.key, shape);
    }
    return { order: one.order, shape, ...optional('near', one.near), ...optional('seq', one.ticket?.seq), ...holdingOf(one) };
  };
  const saved: Saved = {
    version: 1,
    random: state.random,
    remember: state.remember,
    order: state.order,
    seq: state.seq,
    nextNode: state.nodes.nextOrder,
    nodes: [...state.nodes.all()].map((node) => ({
      node: node.node,
      order: node.order,
      total: Object.fromEntries(node.pool.names.map((name, i) => [name, node.pool.total[i]!])),
      gpuIds: node.pool.devices.map(({ id }) => id),
      labels: node.labels,
      draining: node.draining,
      ...optional('suspect', node.suspect),
    })),
    actors: [...state.actors.values()].map((actor) => ({
      id: actor.id,
      ...seeker(actor),
      name: actor.name,
      definition: actor.definition,
      lifetime: actor.lifetime,
      life: actor.life,
      delayMs: actor.delayMs,
      ...optional('owner', actor.owner),
      ...optional('why', actor.why),
      ...optional('because', actor.because),
    })),
    leases: [...state.leases.values()].map((lease) => ({ id: lease.id, ...seeker(lease), owner: lease.owner })),
    groups: [...state.groups.values()].map(saveGroup),
    shapes: requests,
    dead: [...state.dead].map(({ id }) => id),
    removed: [...state.removed].map(({ id }) => id),
    endedLeases: [...state.endedLeases],
    goneOwners: [...state.goneOwners],
  };
  return plain(saved);
}

function optional<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
  return (value === undefined ? {} : { [key]: value }) as { [P in K]?: V };
}

function holdingOf({ holding }: Seeker): { holding?: SavedHolding } {
  if (holding === undefined) return {};
  return { holding: { node: holding.node.node, ...optional('bundle', holding.bundle?.index), gpus: holding.gpus } };
}

function saveGroup(group: GroupRecord): SavedGroup {
  return {
    id: group.id,
    order: group.order,
    ...optional('name', group.name),
    strategy: group.strategy,
    lifetime: group.lifetime,
    ...optional('owner', group.owner),
    state: group.state,
    complete: group.complete,
    attempt: group.attempt,
    awaiting: [...group.awaiting],
    refused: [...group.refused],
    failures: group.failures,
    ...optional('delayMs', group.delayMs),
    ...optional('seq', group.seq),
    ...optional('because', group.because),
    bundles: group.bundles.map((bundle) => ({
      resources: bundle.resources,
      labels: bundle.labels,
      ...optional('node', bundle.node?.node),
      gpus: bundle.gpus,
      attempt: bundle.attempt,
      committed: bundle.pool !== undefined,
    })),
  };
}

/** Into a state in which nothing has happened yet. */
export function restore(state: State, from: ClusterSnapshot): void {
  const saved = plain(from) as Saved;
  state.order = saved.order;
  state.seq = saved.seq;
  for (const { node, order, total, gpuIds, labels, draining, suspect } of saved.nodes) {
    state.nodes.nextOrder = order;
    const record = state.nodes.add(node, total, labels, gpuIds);
    if (draining) state.nodes.drain(record);
    if (suspect !== undefined) state.nodes.suspect(record, suspect);
  }
  state.nodes.nextOrder = saved.nextNode;
  for (const group of saved.groups) restoreGroup(state, group);
  const waiting: [seq: number, enqueue: () => void][] = [];
  for (const group of state.groups.values()) {
    if (group.seq !== undefined) waiting.push([group.seq, () => enqueueGroup(state, group, group.seq)]);
  }
  const dead = new Set(saved.dead);
  for (const one of saved.actors) {
    const actor = restoreActor(state, one, state.shapeOf(saved.shapes[one.shape]!), dead.has(one.id));
    if (one.seq !== undefined) waiting.push([one.seq, () => enqueue(state, actor, one.seq)]);
  }
  for (const one of saved.leases) {
    const lease = restoreLease(state, one, state.shapeOf(saved.shapes[one.shape]!));
    if (one.seq !== undefined) waiting.push([one.seq, () => enqueue(state, lease, one.seq)]);
  }
  waiting.sort(([a], [b]) => a - b);
  for (const [, stand] of waiting) stand();
  for (const id of saved.dead) state.dead.add(state.actors.get(id)!);
  for (const id of saved.removed) state.removed.add(state.groups.get(id)!);
  for (const id of saved.endedLeases) state.endedLeases.add(id);
  for (const owner of saved.goneOwners) state.goneOwners.add(owner);
}

function restoreGroup(state: State, saved: SavedGroup): void {
  const { bundles, awaiting, refused, ...rest } = saved;
  const group: GroupRecord = {
    kind: 'group',
    name: undefined,
    owner: undefined,
    delayMs: undefined,
    seq: undefined,
    because: undefined,
    ownedAt: 0,
    ...rest,
    awaiting: new Set(awaiting),
    refused: new Set(refused),
    bundles: [],
    drawers: new Set(),
  };
  bundles.forEach(({ resources, labels, node: on, gpus, attempt, committed }, index) => {
    const bundle = newBundle(group, index, resources, labels);
    group.bundles.push(bundle);
    bundle.attempt = attempt;
    const node = on === undefined ? undefined : state.nodes.get(on)!;
    if (node === undefined) return;
    bundle.node = node;
    bundle.gpus = gpus;
    node.pool.retake(bundle.needs, gpus);
    moveIn(node, bundle);
    state.nodes.update(node);
    if (committed) bundle.pool = new Pool(bundle.needs.names, bundle.needs.amounts, gpus);
  });
  state.groups.set(group.id, group);
  if (group.state !== 'removed') state.own(group.owner, group);
}

function restoreSeeker(state: State, seeker: Seeker, saved: SavedHolding | undefined): void {
  const { group: groupId } = seeker.shape.request;
  const group = groupId === undefined ? undefined : state.groups.get(groupId);
  group?.drawers.add(seeker);
  if (saved === undefined) return;
  const bundle = saved.bundle === undefined ? undefined : group!.bundles[saved.bundle]!;
  const holding: Holding = { node: state.nodes.get(saved.node)!, bundle, gpus: saved.gpus };
  (bundle?.pool ?? holding.node.pool).retake(seeker.shape.needs, holding.gpus);
  hold(state, seeker, holding);
}

function restoreActor(state: State, saved: SavedActor, shape: Shape, dead: boolean): ActorRecord {
  const { holding, seq: _seq, shape: _shape, ...rest } = saved;
  const actor: ActorRecord = {
    kind: 'actor',
    owner: undefined,
    near: undefined,
    why: undefined,
    because: undefined,
    ...rest,
    shape,
    life: lifeOf(saved.life),
    holding: undefined,
    tenantAt: 0,
    ownedAt: 0,
    ticket: undefined,
    before: undefined,
    after: undefined,
  };
  state.actors.set(actor.id, actor);
  if (dead) {
    state.leaveShape(shape);
    return actor;
  }
  state.own(actor.owner, actor);
  state.takeName(actor);
  restoreSeeker(state, actor, holding);
  return actor;
}

/** JSON drops what is undefined; the order of keys is that of born(). */
function lifeOf({ status, incarnation, restarts, recent, intent, failed, policy }: Life): Life {
  return { status, incarnation, restarts, recent, intent, failed, policy };
}

function restoreLease(state: State, saved: SavedLease, shape: Shape): LeaseRecord {
  const lease: LeaseRecord = {
    kind: 'lease',
    id: saved.id,
    order: saved.order,
    shape,
    owner: saved.owner,
    near: saved.near,
    holding: undefined,
    tenantAt: 0,
    ownedAt: 0,
    ticket: undefined,
  };
  state.leases.set(lease.id, lease);
  state.own(lease.owner, lease);
  restoreSeeker(state, lease, saved.holding);
  return lease;
}
