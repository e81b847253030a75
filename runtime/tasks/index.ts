// Tasks: stateless functions in threads or processes, admitted by processors.
export { currentTask } from './current.ts';
export { defineTask } from './definition.ts';
export { task } from './task.ts';
export type { CurrentTask, TaskCaller, TaskDefinition, TaskFunction, TaskOptions } from './types.ts';
