// Placement groups: all bundles or none, agreed with their nodes in two phases. A group looks for room for what it lacks, asks the nodes
// (prepare), and when all have said yes it is theirs (commit); one no, or a lost node, and everything of that attempt is released and tried
// again after a wait. What a node takes with it when it goes is placed again elsewhere.
import { needsOf, needsToResources } from './amounts.ts';
import type { GroupCreate, GroupRemove, GroupRetry, Prepared } from './cluster-types.ts';
import { placeBundles, unbook } from './group-placement.ts';
import { selectorOf } from './labels.ts';
import { loseLease } from './leases.ts';
import { end } from './lives.ts';
import type { NodeRecord } from './nodes.ts';
import { Pool } from './pool.ts';
import { type BundleRecord, type GroupRecord, rememberIn, type State } from './state.ts';
import { dequeueGroup, enqueueGroup } from './waiting.ts';

/** Wait before an attempt after a refusal: grows by half each time. */
const RETRY_MS = 100;
const RETRY_MOST_MS = 1000;
const RETRY_GROWTH = 1.5;

export function groupCreate(state: State, event: GroupCreate): void {
  if (state.groups.has(event.group)) return;
  const owner = event.lifetime === 'detached' ? undefined : event.owner;
  const group: GroupRecord = {
    kind: 'group',
    id: event.group,
    order: state.order++,
    name: event.name,
    strategy: event.strategy,
    bundles: [],
    lifetime: event.lifetime,
    owner,
    ownedAt: 0,
    state: 'pending',
    complete: false,
    attempt: 0,
    awaiting: new Set(),
    refused: new Set(),
    failures: 0,
    delayMs: undefined,
    seq: undefined,
    because: undefined,
    drawers: new Set(),
  };
  event.bundles.forEach(({ resources, labels = {} }, index) => {
    group.bundles.push(newBundle(group, index, resources, labels));
  });
  state.groups.set(group.id, group);
  state.own(owner, group);
  if (owner !== undefined && !state.ownerLives(owner)) removeGroup(state, group, `its owner ${owner} was gone before it was made`);
  else {
    seekRoom(state, group);
    announce(state, group);
  }
}

export function newBundle(
  group: GroupRecord,
  index: number,
  resources: Readonly<Record<string, number>>,
  labels: Readonly<Record<string, string>>,
): BundleRecord {
  const needs = needsOf(resources);
  const selector = selectorOf(labels);
  return {
    kind: 'bundle',
    group,
    index,
    resources,
    labels,
    needs,
    selector,
    node: undefined,
    gpus: [],
    tenantAt: 0,
    attempt: 0,
    pool: undefined,
    users: 0,
  };
}

function announce(state: State, group: GroupRecord): void {
  state.emit({ type: 'announce-group', group: group.id, state: group.state, because: group.because });
}

/** One message a node, nodes in their order of arrival. */
function byNode(bundles: readonly BundleRecord[]): [NodeRecord, BundleRecord[]][] {
  const map = new Map<NodeRecord, BundleRecord[]>();
  for (const bundle of bundles) {
    if (bundle.node === undefined) continue;
    const same = map.get(bundle.node);
    if (same === undefined) map.set(bundle.node, [bundle]);
    else same.push(bundle);
  }
  return [...map].sort(([a], [b]) => a.order - b.order);
}

/** Placed, but not committed. */
const isAsked = (bundle: BundleRecord): boolean => bundle.node !== undefined && bundle.pool === undefined;

function seekRoom(state: State, group: GroupRecord): void {
  group.state = group.complete ? 'rescheduling' : 'pending';
  if (group.bundles.every((bundle) => bundle.node !== undefined)) finish(state, group);
  else if (!tryPlaceGroup(state, group)) enqueueGroup(state, group);
}

export function tryPlaceGroup(state: State, group: GroupRecord): boolean {
  const lacking = group.bundles.filter((bundle) => bundle.node === undefined);
  if (!placeBundles(state, group, group.refused) && (group.refused.size === 0 || !placeBundles(state, group, new Set()))) return false;
  const waited = group.seq !== undefined;
  dequeueGroup(state, group);
  group.attempt++;
  group.state = group.complete ? 'rescheduling' : 'preparing';
  for (const bundle of lacking) bundle.attempt = group.attempt;
  for (const [node] of byNode(lacking)) {
    group.awaiting.add(node.node);
    askNode(state, group, node);
  }
  if (waited) announce(state, group);
  return true;
}

/** Sends `prepare` for what this node was asked for and has not answered; for the first time or again. */
export function askNode(state: State, group: GroupRecord, node: NodeRecord): void {
  const bundles = group.bundles
    .filter((bundle) => bundle.node === node && isAsked(bundle))
    .map((bundle) => ({ bundle: bundle.index, resources: needsToResources(bundle.needs), gpus: bundle.gpus.map(([id]) => id) }));
  state.emit({ type: 'prepare', group: group.id, attempt: group.attempt, node: node.node, bundles });
}

