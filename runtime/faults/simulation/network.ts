// Connections between processes of the simulation: frames arrive whole and in order, or the connection ends. A cut between two hosts holds
// frames back until it heals, as TCP does; the ends find a broken connection out each in their own time, and one that is silent for three
// seconds is given up, as pipes do (links/pipe.ts).
import { freeze } from './freeze.ts';
import type { Dice, Process, VirtualTime } from './time.ts';

export interface Handler {
  message(message: unknown): void;
  closed(): void;
}

export interface End {
  send(message: unknown): void;
  close(): void;
}

export interface NetworkOptions {
  /** Milliseconds that a frame typically takes. */
  latency: number;
  /** How often a frame arrives twice. */
  duplicate: number;
}

export class VirtualNetwork {
  readonly #time: VirtualTime;
  readonly #dice: Dice;
  readonly #options: NetworkOptions;
  /** `a>b`: frames of a do not reach b. */
  readonly #cuts = new Set<string>();
  readonly #connections = new Set<Connection>();

  constructor(time: VirtualTime, dice: Dice, options: NetworkOptions) {
    this.#time = time;
    this.#dice = dice;
    this.#options = options;
  }

  isCut(from: string, to: string): boolean {
    return this.#cuts.has(`${from}>${to}`);
  }

  cut(from: string, to: string): void {
    this.#cuts.add(`${from}>${to}`);
  }

  heal(): void {
    this.#cuts.clear();
    for (const connection of this.#connections) connection.flush();
  }

  /** Breaks the connections of a process, or all. */
  breakOf(process?: Process): void {
    for (const connection of [...this.#connections]) if (process === undefined || connection.joins(process)) connection.break();
  }

  /** Undefined: nobody is there, or no way to it. The far end is answered by `accept`. */
  connect(from: Process, to: Process | undefined, near: Handler, accept: (end: End) => Handler): End | undefined {
    if (to === undefined || !to.alive || to.stopped || this.isCut(from.name, to.name) || this.isCut(to.name, from.name)) return undefined;
    const connection = new Connection(this, this.#time, this.#dice, this.#options, from, to, near, () =>
      this.#connections.delete(connection),
    );
    this.#connections.add(connection);
    connection.watch();
    connection.accept(accept);
    return connection.nearEnd;
  }
}

class Connection {
  readonly nearEnd: End;
  readonly #network: VirtualNetwork;
  readonly #time: VirtualTime;
  readonly #dice: Dice;
  readonly #options: NetworkOptions;
  readonly #near: Process;
  readonly #far: Process;
  readonly #handlers: [Handler, Handler | undefined];
  readonly #gone: () => void;
  #open = true;
  /** When the last frame of that direction arrives: none overtakes it. */
  readonly #last: [number, number] = [0, 0];
  readonly #held: [unknown[], unknown[]] = [[], []];

  constructor(
    network: VirtualNetwork,
    time: VirtualTime,
    dice: Dice,
    options: NetworkOptions,
    near: Process,
    far: Process,
    handler: Handler,
    gone: () => void,
  ) {
    this.#network = network;
    this.#time = time;
    this.#dice = dice;
    this.#options = options;
    this.#near = near;
    this.#far = far;
    this.#handlers = [handler, undefined];
    this.#gone = gone;
    this.nearEnd = { send: (message) => this.#send(0, message), close: () => this.break() };
    near.onEnd(() => this.break());
    far.onEnd(() => this.break());
  }

  joins(process: Process): boolean {
    return this.#near === process || this.#far === process;
  }

  /** Nothing can pass for three seconds: it ends. What has arrived by then is still read. */
  watch(silentMs = 0): void {
    this.#time.after(500, () => {
      if (!this.#open) return;
      const silent = this.#near.stopped || this.#far.stopped || this.#isCut(0) || this.#isCut(1);
      if (silent && silentMs >= 3000) this.break();
      else this.watch(silent ? silentMs + 500 : 0);
    });
  }

  accept(accept: (end: End) => Handler): void {
    this.#handlers[1] = accept({ send: (message) => this.#send(1, message), close: () => this.break() });
  }

  #send(from: 0 | 1, message: unknown): void {
    if (!this.#open) return;
    freeze(message);
    if (this.#isCut(from)) this.#held[from].push(message);
    else this.#deliver(from, message);
  }

  #isCut(from: 0 | 1): boolean {
    const [a, b] = from === 0 ? [this.#near, this.#far] : [this.#far, this.#near];
    return this.#network.isCut(a.name, b.name);
  }

  #deliver(from: 0 | 1, message: unknown): void {
    const to = from === 0 ? this.#far : this.#near;
    const handler = (): Handler => this.#handlers[from === 0 ? 1 : 0]!;
    const at = Math.max(this.#last[from], this.#time.now + this.#dice.delay(this.#options.latency));
    this.#last[from] = at;
    for (let copies = this.#dice.chance(this.#options.duplicate) ? 2 : 1; copies > 0; copies--) {
      // What was on its way when the connection broke may be lost, or have arrived; a stopped process reads that when it goes on.
      this.#time.after(at - this.#time.now, () => {
        if (this.#open) to.run(() => handler().message(message));
      });
    }
  }

  /** The cut is healed: what was held back goes on. */
  flush(): void {
    for (const from of [0, 1] as const) {
      if (!this.#isCut(from)) for (const message of this.#held[from].splice(0)) this.#deliver(from, message);
    }
  }

  break(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#gone();
    this.#near.after(this.#dice.delay(1), () => this.#handlers[0].closed());
    this.#far.after(this.#dice.delay(1), () => this.#handlers[1]?.closed());
  }
}
