// Idempotency keys of one caller's calls to one actor: ascending, and known to the callee until the caller says that it has the answers.

/** Answers may be forgotten after so many. */
const ACKNOWLEDGE_EVERY = 256;

export class Keys {
  #last = 0;
  /** Of calls that are not over, ascending. */
  readonly #open = new Set<number>();
  /** Over, and the callee may not know. */
  #unacknowledged = 0;

  next(): number {
    this.#open.add(++this.#last);
    return this.#last;
  }

  done(key: number): void {
    this.#open.delete(key);
    this.#unacknowledged++;
  }

  /** Some calls are not over. */
  get open(): boolean {
    return this.#open.size > 0;
  }

  /** The callee may forget all answers to keys below. */
  get lowest(): number {
    for (const key of this.#open) return key;
    return this.#last + 1;
  }

  get owed(): boolean {
    return this.#unacknowledged > 0;
  }

  /** It is time to tell the callee. */
  get due(): boolean {
    return this.#unacknowledged >= ACKNOWLEDGE_EVERY || this.#open.size === 0;
  }

  /** The callee is told: below which key. */
  acknowledged(): number {
    this.#unacknowledged = 0;
    return this.lowest;
  }

  /** What it was told last may be lost. */
  unsure(): void {
    if (this.#last > 0) this.#unacknowledged++;
  }
}
