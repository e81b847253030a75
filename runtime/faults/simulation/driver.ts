// A driver of the simulation: spawns, kills, groups and leases at random, and keeps what it was promised.
import type { Ask, FromAgent, FromHead, OwnerId, Place } from '../../control/index.ts';
import { Directory, type Subscriber } from '../../node/directory.ts';
import { Peer } from './peer.ts';
import { specOf } from './spec.ts';
import type { Process } from './time.ts';
import type { World } from './world.ts';

type Answer = Extract<FromAgent, { t: 'answer' }>;

export class Driver {
  readonly id: string;
  readonly process: Process;
  readonly peer: Peer;
  readonly #world: World;
  readonly #directory: Directory;
  worker: number | undefined;
  /** The head has given it up. */
  cutOff = false;
  #next = 1;
  #request = 0;
  /** Actors that it has spawned, and what it was last told of them. */
  readonly actors = new Map<number, Place | undefined>();
  /** Those of them that the head has said it will have. */
  readonly #accepted = new Set<number>();
  readonly groups = new Set<string>();
  readonly leases = new Set<string>();
  /** Requests that wait for their answer. */
  readonly waiting = new Map<number, (answer: Answer | undefined) => void>();

  constructor(world: World, process: Process) {
    this.#world = world;
    this.id = process.name;
    this.process = process;
    this.peer = new Peer(world, process, {
      up: () => {
        this.peer.send({ t: 'attach', driver: this.id, pid: process.pid, processStart: process.start });
        this.#directory.again();
      },
      message: (message) => this.#onHead(message),
    });
    this.#directory = new Directory(this.peer);
    this.peer.connect();
  }

  /** Actors that it has asked for, and was never told that the head has heard of. */
  get unanswered(): number[] {
    return [...this.actors.keys()].filter((actor) => !this.#accepted.has(actor));
  }

  get ready(): boolean {
    return this.process.alive && !this.process.stopped && this.worker !== undefined && !this.cutOff;
  }

  #subscriber: Subscriber | undefined;

  #onHead(message: FromHead): void {
    switch (message.t) {
      case 'attached':
        if (this.worker !== undefined && this.worker !== message.worker) {
          this.cutOff = true;
          this.peer.close();
        }
        this.worker = message.worker;
        this.#subscriber ??= { worker: message.worker, send: (said) => this.#hears(said) };
        return;
      case 'spawned':
        this.#accepted.add(message.actor);
        this.#directory.onHead(message);
        return;
      case 'place':
      case 'killed':
      case 'answer':
        this.#directory.onHead(message);
        return;
    }
  }

  #hears(message: FromAgent): void {
    if (message.t === 'place') {
      const { place } = message;
      const earlier = this.actors.get(place.actor);
      this.#world.judgePlace(earlier, place, this.#accepted.has(place.actor));
      this.actors.set(place.actor, place);
    } else if (message.t === 'answer' || message.t === 'killed') {
      const then = this.waiting.get(message.request);
      this.waiting.delete(message.request);
      then?.(message.t === 'answer' ? message : undefined);
    }
  }

  #ask(ask: Ask, then: (answer: Answer | undefined) => void = () => {}): void {
    const request = ++this.#request;
    this.waiting.set(request, then);
    this.#directory.receive({ t: 'ask', request, ask }, this.#subscriber!);
  }

  // --- what it does

  act(): void {
    const { dice } = this.#world;
    const owner: OwnerId = `driver/${this.worker!}`;
    const what = dice.below(20);
    if (what < 8) this.#spawn(owner);
    else if (what < 12) this.#kill();
    else if (what < 14) this.#group(owner);
    else if (what < 16) this.#lease(owner);
    else {
      const group = dice.pick([...this.groups]);
      if (group !== undefined && dice.chance(0.3)) {
        this.groups.delete(group);
        this.#ask({ q: 'group-remove', group });
      }
    }
  }

  #spawn(owner: OwnerId): void {
    const { dice } = this.#world;
    const alive = [...this.actors.values()].filter((place) => place?.status !== 'dead').length;
    if (alive >= 12) return;
    const actor = this.worker! * 2 ** 24 + this.#next++;
    const group = dice.chance(0.25) ? dice.pick([...this.groups]) : undefined;
    const named = dice.chance(0.2) ? { name: `named-${dice.below(3)}`, getIfExists: dice.chance(0.5) } : {};
    const spec = specOf(actor, {
      owner,
      maxRestarts: dice.pick([0, 1, 3, 20])!,
      request: {
        resources: { cpus: dice.pick([0, 0.5, 1, 1, 2])! },
        labels: {},
        strategy: dice.chance(0.3) ? 'spread' : 'hybrid',
        ...(group === undefined ? {} : { group, bundle: -1 }),
      },
      ...named,
    });
    this.actors.set(actor, undefined);
    this.#world.spawned.add(actor);
    this.#directory.receive({ t: 'spawn', spec, watch: true }, this.#subscriber!);
  }

  #kill(): void {
    const { dice, register } = this.#world;
    const actor = dice.pick([...this.actors.keys()]);
    if (actor === undefined) return;
    const restart = dice.chance(0.3);
    const request = ++this.#request;
    const place = this.actors.get(actor);
    const real = place?.target ?? actor;
    this.waiting.set(request, () => {
      const running = register.of(real);
      if (!restart && running !== undefined) this.#world.fail(`actor ${real} was killed, and incarnation ${running.incarnation} runs`);
    });
    this.#directory.receive({ t: 'kill', actor: real, restart, drain: dice.chance(0.2), graceMs: 0, request }, this.#subscriber!);
  }

  #group(owner: OwnerId): void {
    const { dice } = this.#world;
    if (this.groups.size >= 3) return;
    const group = `${this.id}-g${++this.#request}`;
    const bundles = Array.from({ length: 1 + dice.below(3) }, () => ({ resources: { cpus: 1 }, labels: {} }));
    const strategy = dice.pick(['PACK', 'SPREAD', 'STRICT_PACK', 'STRICT_SPREAD'] as const)!;
    this.groups.add(group);
    this.#ask({ q: 'group-create', group, bundles, strategy, lifetime: 'owned', owner });
    this.#ask({ q: 'group-ready', group });
  }

  #lease(owner: OwnerId): void {
    const { dice } = this.#world;
    if (this.leases.size >= 4) return;
    const lease = `${this.id}-l${++this.#request}`;
    this.leases.add(lease);
    this.#ask({ q: 'lease', lease, owner, request: { resources: { cpus: 1 }, labels: {}, strategy: 'hybrid' } }, (answer) => {
      const held = answer?.error === undefined ? dice.delay(500) : 0;
      this.process.after(held, () => {
        if (this.cutOff) return;
        this.#ask({ q: 'lease-return', lease });
        this.leases.delete(lease);
      });
    });
  }
}
