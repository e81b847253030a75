// Where one actor or one lease goes: the policies, and taking and giving back what they ask for.
//
// hybrid: nodes are filled up to half, in order of arrival, then the least used one. Work that asks for no GPU goes to nodes without GPUs
// while they have room. Among the best k a random one is taken, k being 20 % of the nodes but at most 8, so that many starts at once spread.
import type { Needs } from './amounts.ts';
import type { Order } from './fit-tree.ts';
import { matches } from './labels.ts';
import { isOpen, moveIn, moveOut, type NodeRecord } from './nodes.ts';
import type { BundleRecord, Holding, Seeker, Shape, State } from './state.ts';

const TOP_SHARE = 0.2;
const TOP_MOST = 8;

/** May it be placed there at all, and is there room now? */
export function hasRoom(node: NodeRecord, shape: Shape): boolean {
  return isOpen(node) && matches(shape.selector, node.labels) && node.pool.fits(shape.needs);
}

function staysWithinHalf(node: NodeRecord, needs: Needs): boolean {
  const { pool } = node;
  for (let i = 0; i < pool.names.length; i++) {
    const at = needs.names.indexOf(pool.names[i]!);
    const used = pool.total[i]! - pool.free[i]! + (at < 0 ? 0 : needs.amounts[at]!);
    if (used > Math.floor(pool.total[i]! / 2)) return false;
  }
  return true;
}

function hybrid(state: State, shape: Shape, near: NodeRecord | undefined): NodeRecord | undefined {
  const { nodes } = state;
  const { needs } = shape;
  const wantsGpus = needs.names.includes('gpus');
  if (near !== undefined && hasRoom(near, shape)) {
    // What asks for nothing stays with its spawner whatever the load.
    if (needs.names.length === 0) return near;
    if ((wantsGpus || near.pool.devices.length === 0) && staysWithinHalf(near, needs)) return near;
  }
  const k = Math.min(TOP_MOST, Math.max(1, Math.floor(nodes.open * TOP_SHARE)));
  const tiers: [Order, boolean][] = wantsGpus
    ? [
        ['pack', true],
        ['least', true],
      ]
    : [
        ['pack', false],
        ['least', false],
        ['pack', true],
        ['least', true],
      ];
  for (const [order, gpus] of tiers) {
    const best = nodes.find(shape, order, k, gpus);
    if (best.length > 0) return best[state.draw(best.length)];
  }
  return undefined;
}

export function pickNode(state: State, shape: Shape, near: string | undefined): NodeRecord | undefined {
  const { strategy } = shape.request;
  if (strategy === 'spread') return state.nodes.find(shape, 'least', 1)[0];
  if (strategy !== 'hybrid') {
    const wanted = state.nodes.get(strategy.node);
    if (wanted !== undefined && hasRoom(wanted, shape)) return wanted;
    if (!strategy.soft) return undefined;
  }
  return hybrid(state, shape, near === undefined ? undefined : state.nodes.get(near));
}

/** The bundle of its group that it is to draw from, if one has room now. */
function pickBundle(state: State, shape: Shape): BundleRecord | undefined {
  const group = state.groups.get(shape.request.group!);
  if (group === undefined || group.state === 'removing' || group.state === 'removed') return undefined;
  const { bundle = -1 } = shape.request;
  const candidates = bundle < 0 ? group.bundles : group.bundles.slice(bundle, bundle + 1);
  return candidates.find(
    ({ pool, node }) => pool?.fits(shape.needs) && node !== undefined && isOpen(node) && matches(shape.selector, node.labels),
  );
}

/** Takes what it asks for, where the policy says. Undefined: there is no room. */
export function takeRoom(state: State, seeker: Seeker): Holding | undefined {
  const { shape, near } = seeker;
  const bundle = shape.request.group === undefined ? undefined : pickBundle(state, shape);
  const node = shape.request.group === undefined ? pickNode(state, shape, near) : bundle?.node;
  if (node === undefined) return undefined;
  const holding: Holding = { node, bundle, gpus: (bundle?.pool ?? node.pool).take(shape.needs)! };
  hold(state, seeker, holding);
  return holding;
}

/** Books a holding whose amounts are taken already. */
export function hold(state: State, seeker: Seeker, holding: Holding): void {
  seeker.holding = holding;
  if (holding.bundle !== undefined) holding.bundle.users++;
  moveIn(holding.node, seeker);
  state.nodes.update(holding.node);
}

export function giveBack(state: State, seeker: Seeker): void {
  const { holding, shape } = seeker;
  if (holding === undefined) return;
  const { node, bundle, gpus } = holding;
  seeker.holding = undefined;
  (bundle?.pool ?? node.pool).give(shape.needs, gpus);
  moveOut(node, seeker);
  if (bundle === undefined) state.freedNodes.add(node);
  else {
    state.freedGroups.add(bundle.group);
    if (--bundle.users === 0) state.idleBundles.add(bundle);
  }
  state.nodes.update(node);
}
