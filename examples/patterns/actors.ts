// The actors of main.ts.
import { currentActor, defineActor, type QueueHandle } from 'sinkflex/runtime';

export const Worker = defineActor(
  import.meta.url,
  'Worker',
  class {
    #total = 0;

    square(x: number): number {
      return x * x;
    }

    /** Takes numbers from the queue until it is closed. */
    async consume(queue: QueueHandle<number>): Promise<number> {
      for (;;) {
        try {
          for (const item of await queue.getMany(4)) this.#total += item;
        } catch (error) {
          if ((error as { code?: string }).code !== 'SINKFLEX_QUEUE_CLOSED') throw error;
          return this.#total;
        }
      }
    }

    mean(values: Float64Array): number {
      return values.reduce((sum, value) => sum + value, 0) / values.length;
    }

    incarnation(): number {
      return currentActor().incarnation;
    }

    crash(): void {
      process.exit(1);
    }
  },
);
