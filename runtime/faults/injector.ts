// Carries out a plan of faults against the run of this program: by time, by step, by probability with a seed; watches how long it takes until all
// that was hit does what it should again, and says so in the end.
import type { ActorInfo } from '../api/types.ts';
import { type Ask, type Clock, deadline, type NodeView, nextState, unitOf } from '../control/index.ts';
import { emulate, type LinkRules, messagesDone } from '../links/emulation.ts';
import type { FaultOrder } from './orders.ts';
import { bad, type Fault, type FaultPlan } from './plan.ts';
import type { FaultReport, Injected } from './report.ts';

/** What the injector knows of the run. */
export interface FaultWorld {
  listActors(): ActorInfo[];
  ask(ask: Ask): Promise<unknown>;
  /** Ends an incarnation in peace; another follows. */
  restartActor(id: number): Promise<void>;
  /** Head and agent are in this process: neither can be hit alone. */
  alone: boolean;
  /** Starts a head or the agent of a node again after it was killed; absent: it cannot be restarted. */
  start?: { head?: () => Promise<void>; agent?: (node: string) => Promise<void> } | undefined;
  clock: Clock;
}

/** How often it is looked, and for how long, whether something is well again. */
const LOOK_MS = 50;
const RECOVERY_MS = 90_000;

interface Armed {
  fault: Fault;
  left: number;
}

export class FaultInjector {
  readonly #world: FaultWorld;
  readonly #armed: Armed[];
  readonly #began: number;
  readonly #injected: Injected[] = [];
  readonly #recoveries = new Set<Promise<void>>();
  readonly #cancels = new Set<() => void>();
  readonly #alive: Map<string, number>;
  readonly #seed: number;
  #random: number;
  #step: number | undefined;
  #ended = false;
  #report: Promise<FaultReport> | undefined;

