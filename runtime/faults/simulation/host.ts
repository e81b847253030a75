// A host of the simulation: the agent's own code, over virtual workers and a virtual connection.
import type { FromHead } from '../../control/index.ts';
import { Agent } from '../../node/agent.ts';
import { startHeartbeat, VirtualLease } from './lease.ts';
import { Peer } from './peer.ts';
import type { Process } from './time.ts';
import { VirtualWorkers } from './workers.ts';
import type { World } from './world.ts';

export class Host {
  readonly node: string;
  readonly process: Process;
  readonly agent: Agent;
  readonly peer: Peer;
  readonly #world: World;
  /** The thread of the heartbeat. */
  readonly #monitor: Process;
  #workers!: VirtualWorkers;
  #leaving = false;

  constructor(world: World, process: Process, cpus: number) {
    this.#world = world;
    this.node = process.name;
    this.process = process;
    const clock = process.clock(world.dice.between(-1, 1) * world.options.drift);
    const lease = new VirtualLease(clock);
    const own = world.process(`workers of ${this.node}`);
    this.peer = new Peer(world, process, {
      up: () => this.agent.join(),
      message: (message: FromHead) => this.agent.onHead(message),
    });
    this.agent = new Agent(
      {
        node: this.node,
        total: { cpus },
        labels: {},
        folder: '',
        token: Buffer.alloc(0),
        sharedWorkers: 0,
        maxInFlightBytes: 0,
        warmWorkers: {},
        onOutput: () => {},
        onDrain: (graceMs) => this.drain(graceMs),
        onShutdown: () => process.kill(),
        clock,
        lease,
        process: { pid: process.pid, start: process.start },
        makeWorkers: (numbers, events) => {
          this.#workers = new VirtualWorkers(world, process, own, lease, this.node, numbers, events);
          return this.#workers;
        },
      },
      this.peer,
    );
    world.register.node(this.node, cpus);
    this.peer.connect();
    this.#monitor = world.process(this.node);
    process.onEnd(() => this.#monitor.kill());
    startHeartbeat(world, this.#monitor, process, clock, this.node, lease);
  }

  /** As by SIGSTOP, with all threads of the agent; its workers go on. */
  stop(): void {
    this.process.stop();
    this.#monitor.stop();
  }

  /** Its threads do not go on in the same moment. */
  goOn(): void {
    this.#monitor.goOn();
    this.#world.time.after(this.#world.dice.delay(3), () => this.process.goOn());
  }

  /** A worker ends by itself. */
  crashWorker(): void {
    this.process.run(() => this.#workers.crash());
  }

  drain(graceMs: number): void {
    if (this.#leaving) return;
    this.#leaving = true;
    void this.agent.leave(graceMs).then(() => this.process.after(100, () => this.process.kill()));
  }
}
