// Why something waits: what it asks for, and what each node says to that. Complete for programs, one or two sentences for people.
import { fromAmount, type Needs, needsToResources, sumOf } from './amounts.ts';
import type { ActorId, Explanation, GroupId, LeaseId, NodeReason, Verdict } from './cluster-types.ts';
import { EVERY_NODE, type Selector, unmet } from './labels.ts';
import type { NodeRecord } from './nodes.ts';
import type { Pool } from './pool.ts';
import type { BundleRecord, GroupRecord, Seeker, State } from './state.ts';
import { actorState } from './views.ts';
import { ahead } from './waiting.ts';

type Ask = Explanation['asks'][number];

/** Nodes that a sentence names for one verdict. */
const NAMED = 3;

export function explain(state: State, id: { actor: ActorId } | { group: GroupId } | { lease: LeaseId }): Explanation | undefined {
  if ('group' in id) {
    const group = state.groups.get(id.group);
    return group === undefined ? undefined : explainGroup(state, group);
  }
  const seeker = 'actor' in id ? state.actors.get(id.actor) : state.leases.get(id.lease);
  return seeker === undefined ? undefined : explainSeeker(state, seeker);
}

function explainSeeker(state: State, seeker: Seeker): Explanation {
  const isActor = seeker.kind === 'actor';
  const subject = isActor ? { actor: seeker.id } : { lease: seeker.id };
  const name = isActor ? `actor ${seeker.name}` : `lease ${seeker.id}`;
  const now: Explanation['state'] = isActor ? actorState(seeker) : seeker.holding === undefined ? 'waiting' : 'granted';
  const answer = { subject, state: now, feasible: true, ahead: 0, asks: [] };
  if (isActor && now === 'pending' && seeker.before !== undefined) {
    return { ...answer, text: `${name} waits for actor ${seeker.before.id}, which had its name, to end.` };
  }
  if (seeker.ticket === undefined) {
    const on = seeker.holding === undefined ? '' : ` on node ${seeker.holding.node.node}`;
    const because = isActor && seeker.because !== undefined ? `: ${seeker.because}` : '';
    return { ...answer, text: `${name} does not wait for room: it is ${now}${on}${because}.` };
  }
  const { shape } = seeker;
  const before = ahead(seeker);
  const queue = before === 0 ? '' : ` ${before} of the same kind ${before === 1 ? 'waits' : 'wait'} before it.`;
  if (shape.request.group !== undefined) {
    const inGroup = explainInGroup(state, seeker);
    return { ...answer, ...inGroup, ahead: before, text: `${name} waits: ${inGroup.text}.${queue}` };
  }
  const { strategy } = shape.request;
  const only = typeof strategy === 'string' || strategy.soft ? undefined : strategy.node;
  const ask: Ask = { bundle: undefined, resources: needsToResources(shape.needs), labels: shape.request.labels, nodes: [] };
  ask.nodes = [...state.nodes.all()].map((node) => judge(node, shape.needs, shape.selector, { only }));
  const gone = only !== undefined && state.nodes.get(only) === undefined ? `; node ${only}, the only one it may use, is not up` : '';
  return {
    ...answer,
    feasible: ask.nodes.some(isFeasible),
    ahead: before,
    asks: [ask],
    text: `${name} waits for ${describe(shape.needs)}${gone}: ${summarise(ask.nodes)}.${queue}`,
  };
}

/** What draws from a group is up to the group's bundles, not to nodes. */
function explainInGroup(state: State, { shape }: Seeker): Pick<Explanation, 'text' | 'feasible' | 'asks'> {
  const group = state.groups.get(shape.request.group!)!;
  const { bundle: only = -1 } = shape.request;
  const title = `placement group ${group.name ?? group.id}`;
  const candidates = only < 0 ? group.bundles : group.bundles.slice(only, only + 1);
  if (candidates.length === 0)
    return { text: `${title} has ${group.bundles.length} bundles, and no bundle ${only}`, feasible: false, asks: [] };
  const asks: Ask[] = candidates.map(({ index, node, pool, needs }) => ({
    bundle: index,
    resources: needsToResources(shape.needs),
    labels: shape.request.labels,
    nodes: node === undefined ? [] : [judge(node, shape.needs, shape.selector, { pool: pool ?? uncommitted(needs) })],
  }));
  const feasible = candidates.some(({ needs }) => shape.needs.names.every((name, i) => amountIn(needs, name) >= shape.needs.amounts[i]!));
  if (!feasible) return { text: `no bundle of ${title} is large enough for ${describe(shape.needs)}`, feasible, asks };
  if (group.state !== 'created')
    return { text: `${title} is ${group.state}: ${explainGroup(state, group).text}`.replace(/\.$/, ''), feasible, asks };
  const texts = asks.map(({ bundle, nodes }) => `bundle ${bundle}: ${nodes[0]?.text ?? 'not placed'}`);
  return { text: `it wants ${describe(shape.needs)} of ${title}; ${list(texts)}`, feasible, asks };
}

