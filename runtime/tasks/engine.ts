// What runs the tasks of this worker: a scheduler, a pool of threads and runners, made for the first call.
import { availableParallelism } from 'node:os';
import { session } from '../worker/index.ts';
import { knownTask, loadTask, type Task, type TaskName } from './definition.ts';
import { openDesk } from './nested.ts';
import { checkTask } from './options.ts';
import { Runners } from './runners.ts';
import { Scheduler } from './scheduler.ts';
import { showTasks } from './seen.ts';
import { provideTasks, stream, submit } from './task.ts';
import { ThreadPool } from './thread-pool.ts';

export interface Tasks {
  scheduler: Scheduler;
  threads: ThreadPool;
  runners: Runners;
  streamers: { thread: Runners; process: Runners };
}

let tasks: Tasks | undefined;
let cpus: number | undefined;

/** Processors that tasks of this worker may take at once; default all. */
export function setTaskCpus(count: number): void {
  cpus = count;
}

provideTasks(() => {
  if (tasks !== undefined) return tasks;
  const here = session();
  const threads = new ThreadPool(here, (task, ms, waited) => scheduler.measured(task, ms, waited));
  const processes = new Runners('process');
  const scheduler = new Scheduler(cpus ?? availableParallelism(), threads, processes);
  tasks = { scheduler, threads, runners: processes, streamers: { thread: new Runners('thread'), process: processes } };
  showTasks(() => scheduler.seen());
  const named = async (name: TaskName): Promise<Task> => knownTask(name.id) ?? (await loadTask(name));
  void openDesk(
    here,
    async (name, { depth, ...options }, args) => submit(await named(name), checkTask(options, depth), args).promise(),
    async function* (name, { depth, ...options }, args) {
      yield* stream(await named(name), checkTask(options, depth), args);
    },
    scheduler,
  );
  return tasks;
});

/** Ends what runs tasks of this worker. */
export async function endTasks(): Promise<void> {
  const ending = tasks;
  tasks = undefined;
  cpus = undefined;
  showTasks(undefined);
  if (ending === undefined) return;
  ending.streamers.thread.close();
  ending.runners.close();
  await ending.threads.close();
}
