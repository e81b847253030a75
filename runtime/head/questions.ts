// Questions to the head that have one answer: at once, or when something has come about.
import { RuntimeFailure } from '../api/errors.ts';
import type { Ask, ClusterEffect, Found, GroupId, GroupView, PeerLink, ToHead } from '../control/index.ts';
import type { FaultOrder } from '../faults/orders.ts';
import { encodeError } from '../wire/index.ts';
import type { Head } from './head.ts';
import type { JobDesk } from './jobs.ts';

/** For the answer of an agent that was told to do something to itself. */
const FAULT_MS = 5000;

interface Waiting {
  link: PeerLink;
  worker: number;
  request: number;
}

export class Questions {
  readonly #head: Head;
  readonly #desk: JobDesk | undefined;
  readonly #groups = new Map<GroupId, Waiting[]>();
  readonly #leases = new Map<string, Waiting[]>();

  constructor(head: Head, desk: JobDesk | undefined) {
    this.#head = head;
    this.#desk = desk;
  }

  ask({ worker, request, ask }: ToHead & { t: 'ask' }, link: PeerLink): void {
    const who = { link, worker, request };
    try {
      const answer = this.#answer(ask, who);
      if (answer !== LATER) this.#say(who, answer);
    } catch (error) {
      this.#fail(who, error);
    }
  }

