// The actor of main.ts.
import { currentActor, defineActor } from 'sinkflex/runtime';

export const Worker = defineActor(
  import.meta.url,
  'Worker',
  class {
    who(): { pid: number; incarnation: number } {
      return { pid: process.pid, incarnation: currentActor().incarnation };
    }

    /** Never answers: ends with the call's abort or with the process. */
    async wait(): Promise<void> {
      await new Promise(() => {});
    }
  },
);
