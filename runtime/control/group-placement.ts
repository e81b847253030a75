// Where the bundles of a placement group go: all that are not placed yet, or none.
//
// STRICT_PACK: one node. PACK: one node if one has room, else few. STRICT_SPREAD: a node each, found exactly (a matching). SPREAD: the same
// if possible, else as few on one node as a greedy choice gives.
import { sumOf } from './amounts.ts';
import { matches } from './labels.ts';
import { isOpen, moveIn, moveOut, type NodeRecord } from './nodes.ts';
import type { BundleRecord, GroupRecord, State } from './state.ts';

/** Orders that PACK and SPREAD try when a bundle finds no room: each time that bundle goes first. */
const REORDERINGS = 8;

type Accept = (node: NodeRecord) => boolean;

/** Books all bundles that are not placed. False: nothing has changed. `avoid`: nodes that are not to be asked. */
export function placeBundles(state: State, group: GroupRecord, avoid: ReadonlySet<string>): boolean {
  const missing = group.bundles.filter((bundle) => bundle.node === undefined).sort(largestFirst);
  const used = [...new Set(group.bundles.flatMap(({ node }) => node ?? []))];
  const allowed: Accept = (node) => !avoid.has(node.node);
  switch (group.strategy) {
    case 'STRICT_PACK':
      return used.length > 0
        ? used.length === 1 && isOpen(used[0]!) && allowed(used[0]!) && tryAll(state, missing, used[0]!)
        : together(state, missing, allowed);
    case 'PACK':
      return (used.length === 0 && together(state, missing, allowed)) || greedily(state, missing, used, allowed, true);
    case 'STRICT_SPREAD':
      return apart(state, missing, used, allowed);
    case 'SPREAD':
      return apart(state, missing, used, allowed) || greedily(state, missing, used, allowed, false);
  }
}

/** Hard to place first: GPUs, then processors, then how much is asked for at all. */
function largestFirst(a: BundleRecord, b: BundleRecord): number {
  return (
    amountOf(b, 'gpus') - amountOf(a, 'gpus') ||
    amountOf(b, 'cpus') - amountOf(a, 'cpus') ||
    b.needs.names.length - a.needs.names.length ||
    amountOf(b, 'memory') - amountOf(a, 'memory') ||
    b.selector.terms.length - a.selector.terms.length ||
    a.index - b.index
  );
}

const amountOf = ({ needs }: BundleRecord, name: string): number => needs.amounts[needs.names.indexOf(name)] ?? 0;

function fits(bundle: BundleRecord, node: NodeRecord): boolean {
  return isOpen(node) && matches(bundle.selector, node.labels) && node.pool.fits(bundle.needs);
}

function book(state: State, bundle: BundleRecord, node: NodeRecord): boolean {
  if (!fits(bundle, node)) return false;
  bundle.gpus = node.pool.take(bundle.needs)!;
  bundle.node = node;
  moveIn(node, bundle);
  state.nodes.update(node);
  return true;
}

/** Takes back what was only tried, or is no more. */
export function unbook(state: State, bundle: BundleRecord): void {
  const { node } = bundle;
  if (node === undefined) return;
  node.pool.give(bundle.needs, bundle.gpus);
  moveOut(node, bundle);
  bundle.node = undefined;
  bundle.gpus = [];
  bundle.pool = undefined;
  state.nodes.update(node);
}

function tryAll(state: State, bundles: readonly BundleRecord[], node: NodeRecord): boolean {
  for (const bundle of bundles) {
    if (book(state, bundle, node)) continue;
    for (const done of bundles) unbook(state, done);
    return false;
  }
  return true;
}

