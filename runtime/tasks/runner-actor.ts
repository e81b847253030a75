// The actor behind tasks that need a process of their own, and behind tasks that are generators. Importing this starts nothing.
import { currentActor } from '../api/actors.ts';
import { defineActor } from '../api/definition.ts';
import { onAbort } from '../worker/index.ts';
import { begin, end, RunningTask } from './current.ts';
import { loadTask, type TaskName } from './definition.ts';

class TaskRunnerActor {
  async run(name: TaskName, attempt: number, ...args: unknown[]): Promise<unknown> {
    const task = await loadTask(name);
    const { signal, gpuIds } = currentActor();
    const state = new RunningTask(task.name, attempt, 0, () => signal.aborted, 0, gpuIds);
    const stop = onAbort(signal, () => state.abort());
    begin(state);
    try {
      return await task.run(...args);
    } finally {
      end(state);
      stop();
    }
  }

  /** Answers when nothing before it is under way. */
  idle(): void {}

  async *stream(name: TaskName, attempt: number, ...args: unknown[]): AsyncGenerator<unknown, void> {
    const task = await loadTask(name);
    const { signal, gpuIds } = currentActor();
    const state = new RunningTask(task.name, attempt, 0, () => signal.aborted, 0, gpuIds);
    const stop = onAbort(signal, () => state.abort());
    begin(state);
    try {
      yield* task.run(...args) as AsyncIterable<unknown>;
    } finally {
      end(state);
      stop();
    }
  }
}

export const TaskRunner = defineActor(import.meta.url, 'TaskRunner', TaskRunnerActor);
