// Finds nodes that have room without looking at each: a segment tree over similar nodes in the order in which they came. Each tree node
// keeps the largest free amount of each resource below it, so that whole subtrees are passed over, and the smallest score, so that the least
// used node comes out first. A change costs O(log n), a search O(k log n) for k results.
//
// Which nodes a search finds, and in which order, depends on the state of the nodes alone, never on how the tree came about.
import type { Needs } from './amounts.ts';
import type { NodeRecord } from './nodes.ts';

/** `pack`: in order of arrival, those that stay at most half used. `least`: least used first. */
export type Order = 'pack' | 'least';

const FIRST_CAPACITY = 4;

export class FitTree {
  /** Resources that every node in it has, sorted. */
  readonly names: readonly string[];
  readonly hasGpus: boolean;
  /** Per tree node: free of each name, room up to half of each name (-1 if something is beyond half), free whole GPUs, largest part. */
  #most: Float64Array;
  /** Per tree node: smallest score below; infinite if there is nothing. */
  #least: Float64Array;
  readonly #width: number;
  #capacity = FIRST_CAPACITY;
  /** By leaf; order of arrival. */
  #nodes: (NodeRecord | undefined)[] = [];
  #live = 0;
  readonly #slots = new Map<NodeRecord, number>();

  constructor(names: readonly string[]) {
    this.names = names;
    this.hasGpus = names.includes('gpus');
    this.#width = 2 * names.length + 2;
    this.#most = new Float64Array(0);
    this.#least = new Float64Array(0);
    this.#rebuild();
  }

  get size(): number {
    return this.#live;
  }

  /** Nodes must be added in their order of arrival. */
  add(node: NodeRecord): void {
    if (this.#nodes.length === this.#capacity) {
      if (this.#live * 2 > this.#capacity) this.#capacity *= 2;
      this.#rebuild();
    }
    this.#live++;
    this.#slots.set(node, this.#nodes.length);
    this.#nodes.push(node);
    this.update(node);
  }

  remove(node: NodeRecord): void {
    const slot = this.#slots.get(node);
    if (slot === undefined) return;
    this.#slots.delete(node);
    this.#nodes[slot] = undefined;
    this.#live--;
    this.#write(slot);
  }

  update(node: NodeRecord): void {
    const slot = this.#slots.get(node);
    if (slot !== undefined) this.#write(slot);
  }

  /** Leaves out the holes. */
  #rebuild(): void {
    this.#nodes = this.#nodes.filter((node) => node !== undefined);
    this.#most = new Float64Array(2 * this.#capacity * this.#width).fill(-1);
    this.#least = new Float64Array(2 * this.#capacity).fill(Number.POSITIVE_INFINITY);
    this.#slots.clear();
    for (let slot = 0; slot < this.#nodes.length; slot++) {
      this.#slots.set(this.#nodes[slot]!, slot);
      this.#write(slot);
    }
  }

  #write(slot: number): void {
    const node = this.#nodes[slot];
    let at = this.#capacity + slot;
    const leaf = at * this.#width;
    const most = this.#most;
    const none = node === undefined || node.suspect !== undefined;
    if (none) most.fill(-1, leaf, leaf + this.#width);
    else {
      const { pool } = node;
      const count = this.names.length;
      let half = true;
      for (let i = 0; i < count; i++) {
        const room = Math.floor(pool.total[i]! / 2) - (pool.total[i]! - pool.free[i]!);
        most[leaf + i] = pool.free[i]!;
        most[leaf + count + i] = room;
        half &&= room >= 0;
      }
      if (!half) most.fill(-1, leaf + count, leaf + 2 * count);
      most[leaf + 2 * count] = this.hasGpus ? pool.wholeFree() : 0;
      most[leaf + 2 * count + 1] = this.hasGpus ? pool.largestPart() : 0;
    }
    this.#least[at] = none ? Number.POSITIVE_INFINITY : node.score;
    while (at > 1) {
      at >>= 1;
      if (!this.#merge(at)) return;
    }
  }

  /** Did the tree node change? */
  #merge(at: number): boolean {
    const width = this.#width;
    const most = this.#most;
    const left = 2 * at * width;
    let changed = false;
    for (let i = 0; i < width; i++) {
      const value = Math.max(most[left + i]!, most[left + width + i]!);
      if (most[at * width + i] !== value) {
        most[at * width + i] = value;
        changed = true;
      }
    }
    const score = Math.min(this.#least[2 * at]!, this.#least[2 * at + 1]!);
    if (this.#least[at] !== score) {
      this.#least[at] = score;
      changed = true;
    }
    return changed;
  }

  /** Where each need stands in a tree node, or undefined: nodes of this kind do not have it. */
  #columns(needs: Needs): number[] | undefined {
    const columns: number[] = [];
    for (const name of needs.names) {
      const at = this.names.indexOf(name);
      if (at < 0) return undefined;
      columns.push(at);
    }
    return columns;
  }

