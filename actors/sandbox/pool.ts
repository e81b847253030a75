/** Things that take a while to start, kept started ahead of time; and a bound on how many start at once. */

interface Entry<T> {
  thing: Promise<T>;
  ready: boolean;
}

export class WarmPool<T> {
  readonly #target: number;
  readonly #start: () => Promise<T>;
  #entries: Entry<T>[] = [];
  #open = true;

  constructor(target: number, start: () => Promise<T>) {
    this.#target = target;
    this.#start = start;
  }

  /** Started and waiting. */
  get ready(): number {
    return this.#entries.filter((e) => e.ready).length;
  }

  /** The oldest one, ready where there is one that is; undefined: the pool is empty. */
  take(): { thing: Promise<T>; ready: boolean } | undefined {
    const at = Math.max(
      0,
      this.#entries.findIndex((e) => e.ready),
    );
    const [entry] = this.#entries.splice(at, 1);
    return entry;
  }

  refill(): void {
    while (this.#open && this.#entries.length < this.#target) {
      const entry: Entry<T> = { thing: this.#start(), ready: false };
      this.#entries.push(entry);
      entry.thing.then(
        () => {
          entry.ready = true;
        },
        () => {
          // Who took it hears of it. One that nobody took is started anew when something is asked for.
          this.#entries = this.#entries.filter((e) => e !== entry);
        },
      );
    }
  }

  /** Starts no more; resolves when nothing is starting. */
  async close(): Promise<void> {
    this.#open = false;
    await Promise.allSettled(this.#entries.splice(0).map((e) => e.thing));
  }
}

/** Runs at most so many at once, in the order they came. */
export class StartQueue {
  readonly #most: number;
  #running = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(most: number) {
    this.#most = most;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running >= this.#most) await new Promise<void>((go) => this.#waiting.push(go));
    else this.#running++;
    try {
      return await work();
    } finally {
      // The place goes to the next in line.
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running--;
    }
  }
}