  #say({ link, worker, request }: Waiting, value: unknown): void {
    this.#head.send(link, { t: 'answer', worker, request, value });
  }

  #fail({ link, worker, request }: Waiting, error: unknown): void {
    this.#head.send(link, { t: 'answer', worker, request, error: encodeError(error) });
  }

  #answer(ask: Ask, who: Waiting): unknown {
    const { state } = this.#head;
    const { cluster } = state;
    switch (ask.q) {
      case 'find':
        return this.#find(ask.name);
      case 'explain': {
        const id = 'actor' in ask.id ? { actor: state.aliases.get(ask.id.actor) ?? ask.id.actor } : ask.id;
        const explanation = cluster.explain(id);
        if (explanation === undefined)
          throw new RuntimeFailure('SINKFLEX_UNKNOWN_ACTOR', `nothing of this run is ${JSON.stringify(ask.id)}`);
        return explanation;
      }
      case 'nodes':
        return [...cluster.nodes()];
      case 'demand':
        return cluster.demand();
      case 'groups':
        return [...cluster.groups()];
      case 'drain':
        if (cluster.node(ask.node) === undefined) throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `there is no node ${ask.node}`);
        this.#head.peers.toNode(ask.node, (link) => this.#head.send(link, { t: 'drain', graceMs: ask.graceMs }));
        return undefined;
      case 'group-create': {
        const { q: _, ...create } = ask;
        if (ask.lifetime === 'detached' && !this.#head.lasting) throw noHead();
        this.#head.apply({ type: 'group-create', ...create });
        return undefined;
      }
      case 'group-ready':
        return this.#ready(ask.group, who);
      case 'group-remove':
        this.#head.apply({ type: 'group-remove', group: ask.group });
        return undefined;
      case 'lease': {
        const { lease, request, owner } = ask;
        const near = this.#head.peers.nodeOf(who.link);
        wait(this.#leases, lease, who);
        this.#head.apply({ type: 'lease', lease, request, owner, ...(near === undefined ? {} : { near }) });
        this.#leaseChanged(lease);
        return LATER;
      }
      case 'lease-return':
        this.#head.apply({ type: 'lease-return', lease: ask.lease });
        // Whoever still waited for it hears so before the return is answered: neither question is asked again after a lost connection.
        this.#leaseChanged(ask.lease);
        return undefined;
      case 'route':
        return this.#head.routes.find(ask);
      case 'job-submit':
        return this.#jobs.submit(ask.request);
      case 'job-list':
        return this.#jobs.list();
      case 'job-log':
        return this.#jobs.log(ask.job, ask.from);
      case 'job-stop':
        this.#later(who, this.#jobs.stop(ask.job, ask.graceMs));
        return LATER;
      case 'fault':
        this.#later(who, this.#fault(ask));
        return LATER;
      case 'leave':
        this.#later(who, this.#head.leave(ask.driver, ask.timeoutMs));
        return LATER;
    }
  }

  #later(who: Waiting, work: Promise<unknown>): void {
    work.then(
      (value) => this.#say(who, value),
      (error: unknown) => this.#fail(who, error),
    );
  }

  get #jobs(): JobDesk {
    if (this.#desk === undefined) throw new RuntimeFailure('SINKFLEX_NO_HEAD', 'jobs need a head that outlives its drivers');
    return this.#desk;
  }

  #find(name: string): Found {
    const { state } = this.#head;
    const actor = state.cluster.named(name);
    const record = actor === undefined ? undefined : state.actors.get(actor);
    if (record === undefined) throw new RuntimeFailure('SINKFLEX_UNKNOWN_ACTOR', `no living actor is named ${name}`);
    const { kind, methods, streams } = record.spec;
    return { actor: actor!, name, kind, methods, streams };
  }

  #ready(group: GroupId, who: Waiting): unknown {
    const view = this.#head.state.cluster.group(group);
    if (view?.state === 'created') return undefined;
    if (view === undefined || over(view)) throw removed(group, view);
    wait(this.#groups, group, who);
    return LATER;
  }

  /** Loaded when it is asked for: few runs want it. */
  async #fault({ node, order }: Ask & { q: 'fault' }): Promise<unknown> {
    const { peers, routes, state } = this.#head;
    for (const name of [node, order.do === 'links' ? order.peer : undefined])
      if (name !== undefined && state.cluster.node(name) === undefined)
        throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `there is no node ${name}`);
    const there = order.do === 'links' && order.peer !== undefined ? routes.hostOf(`node ${order.peer}`) : undefined;
    const full: FaultOrder = order.do === 'links' && there !== undefined ? { ...order, rules: { ...order.rules, host: there } } : order;
    if (node !== undefined) return peers.query(peers.nodeLink(node), -1, { ask: 'fault', order: full }, FAULT_MS);
    const { perform } = await import('../faults/orders.ts');
    return perform(full, () => undefined);
  }

  changed(effect: Extract<ClusterEffect, { type: 'announce-group' | 'leased' | 'lease-lost' }>): void {
    if (effect.type !== 'announce-group') {
      this.#leaseChanged(effect.lease);
      return;
    }
    const waiting = this.#groups.get(effect.group);
    if (waiting === undefined) return;
    const view = this.#head.state.cluster.group(effect.group);
    if (view !== undefined && view.state !== 'created' && !over(view)) return;
    this.#groups.delete(effect.group);
    for (const who of waiting) {
      if (view?.state === 'created') this.#say(who, undefined);
      else this.#fail(who, removed(effect.group, view));
    }
  }

  /** A lease that was returned or lost is unknown from then on, and asking for it again grants nothing. */
  #leaseChanged(lease: string): void {
    const waiting = this.#leases.get(lease);
    const view = this.#head.state.cluster.lease(lease);
    if (waiting === undefined || (view !== undefined && view.node === undefined)) return;
    this.#leases.delete(lease);
    for (const who of waiting) {
      if (view === undefined) this.#fail(who, new RuntimeFailure('SINKFLEX_LEASE_LOST', `lease ${lease} was returned or lost`));
      else this.#say(who, { node: view.node, gpus: view.gpus });
    }
  }

  /** Whoever is gone, waits for nothing. */
  disconnected(link: PeerLink): void {
    for (const map of [this.#groups, this.#leases]) {
      for (const [key, waiting] of map) {
        const left = waiting.filter((who) => who.link !== link);
        if (left.length > 0) map.set(key, left);
        else map.delete(key);
      }
    }
  }
}

const LATER = Symbol('later');

function wait(map: Map<string, Waiting[]>, key: string, who: Waiting): void {
  const waiting = map.get(key) ?? [];
  // Asked twice, answered once.
  if (waiting.some((each) => each.worker === who.worker && each.request === who.request)) return;
  map.set(key, [...waiting, who]);
}

const over = (view: GroupView): boolean => view.state === 'removing' || view.state === 'removed';

function removed(group: GroupId, view: GroupView | undefined): RuntimeFailure {
  const because = view?.because === undefined ? '' : `: ${view.because}`;
  return new RuntimeFailure('SINKFLEX_GROUP_REMOVED', `placement group ${view?.name ?? group} is no more${because}`);
}

export function noHead(): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_NO_HEAD', "lifetime 'detached' needs a head that outlives its drivers");
}
