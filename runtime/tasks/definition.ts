// defineTask: a function under a registered id. Like an actor's, the id names a module and an export of the program, and nothing else ever
// names code.
import { AsyncGeneratorFunction, GeneratorFunction, idOf, register } from '../api/definition.ts';
import { RuntimeFailure } from '../api/errors.ts';
import type { TaskDefinition, TaskFunction } from './types.ts';

/** What names a task on a wire. */
export interface TaskName {
  readonly id: string;
  readonly name: string;
  readonly module: string;
}

/** What the runtime knows of a task. */
export interface Task extends TaskName {
  readonly run: TaskFunction;
  /** A generator: it answers with a stream. */
  readonly streams: boolean;
}

/** Whatever defineTask was called for in this thread, exported or not. */
const defined = new Map<string, Task>();
const loaded = new Map<string, Task>();

/**
 * Makes a function a task. Export the result under the name given, from a module that starts nothing when it is imported.
 *
 * @example
 * export const fibonacci = defineTask(import.meta.url, 'fibonacci', (n: number): number =>
 *   n < 2 ? n : fibonacciOf(n - 1) + fibonacciOf(n - 2));
 * const answer = await task(fibonacci)(30);
 */
export function defineTask<F extends TaskFunction>(module: string, exportName: string, run: F): TaskDefinition<F> {
  if (typeof module !== 'string' || !URL.canParse(module))
    throw new RuntimeFailure('SINKFLEX_BAD_DEFINITION', 'the first argument of defineTask is import.meta.url');
  if (typeof exportName !== 'string' || exportName === '')
    throw new RuntimeFailure('SINKFLEX_BAD_DEFINITION', 'the second argument of defineTask is the name of the export');
  if (typeof run !== 'function')
    throw new RuntimeFailure('SINKFLEX_BAD_DEFINITION', `the third argument of defineTask is a function (${exportName})`);
  const made: object = run;
  const streams = made instanceof GeneratorFunction || made instanceof AsyncGeneratorFunction;
  const task: Task = { id: idOf(module, exportName), name: exportName, module, run, streams };
  register({ id: task.id, module, exportName });
  defined.set(task.id, task);
  return Object.freeze(task) as unknown as TaskDefinition<F>;
}

export function taskOf(value: unknown): Task {
  const task = value as Partial<Task> | null | undefined;
  if (typeof task !== 'object' || task === null || typeof task.id !== 'string' || typeof task.run !== 'function')
    throw new RuntimeFailure('SINKFLEX_BAD_DEFINITION', 'this is not the value of defineTask');
  return task as Task;
}

/** The function behind a registered id if it was loaded before. */
export function knownTask(id: string): Task | undefined {
  return loaded.get(id);
}

export async function loadTask({ id, name, module }: TaskName): Promise<Task> {
  const known = loaded.get(id);
  if (known !== undefined) return known;
  // On another host the program may be elsewhere: its runners have imported their own copy.
  const exports = (await import(module).catch((error: unknown) => {
    if (!defined.has(id)) throw error;
    return { [name]: defined.get(id) };
  })) as Record<string, unknown>;
  const value = Object.hasOwn(exports, name) ? exports[name] : undefined;
  if (value === undefined)
    throw new RuntimeFailure(
      'SINKFLEX_BAD_DEFINITION',
      `${module} exports no ${name}: export the value of defineTask under the name given to it`,
    );
  const task = taskOf(value);
  if (task.id !== id) throw new RuntimeFailure('SINKFLEX_BAD_DEFINITION', `${name} of ${module} is registered as ${task.id}, not ${id}`);
  loaded.set(id, task);
  return task;
}