  constructor(plan: FaultPlan, world: FaultWorld) {
    this.#world = world;
    this.#seed = this.#random = plan.seed;
    this.#began = world.clock.now();
    this.#alive = new Map(this.#actors().map(({ name, id }) => [name, id]));
    for (const each of plan.faults) this.#check(each);
    this.#armed = plan.faults.map((fault) => ({
      fault,
      left: fault.times ?? ((fault.every ?? fault.everyStep) ? Number.POSITIVE_INFINITY : 1),
    }));
    for (const armed of this.#armed) this.#schedule(armed);
  }

  #check({ fault, target }: Fault): void {
    const { start } = this.#world;
    if (fault === 'restart' && !('actor' in target) && ('head' in target ? start?.head : start?.agent) === undefined)
      throw bad(
        `restart of ${JSON.stringify(target)}: nothing here starts it again. Give injectFaults a \`start\` for it, or let the fault be kill where something else does`,
      );
    if (this.#world.alone && !('actor' in target))
      throw bad(
        `${fault} of ${JSON.stringify(target)}: head and agent of this run live in its own process; a cluster (cluster.address) has them apart`,
      );
  }

  #schedule(armed: Armed): void {
    const after = armed.fault.at ?? armed.fault.every;
    if (after === undefined || armed.left <= 0) return;
    const cancel = this.#world.clock.after(
      after,
      () => {
        this.#cancels.delete(cancel);
        this.#maybe(armed);
        if (armed.fault.every !== undefined) this.#schedule(armed);
      },
      true,
    );
    this.#cancels.add(cancel);
  }

  /** The job has done so many steps. */
  step(done: number): void {
    if (this.#step === done) return;
    this.#step = done;
    for (const armed of this.#armed) if (armed.fault.step === done || armed.fault.everyStep === true) this.#maybe(armed);
  }

  #maybe(armed: Armed): void {
    if (this.#ended || armed.left <= 0 || this.#unit() >= armed.fault.probability) return;
    armed.left--;
    this.now(armed.fault).catch(() => {}); // the report says it
  }

  /** At once; resolves when it was done, not when it is over. */
  async now(fault: Fault): Promise<void> {
    this.#check(fault);
    for (const hit of this.#targets(fault)) {
      const { clock } = this.#world;
      const entry: Injected = { fault: fault.fault, target: hit.name, atMs: Math.round(clock.now() - this.#began) };
      if (this.#step !== undefined) entry.step = this.#step;
      this.#injected.push(entry);
      const before = this.#actors();
      const from = clock.now();
      try {
        await this.#inject(fault, hit);
      } catch (error) {
        entry.failed = (error as Error).message;
        throw error;
      }
      const recovery = this.#recovers(fault, hit, before).then((well) => {
        if (well) entry.recoveredMs = Math.round(clock.now() - from);
      });
      this.#recoveries.add(recovery);
      void recovery.finally(() => this.#recoveries.delete(recovery));
    }
  }

  // --- whom it hits

  #targets({ target }: Fault): Hit[] {
    if ('head' in target) return [{ name: 'head' }];
    if ('driver' in target) return [{ name: 'driver', driver: true }];
    if ('node' in target) return [{ name: `node ${target.node}`, node: target.node }];
    const pattern = new RegExp(`^${target.actor.replaceAll(/[.+?^${}()|[\]\\]/g, '\\$&').replaceAll('*', '.*')}$`);
    const found = this.#actors().filter(({ name, state }) => state === 'alive' && pattern.test(name));
    const one = target.all ? undefined : this.#pick(found);
    const chosen = target.all ? found : one === undefined ? [] : [one];
    return chosen.map((actor) => ({ name: `actor ${actor.name}`, node: actor.node, actor }));
  }

  #pick<T>(of: readonly T[]): T | undefined {
    return of[Math.floor(this.#unit() * of.length)];
  }

  #unit(): number {
    this.#random = nextState(this.#random);
    return unitOf(this.#random);
  }

  #actors(): ActorInfo[] {
    return this.#world.listActors().filter(({ state }) => state !== 'dead');
  }

  // --- what it does

  async #inject(fault: Fault, hit: Hit): Promise<void> {
    const actor = hit.actor === undefined ? {} : { actor: hit.actor.id };
    switch (fault.fault) {
      case 'restart':
        if (hit.actor !== undefined) {
          await this.#world.restartActor(hit.actor.id);
          return;
        }
        await this.#order(hit, { do: 'kill' });
        await this.#startAgain(hit);
        return;
      case 'kill':
        await this.#order(hit, { do: 'kill', ...actor });
        return;
      case 'stop':
        await this.#order(hit, { do: 'stop', forMs: fault.for, ...actor });
        return;
      case 'slow':
        await this.#order(hit, { do: 'slow', forMs: fault.for, share: fault.runs, ...actor });
        return;
      case 'fill-disk':
        await this.#order(hit, { do: 'fill', folder: fault.folder, mostBytes: fault.most, forMs: fault.for });
        return;
      case 'links':
      case 'partition': {
        const rules: LinkRules =
          fault.fault === 'partition'
            ? { cut: true }
            : {
                drop: fault.drop,
                duplicate: fault.duplicate,
                reorder: fault.reorder,
                corrupt: fault.corrupt,
                delayMs: fault.delay,
                jitterMs: fault.jitter,
                bytesPerSecond: fault.bytesPerSecond,
                requestLost: fault.requestLost,
                replyLost: fault.replyLost,
                brokenBehind: fault.brokenBehind,
              };
        rules.direction = fault.direction;
        const { peer } = fault;
        if (peer !== undefined) rules.room = 'head' in peer ? 'head' : 'link';
        const seed = Math.floor(this.#unit() * 2 ** 32);
        if (hit.driver === true) {
          if (peer !== undefined && 'node' in peer) throw bad('a driver is cut off from its head or from everything, not from one node');
          emulate({ rules, seed, forMs: fault.for });
          return;
        }
        const order: FaultOrder = { do: 'links', rules, seed, forMs: fault.for };
        await this.#order(hit, peer !== undefined && 'node' in peer ? { ...order, peer: peer.node } : order);
        return;
      }
    }
  }

  async #order(hit: Hit, order: FaultOrder): Promise<unknown> {
    return this.#world.ask({ q: 'fault', order, ...(hit.node === undefined ? {} : { node: hit.node }) });
  }

  async #startAgain({ node }: Hit): Promise<void> {
    const { start } = this.#world;
    // #check() has seen that there is one.
    if (node === undefined) await start!.head!();
    else await start!.agent!(node);
  }

  // --- how it goes on

  /** Resolves when all that it hit does what it should, or with false when that takes too long. */
  async #recovers(fault: Fault, hit: Hit, before: readonly ActorInfo[]): Promise<boolean> {
    const { clock } = this.#world;
    const over = clock.now() + ('for' in fault ? fault.for : 0);
    const end = over + RECOVERY_MS;
    const ends = fault.fault === 'kill' || fault.fault === 'restart';
    const affected = before.filter(
      ({ name, node }) => hit.actor?.name === name || (hit.actor === undefined && hit.node !== undefined && hit.node === node),
    );
    for (; clock.now() < end; await deadline(clock, LOOK_MS).over) {
      if (clock.now() < over) continue;
      const now = new Map(this.#world.listActors().map((actor) => [actor.id, actor]));
      if (!affected.every((old) => isWell(old, now.get(old.id), ends))) continue;
      const nodes = (await this.#world.ask({ q: 'nodes' })) as NodeView[];
      if (nodes.every(({ state }) => state !== 'suspect')) return true;
    }
    return false;
  }

  /** Nothing more is injected; resolves when what was has been got over, or the time is up. 0: the report as it is now. */
  end(timeoutMs = RECOVERY_MS): Promise<FaultReport> {
    this.#report ??= this.#finish(timeoutMs);
    return this.#report;
  }

  async #finish(timeoutMs: number): Promise<FaultReport> {
    this.#ended = true;
    for (const cancel of this.#cancels) cancel();
    const { over, clear } = deadline(this.#world.clock, timeoutMs);
    await Promise.race([Promise.all(this.#recoveries), over]);
    clear();
    const messages = messagesDone();
    if (!this.#world.alone && timeoutMs > 0) {
      for (const { node } of (await this.#world.ask({ q: 'nodes' })) as NodeView[]) {
        const there = (await this.#world.ask({ q: 'fault', node, order: { do: 'count' } }).catch(() => ({}))) as Partial<typeof messages>;
        for (const key of Object.keys(messages) as (keyof typeof messages)[]) messages[key] += there[key] ?? 0;
      }
    }
    const states = new Map(this.#world.listActors().map((actor) => [actor.id, actor]));
    const isLost = (actor: ActorInfo | undefined): boolean => actor?.state === 'dead' && !/^(killed|shutdown)/.test(actor.cause ?? '');
    const actors = [...this.#alive].flatMap(([name, id]) => (isLost(states.get(id)) ? [name] : []));
    const tookMs = Math.round(this.#world.clock.now() - this.#began);
    return { seed: this.#seed, tookMs, injected: this.#injected, messages, lost: { actors } };
  }
}

interface Hit {
  name: string;
  /** Absent: the head. */
  node?: string;
  actor?: ActorInfo;
  driver?: true;
}

/** `ends`: it was to end, so another incarnation of it must be there. One that will not come back is as it should be, too: the report counts it. */
function isWell(old: ActorInfo, now: ActorInfo | undefined, ends: boolean): boolean {
  if (now === undefined || now.state === 'dead') return true;
  return now.state === 'alive' && now.health === 'ok' && (!ends || now.incarnation > old.incarnation);
}
