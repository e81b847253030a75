// The actors of main.ts. A module that defines actors starts nothing when it is imported: workers load it too.
import { type ActorHandle, defineActor } from 'sinkflex/runtime';

export const Counter = defineActor(
  import.meta.url,
  'Counter',
  class {
    #count = 0;

    add(by: number): number {
      this.#count += by;
      return this.#count;
    }
  },
);

export const Tally = defineActor(
  import.meta.url,
  'Tally',
  class {
    readonly #counts = new Map<string, number>();

    add(words: string[]): void {
      for (const word of words) this.#counts.set(word, (this.#counts.get(word) ?? 0) + 1);
    }

    top(n: number): [string, number][] {
      return [...this.#counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, n);
    }
  },
);

export const Splitter = defineActor(
  import.meta.url,
  'Splitter',
  class {
    readonly #tally: ActorHandle<typeof Tally>;

    constructor(tally: ActorHandle<typeof Tally>) {
      this.#tally = tally;
    }

    /** Goes from this process to the tally's directly; the driver sees nothing of it. */
    async line(text: string): Promise<void> {
      await this.#tally.add(text.toLowerCase().match(/[a-z]+/g) ?? []);
    }
  },
);
