// What an agent makes of the lease of its host: when it is over, what runs here ends; when it holds again, the node joins again, as if it
// had just come. What the head wanted before may run elsewhere by then, and is not done any more, also if it is only read now: the node joins
// over another connection.
import type { Clock } from '../control/index.ts';
import type { Lease } from './lease-cell.ts';

const LOOK_MS = 250;

export class LeaseWatch {
  readonly #lease: Lease;
  readonly #clock: Clock;
  readonly #on: { over: () => void; again: () => void };
  /** Of the lease, when the node joined last; 0: not yet. */
  #epoch = 0;
  #over = false;
  #closed = false;

  constructor(lease: Lease, clock: Clock, on: { over: () => void; again: () => void }) {
    this.#lease = lease;
    this.#clock = clock;
    this.#on = on;
    this.#lookLater();
  }

  joined(): void {
    this.#epoch = this.#lease.epoch;
  }

  /** Whether the lease has held since the node joined last. */
  get holds(): boolean {
    return this.#lease.leftMs() > 0 && this.#lease.epoch === this.#epoch;
  }

  close(): void {
    this.#closed = true;
  }

  #look(): void {
    if (this.#closed) return;
    if (!this.#over && this.#epoch > 0 && !this.holds) {
      this.#over = true;
      this.#on.over();
    }
    if (this.#over && this.#lease.leftMs() > 0) {
      this.#over = false;
      this.#on.again();
    }
    this.#lookLater();
  }

  #lookLater(): void {
    this.#clock.after(LOOK_MS, () => this.#look(), true);
  }
}