const amountIn = (needs: Needs, name: string): number => needs.amounts[needs.names.indexOf(name)] ?? 0;

/** A bundle that is not committed has nothing free. */
function uncommitted(needs: Needs): Pick<Pool, 'names' | 'free' | 'total' | 'fits' | 'couldHold'> {
  return { names: needs.names, free: needs.amounts.map(() => 0), total: needs.amounts, fits: () => false, couldHold: () => true };
}

function explainGroup(state: State, group: GroupRecord): Explanation {
  const title = `placement group ${group.name ?? group.id}`;
  const answer = { subject: { group: group.id }, state: group.state, feasible: true, ahead: 0, asks: [] };
  if (group.delayMs !== undefined) {
    const who = [...group.refused].join(', ');
    const why = group.refused.size === 0 ? 'a node was lost or is draining' : `refused by ${who}`;
    return { ...answer, text: `${title} tries again soon: attempt ${group.attempt} failed (${why}).` };
  }
  if (group.awaiting.size > 0) return { ...answer, text: `${title} awaits the answer of ${[...group.awaiting].join(', ')}.` };
  const missing = group.bundles.filter((bundle) => bundle.node === undefined);
  if (group.seq === undefined) {
    const because = group.because === undefined ? '' : `: ${group.because}`;
    return { ...answer, text: `${title} does not wait for room: it is ${group.state}${because}.` };
  }
  const asks =
    group.strategy === 'STRICT_PACK' ? [askTogether(state, group, missing)] : missing.map((bundle) => askOne(state, group, bundle));
  const apart = group.strategy === 'STRICT_SPREAD';
  const hopeful = (ask: Ask): number => ask.nodes.filter(isFeasible).length;
  const enough = !apart || state.nodes.open >= group.bundles.length;
  const text = asks.map(
    (ask) => `${ask.bundle === undefined ? 'all bundles on one node' : `bundle ${ask.bundle}`}: ${summarise(ask.nodes)}`,
  );
  const rule = apart
    ? `; each bundle needs a node of its own: ${group.bundles.length} bundles, ${state.nodes.open} ${state.nodes.open === 1 ? 'node' : 'nodes'}`
    : '';
  return {
    ...answer,
    feasible: enough && asks.every((ask) => hopeful(ask) > 0),
    asks,
    text: `${title} (${group.strategy}) waits for room for ${missing.length} of ${group.bundles.length} bundles${rule}. ${list(text)}.`,
  };
}

function askOne(state: State, group: GroupRecord, bundle: BundleRecord): Ask {
  const used = new Set(group.strategy === 'STRICT_SPREAD' ? group.bundles.flatMap(({ node }) => node ?? []) : []);
  const nodes = [...state.nodes.all()].map((node) => judge(node, bundle.needs, bundle.selector, { used: used.has(node) }));
  return { bundle: bundle.index, resources: needsToResources(bundle.needs), labels: bundle.labels, nodes };
}

function askTogether(state: State, group: GroupRecord, bundles: readonly BundleRecord[]): Ask {
  const needs = sumOf(bundles.map((bundle) => bundle.needs));
  const labels = Object.assign({}, ...bundles.map((bundle) => bundle.labels)) as Record<string, string>;
  const selector: Selector = { ...EVERY_NODE, terms: bundles.flatMap((bundle) => bundle.selector.terms) };
  const only = group.bundles.find(({ node }) => node !== undefined)?.node?.node;
  return {
    bundle: undefined,
    resources: needsToResources(needs),
    labels,
    nodes: [...state.nodes.all()].map((node) => judge(node, needs, selector, { only })),
  };
}

// --- one node

interface Circumstances {
  /** The only node that may be used. */
  only?: string | undefined;
  /** A strategy forbids a second bundle there. */
  used?: boolean;
  /** Take it from this instead of from the node. */
  pool?: Pick<Pool, 'names' | 'free' | 'total' | 'fits' | 'couldHold'>;
}

/** Could it be taken there if nothing else were there? */
const isFeasible = ({ verdict }: NodeReason): boolean => verdict === 'fits' || verdict === 'busy' || verdict === 'suspect';

