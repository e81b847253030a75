// How many processors of this node tasks may take at once. Amounts are integers of 1/10000, so that fractions add up.

export const UNIT = 10_000;

export class Admission {
  readonly total: number;
  #free: number;

  /** `cpus`: whole processors. */
  constructor(cpus: number) {
    this.total = cpus * UNIT;
    this.#free = this.total;
  }

  get free(): number {
    return this.#free;
  }

  tryTake(amount: number): boolean {
    if (amount > this.#free) return false;
    this.#free -= amount;
    return true;
  }

  give(amount: number): void {
    this.#free += amount;
  }

  /** Takes back what a waiting task had lent, whether or not it is free: it goes on in any case. */
  takeBack(amount: number): void {
    this.#free -= amount;
  }
}
