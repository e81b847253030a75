// A world for the cluster's state machine: agents that obey its effects late, in part or not at all, drawn by fast-check; and what must hold
// after every event.
import fc from 'fast-check';
import {
  type ActorView,
  type Bundle,
  Cluster,
  type ClusterEffect,
  type ClusterEvent,
  type OwnerId,
  ownerActor,
  type ResourceRequest,
  type Strategy,
} from '../../runtime/control/index.ts';

const KINDS = [
  'node-up',
  'node-up',
  'node-back',
  'node-down',
  'node-drain',
  'node-suspect',
  'node-trusted',
  'spawn',
  'spawn',
  'spawn',
  'spawn',
  'started',
  'started',
  'died',
  'died',
  'kill',
  'backoff',
  'backoff',
  'owner-gone',
  'group-create',
  'group-create',
  'prepared',
  'prepared',
  'prepared',
  'prepared',
  'group-retry',
  'group-remove',
  'lease',
  'lease',
  'lease-return',
] as const;

export interface Move {
  kind: (typeof KINDS)[number];
  /** Which of the things that are there. */
  pick: number;
  /** Whatever else is to be chosen. */
  dice: number[];
  after: number;
}

export const moves = (most: number): fc.Arbitrary<Move[]> =>
  fc.array(
    fc.record({
      kind: fc.constantFrom(...KINDS),
      pick: fc.nat(9999),
      dice: fc.array(fc.nat(9999), { minLength: 12, maxLength: 12 }),
      after: fc.nat(300),
    }),
    { maxLength: most, size: 'max' },
  );

const STRATEGIES: Strategy[] = ['PACK', 'SPREAD', 'STRICT_PACK', 'STRICT_SPREAD'];
const LABELS: Record<string, string>[] = [{}, {}, {}, { zone: 'a' }, { zone: '!a' }, { zone: 'in(a,b)', disk: '!in(hdd)' }];

export class World {
  readonly cluster: Cluster;
  now = 0;
  /** All events so far, with their times: the journal. */
  readonly journal: [number, ClusterEvent][] = [];
  readonly effects: ClusterEffect[][] = [];
  /** Incarnations that were started and not seen dead: actor -> node and incarnation. */
  readonly running = new Map<number, { node: string; incarnation: number }>();
  readonly upNodes = new Set<string>();
  readonly asks: { group: string; attempt: number; node: string }[] = [];
  readonly groupWaits: { group: string; attempt: number }[] = [];
  readonly leases = new Set<string>();
  #ids = 0;

  constructor(seed: number, nodes = 0) {
    this.cluster = new Cluster({ seed, remember: 20 });
    for (let i = 0; i < nodes; i++) this.apply({ type: 'node-up', node: `m${i}`, total: { cpus: 4, memory: 4000 }, labels: {} });
  }