  /** Could something below fit? A bound only: the largest amounts may be those of different nodes. */
  #mayFit(at: number, needs: Needs, columns: readonly number[], half: boolean): boolean {
    const base = at * this.#width;
    const count = this.names.length;
    const most = this.#most;
    if (most[base + 2 * count]! < needs.whole || (needs.part > 0 && most[base + 2 * count + 1]! < needs.part)) return false;
    if (half && count > 0 && most[base + count]! < 0) return false;
    const shift = half ? base + count : base;
    for (let i = 0; i < columns.length; i++) if (most[shift + columns[i]!]! < needs.amounts[i]!) return false;
    return true;
  }

  /** The first k nodes, in that order, with room for the needs and accepted. */
  find(needs: Needs, order: Order, k: number, accept: (node: NodeRecord) => boolean): NodeRecord[] {
    const columns = this.#live === 0 ? undefined : this.#columns(needs);
    if (columns === undefined || !this.#mayFit(1, needs, columns, order === 'pack')) return [];
    if (order === 'pack') return this.#inOrder(needs, columns, k, accept);
    return k === 1 ? this.#best(needs, columns, accept) : this.#byScore(needs, columns, k, accept);
  }

  #inOrder(needs: Needs, columns: readonly number[], k: number, accept: (node: NodeRecord) => boolean): NodeRecord[] {
    const found: NodeRecord[] = [];
    const stack = [1];
    while (stack.length > 0) {
      const at = stack.pop()!;
      if (!this.#mayFit(at, needs, columns, true)) continue;
      if (at < this.#capacity) stack.push(2 * at + 1, 2 * at);
      else {
        const node = this.#nodes[at - this.#capacity]!;
        if (accept(node) && found.push(node) === k) break;
      }
    }
    return found;
  }

  /** byScore for one, without a heap: the better half first, the other only if it may hold something better. */
  #best(needs: Needs, columns: readonly number[], accept: (node: NodeRecord) => boolean): NodeRecord[] {
    const least = this.#least;
    let found: NodeRecord | undefined;
    let foundAt = 0;
    const stack = [1];
    while (stack.length > 0) {
      const at = stack.pop()!;
      if (found !== undefined && (least[at]! > least[foundAt]! || (least[at] === least[foundAt] && this.#first(at) > foundAt))) continue;
      if (!this.#mayFit(at, needs, columns, false)) continue;
      if (at < this.#capacity) {
        const right = least[2 * at + 1]! < least[2 * at]!;
        if (right) stack.push(2 * at, 2 * at + 1);
        else stack.push(2 * at + 1, 2 * at);
      } else {
        const node = this.#nodes[at - this.#capacity]!;
        if (!accept(node)) continue;
        found = node;
        foundAt = at;
      }
    }
    return found === undefined ? [] : [found];
  }

  #byScore(needs: Needs, columns: readonly number[], k: number, accept: (node: NodeRecord) => boolean): NodeRecord[] {
    const found: NodeRecord[] = [];
    const least = this.#least;
    // A heap of tree nodes by (smallest score below, first leaf below). A leaf that comes out beats everything that is left.
    const heap: number[] = [];
    const before = (a: number, b: number): boolean => least[a]! < least[b]! || (least[a] === least[b] && this.#first(a) < this.#first(b));
    push(heap, 1, before);
    while (heap.length > 0) {
      const at = pop(heap, before);
      if (at < this.#capacity) {
        if (this.#mayFit(2 * at, needs, columns, false)) push(heap, 2 * at, before);
        if (this.#mayFit(2 * at + 1, needs, columns, false)) push(heap, 2 * at + 1, before);
      } else {
        const node = this.#nodes[at - this.#capacity]!;
        if (accept(node) && found.push(node) === k) break;
      }
    }
    return found;
  }

  /** Leftmost leaf below a tree node. */
  #first(at: number): number {
    return at << (Math.clz32(at) - Math.clz32(this.#capacity));
  }
}

function push(heap: number[], value: number, before: (a: number, b: number) => boolean): void {
  let at = heap.push(value) - 1;
  while (at > 0) {
    const up = (at - 1) >> 1;
    if (!before(value, heap[up]!)) break;
    heap[at] = heap[up]!;
    at = up;
  }
  heap[at] = value;
}

function pop(heap: number[], before: (a: number, b: number) => boolean): number {
  const top = heap[0]!;
  const last = heap.pop()!;
  if (heap.length === 0) return top;
  let at = 0;
  for (;;) {
    let down = 2 * at + 1;
    if (down >= heap.length) break;
    if (down + 1 < heap.length && before(heap[down + 1]!, heap[down]!)) down++;
    if (!before(heap[down]!, last)) break;
    heap[at] = heap[down]!;
    at = down;
  }
  heap[at] = last;
  return top;
}
