// Calls of tasks that wait for processors: those that running tasks wait for first, the deepest before all, else in the order of the calls.
// A tree of tasks is thus gone through branch by branch, with few of its tasks under way at once.
import type { TaskCall } from './call.ts';

interface Level {
  calls: TaskCall[];
  head: number;
}

export class WaitingCalls {
  /** By depth: 0 for what no task has called. */
  readonly #levels: Level[] = [];
  #size = 0;

  get size(): number {
    return this.#size;
  }

  push(call: TaskCall): void {
    const { depth } = call.options;
    while (this.#levels.length <= depth) this.#levels.push({ calls: [], head: 0 });
    this.#levels[depth]!.calls.push(call);
    this.#size++;
  }

  /** The next that somebody still waits for. */
  peek(): TaskCall | undefined {
    for (let depth = this.#levels.length - 1; depth >= 0; depth--) {
      const level = this.#levels[depth]!;
      while (level.head < level.calls.length && level.calls[level.head]!.over) this.#step(level);
      if (level.head < level.calls.length) return level.calls[level.head];
    }
    return undefined;
  }

  /** Takes what peek() answers. */
  take(): TaskCall {
    const call = this.peek()!;
    this.#step(this.#levels[call.options.depth]!);
    return call;
  }

  #step(level: Level): void {
    level.head++;
    this.#size--;
    if (level.head === level.calls.length) {
      level.calls = [];
      level.head = 0;
    } else if (level.head >= 1024 && level.head * 2 > level.calls.length) {
      level.calls.splice(0, level.head);
      level.head = 0;
    }
  }

  *[Symbol.iterator](): IterableIterator<TaskCall> {
    for (const { calls, head } of this.#levels) for (let i = head; i < calls.length; i++) yield calls[i]!;
  }
}
