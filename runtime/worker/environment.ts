// What a worker that was started before it had an actor is given with its actor: the environment and the folder that the actor asked for.
import { isMainThread } from 'node:worker_threads';
import type { EnvironmentChange } from '../control/index.ts';

export function applyEnvironment({ set, unset, cwd }: EnvironmentChange): void {
  for (const name of unset) delete process.env[name];
  Object.assign(process.env, set);
  if (cwd !== undefined && isMainThread) process.chdir(cwd);
}