function judge(node: NodeRecord, needs: Needs, selector: Selector, circumstances: Circumstances): NodeReason {
  const { only, used = false, pool = node.pool } = circumstances;
  const labels = unmet(selector, node.labels);
  const large = pool.couldHold(needs);
  const verdict: Verdict =
    only !== undefined && only !== node.node
      ? 'not-asked-for'
      : node.draining
        ? 'draining'
        : labels.length > 0
          ? 'labels'
          : !large
            ? 'too-small'
            : used
              ? 'used-by-group'
              : node.suspect !== undefined
                ? 'suspect'
                : pool.fits(needs)
                  ? 'fits'
                  : 'busy';
  const short = verdict === 'busy' || verdict === 'too-small' ? shortOf(pool, needs, large) : [];
  const text = verdict === 'suspect' ? `is suspect: ${node.suspect}` : sentence(verdict, short, labels);
  return { node: node.node, verdict, short, labels: [...new Set(labels)], text };
}

function shortOf(pool: Pick<Pool, 'names' | 'free' | 'total'>, needs: Needs, large: boolean): NodeReason['short'] {
  const all = needs.names.map((resource, i) => {
    const at = pool.names.indexOf(resource);
    const [free, total] = at < 0 ? [0, 0] : [pool.free[at]!, pool.total[at]!];
    return { resource, missing: (large ? free : total) < needs.amounts[i]!, asked: needs.amounts[i]!, free, total };
  });
  const missing = all.filter((one) => one.missing);
  // GPUs may be free in sum and yet not whole.
  const short = missing.length > 0 ? missing : all.filter(({ resource }) => resource === 'gpus');
  return short.map(({ resource, asked, free, total }) => ({
    resource,
    asked: fromAmount(resource, asked),
    free: fromAmount(resource, free),
    total: fromAmount(resource, total),
  }));
}

function sentence(verdict: Exclude<Verdict, 'suspect'>, short: NodeReason['short'], labels: readonly string[]): string {
  switch (verdict) {
    case 'fits':
      return 'has room';
    case 'draining':
      return 'is draining';
    case 'not-asked-for':
      return 'is not the node asked for';
    case 'used-by-group':
      return 'has another bundle of the group';
    case 'labels':
      return list(labels);
    case 'too-small':
      return list(short.map(({ resource, total }) => `has ${total === 0 ? `no ${resource}` : `${figure(resource, total)} in all`}`));
    case 'busy':
      return list(
        short.map(({ resource, asked, free, total }) =>
          free >= asked
            ? `has ${figure(resource, free)} free, but in parts of several`
            : `has ${figure(resource, free)} free of ${figure(resource, total)}`,
        ),
      );
  }
}

// --- text

const VERDICTS: Record<Verdict, string> = {
  fits: 'has room',
  busy: 'is busy',
  'too-small': 'is too small',
  labels: 'has other labels',
  draining: 'is draining',
  suspect: 'is suspect',
  'not-asked-for': 'is not the node asked for',
  'used-by-group': 'has another bundle of the group',
};

function summarise(reasons: readonly NodeReason[]): string {
  if (reasons.length === 0) return 'no node is up';
  const groups = (Object.keys(VERDICTS) as Verdict[])
    .map((verdict) => [verdict, reasons.filter((reason) => reason.verdict === verdict)] as const)
    .filter(([, those]) => those.length > 0);
  return groups
    .map(([verdict, those]) => {
      const named = those.slice(0, NAMED).map(({ node, text }) => (text === VERDICTS[verdict] ? node : `${node} ${text}`));
      const more = those.length > NAMED ? ` and ${those.length - NAMED} more` : '';
      const plural = VERDICTS[verdict].replace(/^is /, 'are ').replace(/^has /, 'have ');
      const count = reasons.length === 1 ? 'the only node' : `${those.length} of ${reasons.length} nodes`;
      return `${count} ${those.length === 1 ? VERDICTS[verdict] : plural} (${named.join('; ')}${more})`;
    })
    .join(', ');
}

const list = (parts: readonly string[]): string => parts.join('; ');

function describe(needs: Needs): string {
  if (needs.names.length === 0) return 'a node';
  return needs.names.map((name, i) => figure(name, fromAmount(name, needs.amounts[i]!))).join(' and ');
}

function figure(resource: string, value: number): string {
  if (resource !== 'memory') return `${value} ${value === 1 && resource.endsWith('s') ? resource.slice(0, -1) : resource}`;
  const unit = value >= 2 ** 30 ? 'GiB' : 'MiB';
  return `${Number((value / (unit === 'GiB' ? 2 ** 30 : 2 ** 20)).toPrecision(4))} ${unit} of memory`;
}
