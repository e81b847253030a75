// Named timers: setting one again replaces it. `idle`: not worth keeping the process alive for.
import type { Clock } from '../control/index.ts';

export class Timers {
  readonly #clock: Clock;
  readonly #cancel = new Map<string, () => void>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  set(name: string, ms: number, action: () => void, idle = false): void {
    this.clear(name);
    const cancel = this.#clock.after(
      ms,
      () => {
        this.#cancel.delete(name);
        action();
      },
      idle,
    );
    this.#cancel.set(name, cancel);
  }

  clear(name: string): void {
    this.#cancel.get(name)?.();
    this.#cancel.delete(name);
  }

  clearAll(): void {
    for (const cancel of this.#cancel.values()) cancel();
    this.#cancel.clear();
  }
}
