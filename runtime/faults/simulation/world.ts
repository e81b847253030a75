// The simulated cluster: the code of the head and of agents on virtual time, network and disk; hosts, drivers and faults drawn from a seed.
// Judged at every moment by what truly runs (register.ts), and at the end, when all has healed, by what everybody believes.
import { createHash } from 'node:crypto';
import type { FromHead, PeerLink, Place, ToHead } from '../../control/index.ts';
import { Head, HeadState } from '../../head/index.ts';
import { VirtualDisk, VirtualLog } from './disk.ts';
import { Driver } from './driver.ts';
import { Host } from './host.ts';
import type { Ping } from './lease.ts';
import { Nemesis } from './nemesis.ts';
import { type End, type Handler, VirtualNetwork } from './network.ts';
import { Register, Violation } from './register.ts';
import { Dice, Process, VirtualTime } from './time.ts';

export interface SimulationOptions {
  seed: number;
  /** Virtual milliseconds of work under faults; default 10 minutes. What follows, until all is at rest, comes on top. */
  durationMs?: number;
  hosts?: number;
  drivers?: number;
  /** Mean milliseconds between faults. */
  faultEveryMs?: number;
  /** Mean milliseconds between what a driver does. */
  actEveryMs?: number;
  /** Clocks of hosts gain or lose up to this much of the true time. */
  drift?: number;
}

export interface SimulationResult {
  seed: number;
  /** Undefined: all held. */
  violation: string | undefined;
  /** Virtual time of the violation, or of the end. */
  atMs: number;
  events: number;
  faults: number;
  /** Incarnations that were started. */
  starts: number;
  /** Of all that happened: equal for equal seeds. */
  trace: string;
}

/** How long a healed cluster may take until everybody agrees. */
const SETTLE_MS = 45_000;

export class World {
  readonly options: Required<SimulationOptions>;
  readonly time = new VirtualTime();
  readonly dice: Dice;
  readonly register = new Register();
  readonly network: VirtualNetwork;
  readonly hosts: Host[] = [];
  readonly drivers: Driver[] = [];
  /** Actors that anybody has ever asked for. */
  readonly spawned = new Set<number>();
  faults = 0;
  readonly #disk = new VirtualDisk();
  readonly #processes = new Map<string, Process>();
  readonly #trace = createHash('sha256');
  #pids = 1;
  #names = 0;
  #head: { process: Process; head: Head; log: VirtualLog } | undefined;
  #violation: Violation | undefined;

  constructor(options: SimulationOptions) {
    this.options = { durationMs: 600_000, hosts: 4, drivers: 2, faultEveryMs: 4000, actEveryMs: 400, drift: 0.001, ...options };
    this.dice = new Dice(options.seed);
    this.network = new VirtualNetwork(this.time, this.dice, { latency: 0.3, duplicate: 0.05 });
  }

  fail(why: string): never {
    throw new Violation(why);
  }

  note(what: string): void {
    this.#trace.update(`${this.time.now.toFixed(3)} ${what}\n`);
  }

  // --- processes

