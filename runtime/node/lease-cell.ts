// Until when a host may act: a moment in shared memory, on the clock that all processes of the host have in common. The agent's heartbeat moves
// it on whenever the head has answered; every worker looks before it acts. Stopped as a whole and continued, a host finds it in the past.
import { SharedMemory, type SharedMemoryAddress } from '../../kernels/host.ts';

/** Shorter than what the head waits before it places elsewhere what ran here (control/liveness.ts), from the sending of what it answered. */
export const HOST_LEASE_MS = 9000;

/** Of this thread's performance.now() to CLOCK_MONOTONIC, milliseconds. */
const offset = Number(process.hrtime.bigint()) / 1e6 - performance.now();

export interface Lease {
  readonly address?: SharedMemoryAddress;
  /** 0 or less: it is over. */
  leftMs(): number;
  /** Counts how often it was over: what began in an earlier epoch may not act any more, though there is time left again. */
  readonly epoch: number;
}

export class LeaseCell implements Lease {
  readonly #memory: SharedMemory;
  readonly #until: Float64Array;
  readonly #epoch: Int32Array;

  private constructor(memory: SharedMemory) {
    this.#memory = memory;
    const view = memory.view(0, 16);
    this.#until = new Float64Array(view.buffer, view.byteOffset, 1);
    this.#epoch = new Int32Array(view.buffer, view.byteOffset + 8, 1);
  }

  static create(): LeaseCell {
    const cell = new LeaseCell(SharedMemory.create(64));
    cell.renew(performance.now());
    return cell;
  }

  static open(address: SharedMemoryAddress): LeaseCell {
    return new LeaseCell(SharedMemory.open(address));
  }

  get address(): SharedMemoryAddress {
    return this.#memory.address;
  }

  /** `sentAt`: performance.now() of this thread at which that was sent which the head has answered. */
  renew(sentAt: number): void {
    if (this.leftMs() <= 0) Atomics.add(this.#epoch, 0, 1);
    this.#until[0] = Math.max(this.#until[0]!, sentAt + offset + HOST_LEASE_MS);
  }

  get epoch(): number {
    return Atomics.load(this.#epoch, 0);
  }

  leftMs(): number {
    return this.#until[0]! - offset - performance.now();
  }

  release(): void {
    this.#memory.release();
  }
}