  /** Undefined: there is nothing that it could happen to. */
  eventOf({ kind, pick, dice }: Move): ClusterEvent | undefined {
    const one = <T>(all: readonly T[]): T | undefined => all[pick % Math.max(1, all.length)];
    const d = (i: number, n: number): number => dice[i]! % n;
    const id = ++this.#ids;
    const actors = [...this.cluster.actors()];
    const placed = actors.filter((actor) => actor.node !== undefined);
    switch (kind) {
      case 'node-up':
        if (this.upNodes.size >= 7) return undefined;
        return {
          type: 'node-up',
          node: `n${id}`,
          total: {
            cpus: 1 + d(0, 4),
            ...(d(1, 3) === 0 ? { gpus: 1 + d(2, 3) } : {}),
            memory: 1000 * (1 + d(3, 3)),
            ...(d(4, 4) === 0 ? { slot: 1.5 } : {}),
          },
          labels: d(5, 3) === 0 ? {} : { zone: 'ab'[d(5, 2)]!, ...(d(6, 2) ? { disk: 'hdd' } : {}) },
        };
      case 'node-back': {
        const node = one([...this.upNodes]);
        if (node === undefined) return undefined;
        // What it says it has: what the world thinks, but for one that it lost and one that it should not have.
        const has = [...this.running].filter(([, at]) => at.node === node).slice(d(0, 2));
        const stale = d(1, 3) === 0 ? [{ actor: d(2, 30), incarnation: 1 + d(3, 3), started: true }] : [];
        return {
          type: 'node-up',
          node,
          total: { cpus: 1 },
          labels: {},
          running: {
            actors: [...has.map(([actor, { incarnation }], i) => ({ actor, incarnation, started: (d(4, 8) >> i) % 2 === 0 })), ...stale],
            bundles: d(5, 3) === 0 ? [{ group: `g${d(6, 30)}`, attempt: 1, bundle: 0 }] : [],
          },
        };
      }
      case 'node-down': {
        const node = d(0, 2) === 0 ? one([...this.upNodes]) : undefined;
        return node === undefined ? undefined : { type: 'node-down', node };
      }
      case 'node-drain': {
        const node = d(0, 2) === 0 ? one([...this.upNodes]) : undefined;
        return node === undefined ? undefined : { type: 'node-drain', node };
      }
      case 'node-suspect': {
        const node = d(0, 2) === 0 ? one([...this.upNodes]) : undefined;
        return node === undefined ? undefined : { type: 'node-suspect', node, because: 'it is silent' };
      }
      case 'node-trusted': {
        const node = one([...this.upNodes]);
        return node === undefined ? undefined : { type: 'node-trusted', node };
      }
      case 'spawn':
        return {
          type: 'spawn',
          actor: id,
          name: d(0, 3) === 0 ? `shared${d(1, 2)}` : `a${id}`,
          definition: d(2, 4) === 0 ? 'B' : 'A',
          request: this.#request(dice),
          policy: { maxRestarts: d(3, 3), windowMs: 1000, backoffMs: 10, backoffMaxMs: 100 },
          lifetime: d(4, 4) === 0 ? 'detached' : 'owned',
          owner: this.#owner(dice),
          ...(d(5, 2) ? { near: one([...this.upNodes]) ?? 'nowhere' } : {}),
          getIfExists: d(6, 2) === 0,
        };
      case 'started':
      case 'died': {
        const actor = one(placed);
        if (actor === undefined) return undefined;
        const incarnation = Math.max(1, actor.incarnation - (d(0, 6) === 0 ? 1 : 0));
        return kind === 'started'
          ? { type: kind, actor: actor.actor, incarnation }
          : { type: kind, actor: actor.actor, incarnation, preempted: d(1, 4) === 0, hopeless: d(2, 12) === 0 };
      }
      case 'kill': {
        const actor = one(actors);
        if (actor === undefined) return undefined;
        const restart = d(0, 2) === 0;
        return { type: 'kill', actor: actor.actor, restart, ...(restart ? { incarnation: actor.incarnation } : {}) };
      }
      case 'backoff': {
        const actor = one(actors.filter(({ state }) => state === 'restarting'));
        return actor === undefined ? undefined : { type: 'backoff-elapsed', actor: actor.actor, incarnation: actor.incarnation };
      }
      case 'owner-gone':
        return d(0, 2) === 0 ? { type: 'owner-gone', owner: `driver/${d(1, 6)}` } : undefined;
      case 'group-create':
        return {
          type: 'group-create',
          group: `g${id}`,
          bundles: Array.from(
            { length: 1 + d(0, 3) },
            (_, i): Bundle => ({ resources: this.#resources(dice, i), labels: LABELS[d(4 + i, LABELS.length)]! }),
          ),
          strategy: STRATEGIES[d(1, 4)]!,
          lifetime: d(2, 4) === 0 ? 'detached' : 'owned',
          owner: this.#owner(dice),
        };
      case 'prepared': {
        const ask = one(this.asks);
        return ask === undefined ? undefined : { type: 'prepared', ...ask, ok: d(0, 4) > 0 };
      }
      case 'group-retry': {
        const wait = one(this.groupWaits);
        return wait === undefined ? undefined : { type: 'group-retry', ...wait };
      }
      case 'group-remove': {
        const group = one([...this.cluster.groups()]);
        return group === undefined || d(0, 2) === 0 ? undefined : { type: 'group-remove', group: group.group };
      }
      case 'lease':
        return { type: 'lease', lease: `l${id}`, request: this.#request(dice), owner: this.#owner(dice) };
      case 'lease-return': {
        const lease = one([...this.cluster.leases()]);
        return lease === undefined ? undefined : { type: 'lease-return', lease: lease.lease };
      }
    }
  }

  #resources(dice: readonly number[], shift = 0): Record<string, number> {
    const at = (i: number): number => dice[(i + shift) % dice.length]!;
    return [
      {},
      { cpus: 1 },
      { cpus: 0.5, memory: 300.5 },
      { cpus: 2 },
      { gpus: 0.5 },
      { gpus: 1, cpus: 1 },
      { gpus: 1.25 },
      { slot: 0.3 },
      { cpus: 3, memory: 2000 },
    ][at(7) % 9]!;
  }

  #request(dice: readonly number[]): ResourceRequest {
    const groups = [...this.cluster.groups()];
    const nodes = [...this.upNodes];
    const d = (i: number, n: number): number => dice[i]! % n;
    if (groups.length > 0 && d(8, 3) === 0) {
      const resources: Record<string, number> = [{ cpus: 0.5 }, { gpus: 0.5 }, {}, { cpus: 1 }][d(9, 4)]!;
      return { resources, labels: {}, strategy: 'hybrid', group: groups[d(10, groups.length)]!.group, bundle: d(11, 3) - 1 };
    }
    const affinity = { node: nodes[d(10, Math.max(1, nodes.length))] ?? 'nowhere', soft: d(11, 2) === 0 };
    const strategy = (['hybrid', 'hybrid', 'spread', affinity] as const)[d(9, 4)]!;
    return { resources: this.#resources(dice), labels: LABELS[d(10, LABELS.length)]!, strategy };
  }

  #owner(dice: readonly number[]): OwnerId {
    const living = [...this.cluster.actors()].filter(({ state }) => state === 'alive');
    const actor = living[dice[10]! % Math.max(1, living.length)];
    return actor !== undefined && dice[11]! % 2 === 0 ? ownerActor(actor.actor, actor.incarnation) : `driver/${dice[11]! % 6}`;
  }

  apply(event: ClusterEvent, after = 0): ClusterEffect[] {
    this.now += after;
    const died = event.type === 'died' ? this.running.get(event.actor) : undefined;
    if (event.type === 'died' && died?.incarnation === event.incarnation) this.running.delete(event.actor);
    if (event.type === 'node-up') this.upNodes.add(event.node);
    if (event.type === 'node-up' && event.running !== undefined) this.#lost(event.node, event.running.actors);
    if (event.type === 'node-down') {
      this.upNodes.delete(event.node);
      for (const [actor, { node }] of this.running) if (node === event.node) this.running.delete(actor);
    }
    const effects = this.cluster.apply(event, this.now);
    this.journal.push([this.now, event]);
    this.effects.push(effects);
    for (const effect of effects) this.#perform(effect);
    return effects;
  }

  #lost(node: string, has: readonly { actor: number; incarnation: number }[]): void {
    for (const [actor, at] of this.running) {
      // The start of what is to stop may still be on its way: only the agent's own word ends it.
      if (at.node !== node || this.cluster.actor(actor)?.state === 'stopping') continue;
      if (!has.some((one) => one.actor === actor && one.incarnation === at.incarnation)) this.running.delete(actor);
    }
  }

