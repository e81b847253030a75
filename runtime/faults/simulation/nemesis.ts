// The faults of a simulation, drawn one after the other. Each passes by itself or is undone at the end.
import type { Host } from './host.ts';
import type { Process } from './time.ts';
import type { World } from './world.ts';

export class Nemesis {
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  schedule(until: number): void {
    const { time, dice, options } = this.#world;
    time.after(dice.delay(options.faultEveryMs), () => {
      if (time.now >= until) return;
      this.#strike();
      this.schedule(until);
    });
  }

  #strike(): void {
    const { dice, hosts, drivers, network, time } = this.#world;
    const host = dice.pick(hosts.filter(({ process }) => process.alive));
    const driver = dice.pick(drivers.filter(({ process }) => process.alive));
    const what = dice.below(12);
    this.#world.faults++;
    this.#world.note(`fault ${what}`);
    if (what < 3) host?.crashWorker();
    else if (what === 3) this.#crashHead();
    else if (what === 4) this.#replace(() => host?.process.kill());
    else if (what === 5) this.#replace(() => host?.process.run(() => host.drain(dice.between(100, 5000))));
    else if (what === 6) {
      driver?.process.kill();
      if (driver !== undefined) this.#world.addActingDriver();
    } else if (what === 7) network.breakOf(host?.process);
    else if (what === 8) network.breakOf();
    else if (what === 9) this.#stopHost(host, dice.between(10, 20_000));
    else if (what === 10) this.#pause(dice.chance(0.5) ? this.#world.headProcess : driver?.process, dice.between(10, 4000));
    else if (host !== undefined) {
      // One way or both, for a moment, or for so long that the head gives it up.
      if (dice.chance(0.7)) network.cut(host.process.name, 'head');
      if (dice.chance(0.7)) network.cut('head', host.process.name);
      time.after(dice.between(50, 25_000), () => network.heal());
    }
  }

  /** Mostly in the moment in which it writes something down: that is where a crash can lose what others have heard. */
  #crashHead(): void {
    const { dice, time, headProcess, log } = this.#world;
    if (headProcess?.alive !== true) return;
    const crash = (): void => {
      if (!headProcess.alive) return;
      headProcess.kill();
      time.after(dice.between(20, 5000), () => this.#world.startHead());
    };
    if (log === undefined || dice.chance(0.2)) crash();
    else log.onAppend = () => void time.after(dice.between(0, 2), crash);
  }

  #replace(end: () => void): void {
    const { dice, time } = this.#world;
    end();
    time.after(dice.between(10, 3000), () => this.#world.addHost());
  }

  #pause(process: Process | undefined, ms: number): void {
    if (process === undefined || !process.alive || process.stopped) return;
    process.stop();
    this.#world.time.after(ms, () => process.goOn());
  }

  #stopHost(host: Host | undefined, ms: number): void {
    if (host === undefined || !host.process.alive || host.process.stopped) return;
    host.stop();
    this.#world.time.after(ms, () => host.goOn());
  }

  heal(): void {
    const { hosts, drivers, network, headProcess, log } = this.#world;
    network.heal();
    headProcess?.goOn();
    if (log !== undefined) log.onAppend = undefined;
    for (const host of hosts) host.goOn();
    for (const { process } of drivers) process.goOn();
    if (headProcess?.alive !== true) this.#world.time.after(5000, () => this.#world.head === undefined && this.#world.startHead());
  }
}
