// Callers that fail to prove themselves: after a few failures an address has to wait, longer each time. Bounded, and forgets.

export interface FailureLimits {
  /** Failures of one address that cost nothing. */
  free: number;
  firstWaitMs: number;
  longestWaitMs: number;
}

export const failureLimits: FailureLimits = { free: 5, firstWaitMs: 1000, longestWaitMs: 60_000 };
/** Addresses that are remembered. */
const MOST = 1024;

export class Failures {
  readonly #limits: FailureLimits;
  readonly #now: () => number;
  /** Least recent first. */
  readonly #known = new Map<string, { count: number; until: number }>();

  constructor(limits: FailureLimits = failureLimits, now: () => number = () => performance.now()) {
    this.#limits = limits;
    this.#now = now;
  }

  /** Whether the address has to wait still. */
  blocked(address: string): boolean {
    return (this.#known.get(address)?.until ?? 0) > this.#now();
  }

  failed(address: string): void {
    const { free, firstWaitMs, longestWaitMs } = this.#limits;
    const known = this.#known.get(address);
    const now = this.#now();
    // Whoever was quiet for the longest wait begins anew.
    const count = known !== undefined && now - known.until < longestWaitMs ? known.count + 1 : 1;
    const waitMs = count <= free ? 0 : Math.min(longestWaitMs, firstWaitMs * 2 ** (count - free - 1));
    this.#known.delete(address);
    this.#known.set(address, { count, until: now + waitMs });
    if (this.#known.size > MOST) this.#known.delete(this.#known.keys().next().value!);
  }

  succeeded(address: string): void {
    this.#known.delete(address);
  }
}