  #perform(effect: ClusterEffect): void {
    if ('node' in effect && !this.upNodes.has(effect.node)) throw new Error(`${effect.type} to ${effect.node}, which is not there`);
    switch (effect.type) {
      case 'start': {
        const now = this.running.get(effect.actor);
        const again = now?.node === effect.node && now.incarnation === effect.incarnation;
        if (now !== undefined && !again) throw new Error(`actor ${effect.actor} is started on ${effect.node} while it runs on ${now.node}`);
        if (!again && this.cluster.suspect(effect.node) !== undefined) throw new Error(`${effect.node} is suspect`);
        this.running.set(effect.actor, { node: effect.node, incarnation: effect.incarnation });
        return;
      }
      case 'prepare':
        this.asks.push({ group: effect.group, attempt: effect.attempt, node: effect.node });
        return;
      case 'wait-group':
        this.groupWaits.push({ group: effect.group, attempt: effect.attempt });
        return;
    }
  }

  /** Ends everything; afterwards nothing may be taken. */
  finish(): void {
    for (const { group } of [...this.cluster.groups()]) this.apply({ type: 'group-remove', group });
    for (const { lease } of [...this.cluster.leases()]) this.apply({ type: 'lease-return', lease });
    for (const { actor } of [...this.cluster.actors()]) this.apply({ type: 'kill', actor, restart: false });
    for (let more = true; more; ) {
      more = false;
      for (const { actor, incarnation, node } of [...this.cluster.actors()]) {
        if (node === undefined) continue;
        this.apply({ type: 'died', actor, incarnation });
        more = true;
      }
    }
    this.check();
    for (const node of this.cluster.nodes()) {
      if (JSON.stringify(node.free) !== JSON.stringify(node.total) || node.actors + node.leases > 0)
        throw new Error(`something is left on ${node.node}: ${JSON.stringify(node)}`);
    }
    for (const actor of this.cluster.actors()) if (actor.state !== 'dead') throw new Error(`actor ${actor.actor} is still ${actor.state}`);
    for (const group of this.cluster.groups())
      if (group.state !== 'removed') throw new Error(`group ${group.group} is still ${group.state}`);
  }

  /** What must hold between any two events. */
  check(): void {
    const { cluster } = this;
    const used = new Map<string, Record<string, number>>();
    const add = (where: string, resources: Record<string, number>): void => {
      const sum = used.get(where) ?? {};
      for (const [name, value] of Object.entries(resources)) sum[name] = (sum[name] ?? 0) + units(name, value);
      used.set(where, sum);
    };
    const names = new Set<string>();
    const bundleOf = new Map<string, string[]>();
    for (const actor of cluster.actors()) {
      const at = this.running.get(actor.actor);
      if (at?.node !== actor.node) throw new Error(`actor ${actor.actor} is on ${actor.node}, but runs on ${at?.node}`);
      if (actor.node !== undefined && actor.request.group === undefined) add(actor.node, actor.request.resources);
      if (actor.state === 'dead') continue;
      if (actor.node !== undefined && names.has(actor.name)) throw new Error(`the name ${actor.name} is on two nodes`);
      if (actor.node !== undefined) names.add(actor.name);
      if (actor.state === 'pending') this.#mustWait(actor);
      if (actor.request.group !== undefined)
        (bundleOf.get(actor.request.group) ?? bundleOf.set(actor.request.group, []).get(actor.request.group)!).push(actor.state);
    }
    for (const lease of cluster.leases()) {
      if (lease.node !== undefined && lease.request.group === undefined) add(lease.node, lease.request.resources);
    }
    for (const group of cluster.groups()) {
      const on = group.bundles.flatMap(({ node }) => node ?? []);
      for (const bundle of group.bundles) {
        if (bundle.node !== undefined) add(bundle.node, bundle.resources);
        for (const [name, free] of Object.entries(bundle.free))
          if (free < 0 || free > bundle.resources[name]! + 1) throw new Error(`bundle of ${group.group}: ${free} ${name}`);
      }
      if (group.state === 'pending' && on.length > 0) throw new Error(`${group.group} waits and holds part of what it needs`);
      if ((group.state === 'created' || group.state === 'preparing') && on.length < group.bundles.length)
        throw new Error(`${group.group} is ${group.state} in part`);
      if (group.state === 'removed' && (on.length > 0 || (bundleOf.get(group.group) ?? []).length > 0))
        throw new Error(`${group.group} is removed but not empty`);
      if (group.strategy === 'STRICT_PACK' && new Set(on).size > 1) throw new Error(`${group.group} is not on one node`);
      if (group.strategy === 'STRICT_SPREAD' && new Set(on).size < on.length) throw new Error(`${group.group} has a node twice`);
    }
    for (const node of cluster.nodes()) {
      for (const [name, total] of Object.entries(node.total)) {
        const taken = used.get(node.node)?.[name] ?? 0;
        if (taken > units(name, total) || units(name, node.free[name]!) !== units(name, total) - taken)
          throw new Error(`${node.node} has ${node.free[name]} of ${total} ${name} free, but ${taken} units are taken`);
      }
    }
    this.#gpus();
  }

  /** The first of its kind waits only if there is really no room for it. */
  #mustWait(actor: ActorView): void {
    const why = this.cluster.explain({ actor: actor.actor })!;
    if (why.ahead > 0 || actor.request.group !== undefined) return;
    const room = why.asks[0]?.nodes.find(({ verdict }) => verdict === 'fits');
    if (room !== undefined) throw new Error(`actor ${actor.actor} waits although ${room.node} has room: ${why.text}`);
  }

  /** No GPU is given away more than once. */
  #gpus(): void {
    const whole = new Map<string, number>();
    const count = (where: string, request: Record<string, number>, gpus: readonly number[]): void => {
      const asked = units('gpus', request.gpus ?? 0);
      if (new Set(gpus).size < gpus.length) throw new Error(`a GPU is given twice at once: ${gpus}`);
      const parts = asked % 10_000 === 0 ? 0 : 1;
      if (gpus.length !== Math.floor(asked / 10_000) + parts) throw new Error(`${asked / 10_000} GPUs are ${gpus.length} devices`);
      if (parts === 0) for (const gpu of gpus) whole.set(`${where}:${gpu}`, (whole.get(`${where}:${gpu}`) ?? 0) + 1);
    };
    for (const { node, request, gpus } of [...this.cluster.actors(), ...this.cluster.leases()])
      if (node !== undefined) count(request.group === undefined ? node : `${node}/${request.group}`, request.resources, gpus);
    for (const group of this.cluster.groups())
      for (const { node, resources, gpus } of group.bundles) if (node !== undefined) count(node, resources, gpus);
    for (const [gpu, times] of whole) if (times > 1) throw new Error(`GPU ${gpu} has two owners`);
  }
}

function units(name: string, value: number): number {
  return name === 'memory' ? Math.ceil(value) : Math.round(value * 10_000);
}
