// The state of the cluster: records of everything that lives, and the small operations that every part of the control plane shares. The
// parts (lives, leases, groups, waiting) are functions over it.
import type { Life } from './actor.ts';
import { type Needs, needsOf } from './amounts.ts';
import type { ActorId, ClusterEffect, GroupId, GroupState, LeaseId, OwnerId, Strategy, TerminateReason } from './cluster-types.ts';
import { type Selector, selectorOf } from './labels.ts';
import type { ResourceRequest } from './messages.ts';
import { type NodeRecord, Nodes } from './nodes.ts';
import type { Pool, TakenGpu } from './pool.ts';
import { nextState, unitOf } from './random.ts';

/** What an actor or a lease asks for. Equal requests share one shape, and those that wait stand in its queue in order of arrival. */
export interface Shape {
  readonly key: string;
  readonly request: ResourceRequest;
  readonly needs: Needs;
  readonly selector: Selector;
  /** Actors and leases that have it; at 0 it is forgotten. */
  uses: number;
  queue: Ticket[];
  /** First ticket of the queue that may still be waiting. */
  head: number;
}

/** A place in a queue. */
export interface Ticket {
  /** Order of arrival among all that wait. */
  readonly seq: number;
  readonly subject: Seeker;
  /** It does not wait any more. */
  gone: boolean;
}

export interface Holding {
  readonly node: NodeRecord;
  /** Undefined: from the node itself. */
  readonly bundle: BundleRecord | undefined;
  readonly gpus: readonly TakenGpu[];
}

export interface ActorRecord {
  readonly kind: 'actor';
  readonly id: ActorId;
  /** Order of creation among all records. */
  readonly order: number;
  readonly name: string;
  readonly definition: string;
  readonly shape: Shape;
  readonly lifetime: 'owned' | 'detached';
  readonly owner: OwnerId | undefined;
  readonly near: string | undefined;
  life: Life;
  holding: Holding | undefined;
  tenantAt: number;
  ownedAt: number;
  ticket: Ticket | undefined;
  /** Who has its name and has yet to die, and who gets it next. */
  before: ActorRecord | undefined;
  after: ActorRecord | undefined;
  /** Of the wait before the next start. */
  delayMs: number;
  /** Why it is being ended. */
  why: TerminateReason | undefined;
  because: string | undefined;
}

export interface LeaseRecord {
  readonly kind: 'lease';
  readonly id: LeaseId;
  readonly order: number;
  readonly shape: Shape;
  readonly owner: OwnerId;
  readonly near: string | undefined;
  holding: Holding | undefined;
  tenantAt: number;
  ownedAt: number;
  ticket: Ticket | undefined;
}

export type Seeker = ActorRecord | LeaseRecord;

export interface BundleRecord {
  readonly kind: 'bundle';
  readonly group: GroupRecord;
  readonly index: number;
  readonly resources: Readonly<Record<string, number>>;
  readonly labels: Readonly<Record<string, string>>;
  readonly needs: Needs;
  readonly selector: Selector;
  /** Undefined: not placed. */
  node: NodeRecord | undefined;
  gpus: readonly TakenGpu[];
  tenantAt: number;
  /** The attempt that placed it. */
  attempt: number;
  /** What actors and leases take from; undefined until it is committed. */
  pool: Pool | undefined;
  /** Actors and leases in it. */
  users: number;
}

export interface GroupRecord {
  readonly kind: 'group';
  readonly id: GroupId;
  readonly order: number;
  readonly name: string | undefined;
  readonly strategy: Strategy;
  readonly bundles: BundleRecord[];
  readonly lifetime: 'owned' | 'detached';
  readonly owner: OwnerId | undefined;
  ownedAt: number;
  state: GroupState;
  /** It was created once: what it lost is placed again. */
  complete: boolean;
  attempt: number;
  /** Nodes that have not answered the current attempt. */
  readonly awaiting: Set<string>;
  /** Nodes that refused since the last success: asked last. */
  readonly refused: Set<string>;
  /** Failed attempts since the last success. */
  failures: number;
  /** Undefined: no wait before the next attempt is under way. */
  delayMs: number | undefined;
  /** Place in the order of arrival, while it waits for room. */
  seq: number | undefined;
  because: string | undefined;
  /** Actors (not dead) and leases that draw from it. */
  readonly drawers: Set<Seeker>;
}

export class State {
  readonly nodes = new Nodes();
  readonly actors = new Map<ActorId, ActorRecord>();
  readonly groups = new Map<GroupId, GroupRecord>();
  readonly leases = new Map<LeaseId, LeaseRecord>();
  /** Whom a name means: of those that are not dead and have it, the last. */
  readonly names = new Map<string, ActorRecord>();
  /** In no order; a record knows its index. */
  readonly owned = new Map<OwnerId, (Seeker | GroupRecord)[]>();
  readonly shapes = new Map<string, Shape>();

