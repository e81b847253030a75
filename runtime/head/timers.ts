// Named timers: setting one again replaces it.
export class Timers {
  readonly #timers = new Map<string, NodeJS.Timeout>();

  set(name: string, ms: number, action: () => void): void {
    clearTimeout(this.#timers.get(name));
    this.#timers.set(
      name,
      setTimeout(() => {
        this.#timers.delete(name);
        action();
      }, ms),
    );
  }

  clear(name: string): void {
    clearTimeout(this.#timers.get(name));
    this.#timers.delete(name);
  }

  clearAll(): void {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
  }
}
