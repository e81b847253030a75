// Tasks that the head places: their lease is a runner that reserves what they ask for, wherever the head found it. It is kept for half a
// second, since the next task often asks for the same.
import type { PlacementOptions } from '../api/types.ts';
import type { Task } from './definition.ts';
import { Runners } from './runners.ts';
import { Scheduler } from './scheduler.ts';

const IDLE_MS = 500;

/** Where calls wait, and what runs generators among them. */
export interface Lane {
  scheduler: Scheduler;
  streamer: Runners;
}

export class Leases {
  /** By what is asked for, and the module that runners load. */
  readonly #lanes = new Map<string, Lane>();

  of(task: Task, placement: PlacementOptions): Lane {
    const { placementGroup, ...rest } = placement;
    const key = JSON.stringify([task.module, placementGroup?.id, Object.entries(rest).sort(([a], [b]) => (a < b ? -1 : 1))]);
    let lane = this.#lanes.get(key);
    if (lane === undefined) {
      const options = { ...placement, isolation: 'process', imports: [task.module] } as const;
      const runners = new Runners(options, IDLE_MS, () => {
        if (this.#lanes.get(key)?.scheduler.waiting === 0) this.#lanes.delete(key);
      });
      // The head counts what is reserved.
      lane = { scheduler: new Scheduler(Number.POSITIVE_INFINITY, runners, runners), streamer: runners };
      this.#lanes.set(key, lane);
    }
    return lane;
  }

  get schedulers(): Scheduler[] {
    return [...this.#lanes.values()].map((lane) => lane.scheduler);
  }

  close(): void {
    for (const { streamer } of this.#lanes.values()) streamer.close();
    this.#lanes.clear();
  }
}