  /** Remembered ends, oldest first. */
  readonly dead = new Set<ActorRecord>();
  readonly removed = new Set<GroupRecord>();
  readonly endedLeases = new Set<LeaseId>();
  readonly goneOwners = new Set<OwnerId>();
  readonly remember: number;

  readonly waitingShapes = new Set<Shape>();
  readonly waitingGroups = new Set<GroupRecord>();

  // What the event that is being applied has brought about, to be followed up before it is over (cluster.ts).
  readonly freedNodes = new Set<NodeRecord>();
  readonly freedGroups = new Set<GroupRecord>();
  readonly idleBundles = new Set<BundleRecord>();
  readonly endedOwners: OwnerId[] = [];
  effects: ClusterEffect[] = [];
  now = 0;

  order = 0;
  seq = 0;
  /** Of mulberry32; part of the state, so that a replay draws the same. */
  random: number;

  constructor(seed: number, remember: number) {
    this.random = seed >>> 0;
    this.remember = remember;
  }

  /** An integer from 0 to n - 1. */
  readonly draw = (n: number): number => {
    if (n <= 1) return 0;
    this.random = nextState(this.random);
    return Math.floor(unitOf(this.random) * n);
  };

  emit(effect: ClusterEffect): void {
    const last = this.effects.at(-1);
    // Several changes of one actor at once are one piece of news.
    if (effect.type === 'announce' && last?.type === 'announce' && last.actor === effect.actor) return;
    this.effects.push(effect);
  }

  /** Only a node that is still there is told anything. */
  isUp(node: NodeRecord): boolean {
    return this.nodes.get(node.node) === node;
  }

  // --- shapes

  shapeOf(request: ResourceRequest): Shape {
    const key = shapeKey(request);
    let shape = this.shapes.get(key);
    if (shape === undefined) {
      shape = { key, request, needs: needsOf(request.resources), selector: selectorOf(request.labels), uses: 0, queue: [], head: 0 };
      this.shapes.set(key, shape);
    }
    shape.uses++;
    return shape;
  }

  leaveShape(shape: Shape): void {
    if (--shape.uses === 0) this.shapes.delete(shape.key);
  }

  // --- owners

  ownerLives(owner: OwnerId): boolean {
    if (owner.startsWith('driver/')) return !this.goneOwners.has(owner);
    const [, id, incarnation] = owner.split('/');
    const life = this.actors.get(Number(id))?.life;
    return life !== undefined && life.incarnation === Number(incarnation) && life.status !== 'dead' && life.status !== 'restarting';
  }

  own(owner: OwnerId | undefined, record: Seeker | GroupRecord): void {
    if (owner === undefined) return;
    const owned = this.owned.get(owner);
    if (owned !== undefined) record.ownedAt = owned.push(record) - 1;
    else {
      record.ownedAt = 0;
      this.owned.set(owner, [record]);
    }
  }

  disown(owner: OwnerId | undefined, record: Seeker | GroupRecord): void {
    const owned = owner === undefined ? undefined : this.owned.get(owner);
    if (owner === undefined || owned?.[record.ownedAt] !== record) return;
    const last = owned.pop()!;
    if (owned.length === 0) this.owned.delete(owner);
    if (last === record) return;
    owned[record.ownedAt] = last;
    last.ownedAt = record.ownedAt;
  }

  // --- names

  /** Stands in line for its name, behind those that have yet to die. */
  takeName(actor: ActorRecord): void {
    const before = this.names.get(actor.name);
    actor.before = before;
    if (before !== undefined) before.after = actor;
    this.names.set(actor.name, actor);
  }

  leaveName(actor: ActorRecord): void {
    const { before, after, name } = actor;
    if (after !== undefined) after.before = before;
    else if (before !== undefined) this.names.set(name, before);
    else this.names.delete(name);
    if (before !== undefined) before.after = after;
    actor.before = undefined;
    actor.after = undefined;
  }
}

/** Adds the newest; answers what is forgotten for it. */
export function rememberIn<T>(set: Set<T>, value: T, limit: number): T | undefined {
  set.add(value);
  if (set.size <= limit) return undefined;
  const oldest = set.values().next().value!;
  set.delete(oldest);
  return oldest;
}

/** Lengths go before texts, so that no two records have the same. */
function sorted(values: Readonly<Record<string, number | string>>): string {
  const keys = Object.keys(values);
  if (keys.length === 0) return '';
  if (keys.length > 1) keys.sort();
  let text = '';
  for (const key of keys) {
    const value = String(values[key]);
    text += `${key.length}:${key}${value.length}:${value}`;
  }
  return text;
}

/** Equal for requests that ask for the same. */
function shapeKey(request: ResourceRequest): string {
  const { strategy, group, bundle } = request;
  const how = typeof strategy === 'string' ? strategy : JSON.stringify([strategy.node, strategy.soft]);
  const where = group === undefined ? '' : JSON.stringify([group, bundle ?? -1]);
  return `${sorted(request.resources)}|${sorted(request.labels)}|${how}|${where}`;
}
