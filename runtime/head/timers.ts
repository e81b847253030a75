// Named timers: setting one again replaces it. `idle`: not worth keeping the process alive for.
export class Timers {
  readonly #timers = new Map<string, NodeJS.Timeout>();

  set(name: string, ms: number, action: () => void, idle = false): void {
    clearTimeout(this.#timers.get(name));
    const timer = setTimeout(() => {
      this.#timers.delete(name);
      action();
    }, ms);
    if (idle) timer.unref();
    this.#timers.set(name, timer);
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