export function prepared(state: State, event: Prepared): void {
  const group = state.groups.get(event.group);
  if (group === undefined || event.attempt !== group.attempt || !group.awaiting.has(event.node)) return;
  if (!event.ok) {
    group.refused.add(event.node);
    failAttempt(state, group);
    return;
  }
  group.awaiting.delete(event.node);
  if (group.awaiting.size > 0) return;
  const asked = group.bundles.filter(isAsked);
  for (const bundle of asked) bundle.pool = new Pool(bundle.needs.names, bundle.needs.amounts, bundle.gpus);
  for (const [node, bundles] of byNode(asked)) {
    state.emit({ type: 'commit', group: group.id, attempt: group.attempt, node: node.node, bundles: bundles.map(({ index }) => index) });
  }
  group.failures = 0;
  group.refused.clear();
  // What was lost meanwhile is the next attempt's.
  seekRoom(state, group);
  state.freedGroups.add(group);
  announce(state, group);
}

function finish(state: State, group: GroupRecord): void {
  group.state = 'created';
  group.complete = true;
  state.freedGroups.add(group);
}

function failAttempt(state: State, group: GroupRecord): void {
  group.awaiting.clear();
  letGo(state, group.bundles.filter(isAsked));
  group.delayMs = Math.min(RETRY_MOST_MS, Math.round(RETRY_MS * RETRY_GROWTH ** group.failures));
  group.failures++;
  group.state = group.complete ? 'rescheduling' : 'pending';
  state.emit({ type: 'wait-group', group: group.id, attempt: group.attempt, delayMs: group.delayMs });
  announce(state, group);
}

/** Bundles that nobody uses go back to their nodes, and the nodes are told. */
function letGo(state: State, bundles: readonly BundleRecord[]): void {
  for (const [node, ours] of byNode(bundles)) {
    const byAttempt = new Map<number, number[]>();
    for (const bundle of ours) {
      byAttempt.set(bundle.attempt, [...(byAttempt.get(bundle.attempt) ?? []), bundle.index]);
      unbook(state, bundle);
    }
    if (!state.isUp(node)) continue;
    state.freedNodes.add(node);
    for (const [attempt, indices] of byAttempt)
      state.emit({ type: 'release', group: ours[0]!.group.id, attempt, node: node.node, bundles: indices });
  }
}

export function groupRetry(state: State, event: GroupRetry): void {
  const group = state.groups.get(event.group);
  if (group?.delayMs === undefined || event.attempt !== group.attempt) return;
  group.delayMs = undefined;
  seekRoom(state, group);
  announce(state, group);
}

/** Some of its bundles are no more. */
function lack(state: State, group: GroupRecord): void {
  if (group.state === 'removing' || group.state === 'removed') return;
  if (group.state === 'created') group.state = 'rescheduling';
  announce(state, group);
  // An attempt or a wait that is under way looks again when it is over.
  if (group.awaiting.size > 0 || group.delayMs !== undefined || group.seq !== undefined) return;
  seekRoom(state, group);
}

export function bundleIdle(state: State, bundle: BundleRecord): void {
  const { group, node } = bundle;
  if (bundle.users > 0 || node === undefined) return;
  if (group.state === 'removing') {
    letGo(state, [bundle]);
    buryIfEmpty(state, group);
  } else if (node.draining && bundle.pool !== undefined) {
    letGo(state, [bundle]);
    lack(state, group);
  }
}

/** The node goes away in peace: idle bundles move now, the others when their users have left. */
export function bundlesLeave(state: State, bundles: readonly BundleRecord[]): void {
  for (const bundle of bundles) {
    if (isAsked(bundle)) failAttempt(state, bundle.group);
    else bundleIdle(state, bundle);
  }
}

/** The node is gone, and with it everyone in its bundles. */
export function bundlesLost(state: State, bundles: readonly BundleRecord[]): void {
  const groups = new Set(bundles.map((bundle) => bundle.group));
  const cutShort = new Set(bundles.filter(isAsked).map((bundle) => bundle.group));
  for (const bundle of bundles) unbook(state, bundle);
  for (const group of groups) {
    if (group.state === 'removing') buryIfEmpty(state, group);
    else if (cutShort.has(group)) failAttempt(state, group);
    else lack(state, group);
  }
}

export function groupRemove(state: State, event: GroupRemove): void {
  const group = state.groups.get(event.group);
  if (group !== undefined) removeGroup(state, group, undefined);
}

/** Ends its actors and leases; bundles go back as they leave. */
export function removeGroup(state: State, group: GroupRecord, because: string | undefined): void {
  if (group.state === 'removing' || group.state === 'removed') return;
  group.state = 'removing';
  group.because = because;
  group.awaiting.clear();
  group.delayMs = undefined;
  dequeueGroup(state, group);
  letGo(
    state,
    group.bundles.filter((bundle) => bundle.users === 0),
  );
  for (const drawer of [...group.drawers].sort((a, b) => a.order - b.order)) {
    if (drawer.kind === 'lease') loseLease(state, drawer);
    else end(state, drawer, 'group-removed', `its placement group ${group.name ?? group.id} was removed`);
  }
  announce(state, group);
  buryIfEmpty(state, group);
}

function buryIfEmpty(state: State, group: GroupRecord): void {
  if (group.state !== 'removing' || group.bundles.some((bundle) => bundle.node !== undefined)) return;
  group.state = 'removed';
  state.disown(group.owner, group);
  announce(state, group);
  const forgotten = rememberIn(state.removed, group, state.remember);
  if (forgotten !== undefined) state.groups.delete(forgotten.id);
}