/** All on one node: work without GPUs on a node without, half-filled nodes first. */
function together(state: State, bundles: readonly BundleRecord[], allowed: Accept): boolean {
  const needs = sumOf(bundles.map((bundle) => bundle.needs));
  const query = { needs, selector: bundles[0]!.selector };
  // Booking changes the index in which it is found: take what was booked for the trial back before the search goes on.
  const holdsAll: Accept = (node) => {
    if (!allowed(node) || !tryAll(state, bundles, node)) return false;
    for (const bundle of bundles) unbook(state, bundle);
    return true;
  };
  const tiers = needs.names.includes('gpus') ? [true] : [false, true];
  for (const gpus of tiers) {
    const node = state.nodes.find(query, 'pack', 1, gpus, holdsAll)[0] ?? state.nodes.find(query, 'least', 1, gpus, holdsAll)[0];
    if (node !== undefined) return tryAll(state, bundles, node);
  }
  return false;
}

/** The emptiest n nodes for a bundle, those without GPUs first if it wants none. */
function emptiest(state: State, bundle: BundleRecord, n: number, accept: Accept): NodeRecord[] {
  const check: Accept = (node) => accept(node) && fits(bundle, node);
  if (amountOf(bundle, 'gpus') > 0) return state.nodes.find(bundle, 'least', n, true, check);
  const plain = state.nodes.find(bundle, 'least', n, false, check);
  return plain.length < n ? plain.concat(state.nodes.find(bundle, 'least', n - plain.length, true, check)) : plain;
}

/**
 * Each on a node of its own: augmenting paths (Kuhn). n candidates a bundle are enough for n bundles: whoever has that many is left one by
 * the others.
 */
function apart(state: State, bundles: readonly BundleRecord[], used: readonly NodeRecord[], allowed: Accept): boolean {
  const taken = new Set(used);
  const free: Accept = (node) => allowed(node) && !taken.has(node);
  const alike = new Map<string, NodeRecord[]>();
  const candidates = bundles.map((bundle) => {
    const key = `${bundle.selector.key} ${bundle.needs.names.join()} ${bundle.needs.amounts.join()}`;
    const known = alike.get(key) ?? emptiest(state, bundle, bundles.length, free);
    alike.set(key, known);
    return known;
  });
  if (new Set(candidates.flat()).size < bundles.length) return false;
  const holder = new Map<NodeRecord, number>();
  const assign = (at: number, seen: Set<NodeRecord>): boolean => {
    const open = candidates[at]!.find((node) => !holder.has(node) && !seen.has(node));
    if (open !== undefined) {
      holder.set(open, at);
      return true;
    }
    for (const node of candidates[at]!) {
      if (seen.has(node)) continue;
      seen.add(node);
      if (!assign(holder.get(node)!, seen)) continue;
      holder.set(node, at);
      return true;
    }
    return false;
  };
  for (let at = 0; at < bundles.length; at++) if (!assign(at, new Set())) return false;
  for (const [node, at] of holder) book(state, bundles[at]!, node);
  return true;
}

/** One after the other: `pack` on a node of the group while one has room, else on a new one; otherwise the other way round. */
function greedily(state: State, bundles: readonly BundleRecord[], used: readonly NodeRecord[], allowed: Accept, pack: boolean): boolean {
  let order = [...bundles];
  for (let attempt = 0; attempt < REORDERINGS; attempt++) {
    const mine = used.filter((node) => isOpen(node) && allowed(node));
    const failed = order.find((bundle) => !bookOne(state, bundle, mine, allowed, pack));
    if (failed === undefined) return true;
    for (const bundle of order) unbook(state, bundle);
    if (order[0] === failed) return false;
    order = [failed, ...order.filter((bundle) => bundle !== failed)];
  }
  return false;
}

function bookOne(state: State, bundle: BundleRecord, mine: NodeRecord[], allowed: Accept, pack: boolean): boolean {
  const known = mine.filter((node) => fits(bundle, node));
  if (!pack) known.sort((a, b) => a.score - b.score || a.order - b.order);
  const fresh = pack && known.length > 0 ? undefined : emptiest(state, bundle, 1, (node) => allowed(node) && !mine.includes(node))[0];
  const node = pack ? (known[0] ?? fresh) : (fresh ?? known[0]);
  if (node === undefined) return false;
  book(state, bundle, node);
  if (!mine.includes(node)) mine.push(node);
  return true;
}