  process(name: string): Process {
    const process = new Process(name, this.#pids++, this.time);
    this.#processes.set(process.start, process);
    process.onEnd(() => this.#processes.delete(process.start));
    return process;
  }

  get head(): Head | undefined {
    return this.#head?.process.alive === true ? this.#head.head : undefined;
  }

  get headProcess(): Process | undefined {
    return this.#head?.process;
  }

  /** Of the head that runs, or ran last. */
  get log(): VirtualLog | undefined {
    return this.#head?.log;
  }

  startHead(): void {
    const process = this.process('head');
    const { snapshot, records } = this.#disk;
    const old = snapshot !== undefined || records.length > 0;
    const log = new VirtualLog(this.#disk, process, this.dice);
    const head = new Head({
      seed: this.options.seed,
      lasting: true,
      journal: log,
      runs: (_, start) => this.#processes.has(start),
      clock: process.clock(),
      ...(old ? { state: this.readDisk() } : {}),
    });
    this.#head = { process, head, log };
  }

  /** What a head that starts now would know. */
  readDisk(): HeadState {
    const { snapshot, records } = this.#disk;
    return HeadState.restore(this.options.seed, structuredClone(snapshot), records);
  }

  addHost(): Host {
    const host = new Host(this, this.process(`host-${++this.#names}`), 4);
    this.hosts.push(host);
    return host;
  }

  addDriver(): Driver {
    const driver = new Driver(this, this.process(`driver-${++this.#names}`));
    this.drivers.push(driver);
    return driver;
  }

  connectToHead(from: Process, near: Handler): End | undefined {
    const at = this.#head;
    return this.network.connect(from, at?.process, near, (end) => {
      const { head, process } = at!;
      const link: PeerLink = {
        remote: from.name.startsWith('host'),
        send: (message: FromHead) => end.send(message),
        close: () => end.close(),
      };
      return {
        message: (message) => {
          if ('ping' in (message as Ping)) {
            end.send(message);
            return;
          }
          this.note(`${from.name} ${(message as ToHead).t}`);
          head.receive(message as ToHead, link);
        },
        closed: () => process.alive && head.disconnected(link),
      };
    });
  }

  // --- what must hold

  /** What a driver hears of an actor never goes back, and what was accepted is not forgotten. */
  judgePlace(earlier: Place | undefined, place: Place, accepted: boolean): void {
    this.note(`place ${place.actor} ${place.status} ${place.incarnation}`);
    if (accepted && place.incarnation === 0) this.fail(`actor ${place.actor} was accepted, and now nobody knows it`);
    if (earlier === undefined || earlier.target !== place.target) return;
    if (earlier.status === 'dead' && place.status !== 'dead') this.fail(`actor ${place.actor} was dead and is ${place.status} again`);
    if (place.status !== 'dead' && place.incarnation < earlier.incarnation)
      this.fail(`actor ${place.actor} went back from incarnation ${earlier.incarnation} to ${place.incarnation}`);
  }

  async run(): Promise<SimulationResult> {
    let atMs: number | undefined;
    try {
      await this.#live();
    } catch (error) {
      this.#violation = error instanceof Violation ? error : new Violation((error as Error).stack ?? String(error));
      atMs = this.time.now;
    }
    return {
      seed: this.options.seed,
      violation: this.#violation?.message,
      atMs: atMs ?? this.time.now,
      events: this.time.events,
      faults: this.faults,
      starts: this.register.starts,
      trace: this.#trace.digest('hex').slice(0, 16),
    };
  }

  async #live(): Promise<void> {
    const { durationMs, hosts, drivers } = this.options;
    this.startHead();
    for (let i = 0; i < hosts; i++) this.addHost();
    for (let i = 0; i < drivers; i++) this.addDriver();
    for (const driver of this.drivers) this.#acts(driver, durationMs);
    const nemesis = new Nemesis(this);
    nemesis.schedule(durationMs);
    await this.time.runUntil(durationMs);
    nemesis.heal();
    await this.time.runUntil(durationMs + SETTLE_MS);
    this.#agree();
    for (const driver of this.drivers) driver.process.kill();
    await this.time.runUntil(durationMs + 2 * SETTLE_MS);
    this.#atRest();
  }

  #acts(driver: Driver, until: number): void {
    driver.process.after(this.dice.delay(this.options.actEveryMs), () => {
      if (this.time.now >= until) return;
      if (driver.ready) driver.act();
      this.#acts(driver, until);
    });
  }

  addActingDriver(): void {
    this.#acts(this.addDriver(), this.options.durationMs);
  }

  /** All has healed, and nobody asks for anything new: everybody believes what is true. */
  #agree(): void {
    const head = this.head;
    if (head === undefined) this.fail('there is no head');
    const disk = JSON.stringify(this.readDisk().cluster.snapshot());
    if (disk !== JSON.stringify(head.state.cluster.snapshot())) this.fail('what the head has written down is not what it believes');
    for (const host of this.hosts)
      if (host.process.alive && head.state.cluster.node(host.node) === undefined) this.fail(`the head does not know ${host.node}`);
    for (const { node } of head.state.cluster.nodes())
      if (!this.hosts.some((host) => host.node === node && host.process.alive)) this.fail(`the head believes in ${node}, which has gone`);
    for (const view of head.state.cluster.actors()) {
      const running = this.register.of(view.actor);
      if (view.state === 'alive' && running?.incarnation !== view.incarnation)
        this.fail(
          `the head believes that incarnation ${view.incarnation} of actor ${view.actor} lives; what runs is ${running?.incarnation}`,
        );
      if (view.state === 'dead' && running !== undefined) this.fail(`actor ${view.actor} is dead, and runs`);
      if (view.state === 'stopping' || view.state === 'restarting') this.fail(`actor ${view.actor} is ${view.state} after a long rest`);
    }
    for (const running of this.register.all()) {
      const view = head.state.cluster.actor(running.actor);
      if (view?.incarnation !== running.incarnation || view.node !== running.node)
        this.fail(`nobody knows of actor ${running.actor}, which runs`);
    }
    for (const group of head.state.cluster.groups())
      if (['preparing', 'removing'].includes(group.state)) this.fail(`group ${group.group} is ${group.state} after a long rest`);
    for (const driver of this.drivers) if (driver.process.alive && !driver.cutOff) this.#agreesWith(head, driver);
  }

  #agreesWith(head: Head, driver: Driver): void {
    for (const actor of driver.unanswered) this.fail(`${driver.id} asked for actor ${actor} and was never answered`);
    for (const [actor, place] of driver.actors) {
      const { aliases, refused } = head.state;
      if (refused.has(actor)) continue;
      const view = head.state.cluster.actor(aliases.get(actor) ?? actor);
      if (view === undefined) {
        // Dead for so long that it was forgotten; or never accepted.
        if (place?.status !== 'dead') this.fail(`${driver.id} waits for actor ${actor}, which the head does not know`);
      } else if (place !== undefined && (view.state === 'alive') !== (place.status === 'alive'))
        this.fail(`${driver.id} believes that actor ${actor} is ${place.status}; it is ${view.state}`);
      else if (place?.status === 'alive' && place.incarnation !== view.incarnation)
        this.fail(`${driver.id} believes in incarnation ${place.incarnation} of actor ${actor}; it is ${view.incarnation}`);
    }
  }

  /** All drivers have gone: nothing runs, and everything is free. */
  #atRest(): void {
    const head = this.head!;
    for (const running of this.register.all()) this.fail(`actor ${running.actor} still runs on ${running.node}: its owner has gone`);
    for (const node of head.state.cluster.nodes())
      if (JSON.stringify(node.free) !== JSON.stringify(node.total))
        this.fail(`of node ${node.node} ${JSON.stringify(node.free)} of ${JSON.stringify(node.total)} are free after all have gone`);
    for (const lease of head.state.cluster.leases()) this.fail(`lease ${lease.lease} is left`);
  }
}
