// The nodes of the cluster, and the index that finds one with room. Similar nodes share a tree (fit-tree.ts): those with the same resources
// in about the same sizes. Each label selector in use has trees of its own, over the nodes that it selects.
import { type Needs, STEPS } from './amounts.ts';
import { FitTree, type Order } from './fit-tree.ts';

import { EVERY_NODE, matches, type Selector } from './labels.ts';
import { Pool } from './pool.ts';

/** Selectors that keep trees; the longest unused goes first, and is built again when it is needed. */
const KEPT_VIEWS = 64;
const COUNT_STEPS = 2 ** 20;

export interface NodeRecord {
  readonly node: string;
  /** Position in the order of arrival; grows, never used again. */
  readonly order: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly pool: Pool;
  /** Key of the tree that it is in. */
  readonly family: string;
  draining: boolean;
  /** Why it may not be there any more; undefined: it is heard of. */
  suspect: string | undefined;
  /** Actors and leases placed on it, bundles held on it, in no order. */
  readonly tenants: Tenant[];
  /** Utilisation in steps of 1/10000, ties broken by the number of tenants. Kept by Nodes.update(). */
  score: number;
}

/** Something may be placed there. */
export function isOpen(node: NodeRecord): boolean {
  return !node.draining && node.suspect === undefined;
}

/** Whatever is placed on a node. */
export interface Tenant {
  readonly kind: 'actor' | 'lease' | 'bundle';
  /** Its index among the tenants of its node. */
  tenantAt: number;
}

export function moveIn(node: NodeRecord, tenant: Tenant): void {
  tenant.tenantAt = node.tenants.push(tenant) - 1;
}

export function moveOut(node: NodeRecord, tenant: Tenant): void {
  const last = node.tenants.pop()!;
  if (last === tenant) return;
  node.tenants[tenant.tenantAt] = last;
  last.tenantAt = tenant.tenantAt;
}

export interface Query {
  readonly needs: Needs;
  readonly selector: Selector;
}

/** Resources and sizes rounded to powers of two: nodes of one family are alike enough for the bounds of a tree to be sharp. */
function familyOf(pool: Pool): string {
  return pool.names.map((name, i) => `${name}:${Math.floor(Math.log2(pool.total[i]!))}`).join(' ');
}

class View {
  readonly selector: Selector;
  readonly families = new Map<string, FitTree>();

  constructor(selector: Selector, nodes: Iterable<NodeRecord>) {
    this.selector = selector;
    for (const node of nodes) this.add(node);
  }

  add(node: NodeRecord): void {
    if (node.draining || !matches(this.selector, node.labels)) return;
    let tree = this.families.get(node.family);
    if (tree === undefined) {
      tree = new FitTree(node.pool.names);
      this.families.set(node.family, tree);
    }
    tree.add(node);
  }

  remove(node: NodeRecord): void {
    const tree = this.families.get(node.family);
    tree?.remove(node);
    if (tree?.size === 0) this.families.delete(node.family);
  }
}

export class Nodes {
  readonly #byId = new Map<string, NodeRecord>();
  /** By selector, longest unused first. */
  readonly #views = new Map<string, View>();
  readonly #every = new View(EVERY_NODE, []);
  #nextOrder = 0;
  /** Those where nothing may be placed. */
  #shut = 0;

  get nextOrder(): number {
    return this.#nextOrder;
  }

  set nextOrder(order: number) {
    this.#nextOrder = order;
  }

  /** Nodes on which something may be placed. */
  get open(): number {
    return this.#byId.size - this.#shut;
  }

  get(node: string): NodeRecord | undefined {
    return this.#byId.get(node);
  }

  /** In order of arrival. */
  all(): IterableIterator<NodeRecord> {
    return this.#byId.values();
  }

  /** `total` in amounts. */
  add(
    node: string,
    total: Readonly<Record<string, number>>,
    labels: Readonly<Record<string, string>>,
    gpuIds?: readonly number[],
  ): NodeRecord {
    const names = Object.keys(total)
      .filter((name) => total[name]! > 0)
      .sort();
    const whole = Math.floor((total.gpus ?? 0) / STEPS);
    const gpus = Array.from({ length: whole }, (_, i) => [gpuIds?.[i] ?? i, STEPS] as const);
    const amounts = names.map((name) => (name === 'gpus' ? whole * STEPS : total[name]!));
    const pool = new Pool(names, amounts, gpus);
    const record: NodeRecord = {
      node,
      order: this.#nextOrder++,
      labels,
      pool,
      family: familyOf(pool),
      draining: false,
      suspect: undefined,
      tenants: [],
      score: 0,
    };
    this.#byId.set(node, record);
    this.#every.add(record);
    for (const view of this.#views.values()) view.add(record);
    return record;
  }

  drain(record: NodeRecord): void {
    if (record.draining) return;
    if (isOpen(record)) this.#shut++;
    record.draining = true;
    this.#unindex(record);
  }

  /** `why`: it is silent; undefined: it is heard again. It keeps its place in the trees, where it has no room meanwhile. */
  suspect(record: NodeRecord, why: string | undefined): void {
    const wasOpen = isOpen(record);
    record.suspect = why;
    if (isOpen(record) !== wasOpen) this.#shut += wasOpen ? 1 : -1;
    this.update(record);
  }

  delete(record: NodeRecord): void {
    if (!isOpen(record)) this.#shut--;
    if (!record.draining) this.#unindex(record);
    this.#byId.delete(record.node);
  }

  #unindex(record: NodeRecord): void {
    this.#every.remove(record);
    for (const view of this.#views.values()) view.remove(record);
  }

  /** After any change of its pool or its tenants. */
  update(record: NodeRecord): void {
    record.score = Math.round(record.pool.utilisation() * STEPS) * COUNT_STEPS + Math.min(record.tenants.length, COUNT_STEPS - 1);
    if (record.draining) return;
    this.#every.families.get(record.family)?.update(record);
    for (const view of this.#views.values()) view.families.get(record.family)?.update(record);
  }

  /**
   * The first k nodes that fit and are accepted, least used first or packed in order of arrival. `gpus`: only nodes that have GPUs, or only
   * nodes that have none.
   */
  find(query: Query, order: Order, k: number, gpus?: boolean, accept?: (node: NodeRecord) => boolean): NodeRecord[] {
    const { needs, selector } = query;
    const check = accept ?? ((node: NodeRecord) => node.pool.fits(needs));
    let found: NodeRecord[] = [];
    for (const tree of this.#view(selector).families.values()) {
      if (gpus !== undefined && tree.hasGpus !== gpus) continue;
      const more = tree.find(needs, order, k, check);
      if (more.length > 0) found = found.length === 0 ? more : found.concat(more);
    }
    if (found.length > 1) found.sort(order === 'pack' ? byOrder : byScore);
    return found.length > k ? found.slice(0, k) : found;
  }

  #view(selector: Selector): View {
    if (selector.key === '') return this.#every;
    let view = this.#views.get(selector.key);
    if (view === undefined) {
      view = new View(selector, this.#byId.values());
      if (this.#views.size >= KEPT_VIEWS) this.#views.delete(this.#views.keys().next().value!);
    } else this.#views.delete(selector.key);
    this.#views.set(selector.key, view);
    return view;
  }
}

const byOrder = (a: NodeRecord, b: NodeRecord): number => a.order - b.order;
const byScore = (a: NodeRecord, b: NodeRecord): number => a.score - b.score || a.order - b.order;
