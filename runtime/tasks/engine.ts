// What runs the tasks of this worker: a scheduler, a pool of threads and runners, made for the first call.
import { availableParallelism } from 'node:os';
import { session } from '../worker/index.ts';
import { knownTask, loadTask, type Task, type TaskName } from './definition.ts';
import { type Lane, Leases } from './leases.ts';
import { openDesk } from './nested.ts';
import { type CheckedOptions, checkTask } from './options.ts';
import { Runners } from './runners.ts';
import { Scheduler } from './scheduler.ts';
import { showTasks } from './seen.ts';
import { provideTasks, stream, submit } from './task.ts';
import { ThreadPool } from './thread-pool.ts';

export interface Tasks {
  /** Where calls of the task go. */
  lane(task: Task, options: CheckedOptions): Lane;
  close(): Promise<void>;
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
  const processes = new Runners({ isolation: 'process' });
  const streamers = { thread: new Runners({ isolation: 'thread' }), process: processes };
  const scheduler = new Scheduler(cpus ?? availableParallelism(), threads, processes);
  const leases = new Leases();
  tasks = {
    lane: (task, { placement, isolation }) =>
      placement === undefined ? { scheduler, streamer: streamers[isolation] } : leases.of(task, placement),
    async close() {
      for (const runners of Object.values(streamers)) runners.close();
      leases.close();
      await threads.close();
    },
  };
  showTasks(function* () {
    for (const each of [scheduler, ...leases.schedulers]) yield* each.seen();
  });
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
  await ending?.close();
}
