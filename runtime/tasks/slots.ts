// Memory that a pool shares with its threads: one cell for each task that was sent. Says how far a task has come, which is how its owner
// knows what a thread that died had begun, and carries the wish to cancel it into code that gives the event loop no turn.

/** Bits of a cell. */
export const BEGUN = 1;
export const DONE = 2;
export const CANCEL = 4;

export const SLOTS = 8192;

export class Slots {
  readonly cells = new Int32Array(new SharedArrayBuffer(SLOTS * Int32Array.BYTES_PER_ELEMENT));
  readonly #free: number[] = [];

  constructor() {
    for (let slot = SLOTS - 1; slot >= 0; slot--) this.#free.push(slot);
  }

  get free(): number {
    return this.#free.length;
  }

  take(): number {
    const slot = this.#free.pop()!;
    Atomics.store(this.cells, slot, 0);
    return slot;
  }

  give(slot: number): void {
    this.#free.push(slot);
  }

  begun(slot: number): boolean {
    return (Atomics.load(this.cells, slot) & BEGUN) !== 0;
  }

  cancel(slot: number): void {
    Atomics.or(this.cells, slot, CANCEL);
  }
}
