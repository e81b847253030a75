// A process that is connected to the head: an agent or a driver. Connects again whenever the connection ends, with growing waits.
import type { FromHead, HeadLink, ToHead } from '../../control/index.ts';
import type { End } from './network.ts';
import type { Process } from './time.ts';
import type { World } from './world.ts';

const FIRST_WAIT_MS = 20;
const LONGEST_WAIT_MS = 500;

export class Peer implements HeadLink {
  readonly #world: World;
  readonly #process: Process;
  readonly #up: () => void;
  readonly #message: (message: FromHead) => void;
  #end: End | undefined;
  #closed = false;

  constructor(world: World, process: Process, on: { up: () => void; message: (message: FromHead) => void }) {
    this.#world = world;
    this.#process = process;
    this.#up = on.up;
    this.#message = on.message;
  }

  get up(): boolean {
    return this.#end !== undefined;
  }

  connect(waitMs = FIRST_WAIT_MS): void {
    if (this.#closed) return;
    const end = this.#world.connectToHead(this.#process, {
      message: (message) => this.#message(message as FromHead),
      closed: () => {
        if (this.#end !== end) return;
        this.#end = undefined;
        this.connect();
      },
    });
    if (end === undefined) {
      this.#process.after(waitMs, () => this.connect(Math.min(2 * waitMs, LONGEST_WAIT_MS)));
      return;
    }
    this.#end = end;
    this.#up();
  }

  send(message: ToHead): void {
    this.#end?.send(message);
  }

  reconnect(): void {
    this.#end?.close();
  }

  close(): void {
    this.#closed = true;
    const end = this.#end;
    this.#end = undefined;
    end?.close();
  }
}
