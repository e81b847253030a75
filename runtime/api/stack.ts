// What a living actor is doing right now.
import { type StackSample, stackText } from '../observe/stack-sample.ts';
import { checkTimeout } from './check.ts';
import { RuntimeFailure } from './errors.ts';
import { Handle } from './handle.ts';
import { driver } from './run.ts';
import type { AnyHandle } from './types.ts';

export { type StackSample, stackText };

/**
 * The JavaScript stack of an actor's event loop, innermost call first; also of a loop that never turns. `idle`: nothing ran. `silent`: no
 * answer, as from a long call of native code, a stopped process, or a process in its first second. Only takes a look: the actor goes on.
 * In the program whose node hosts the actor.
 *
 * @example
 * console.log(stackText(await stack(solver)));
 */
export async function stack(handle: AnyHandle, options: { timeoutMs?: number } = {}): Promise<StackSample> {
  const timeoutMs = checkTimeout('stack', options);
  if (!(handle instanceof Handle)) throw new RuntimeFailure('SINKFLEX_BAD_OPTION', 'this is not a handle of an actor');
  const { agent } = driver();
  if (agent === undefined)
    throw new RuntimeFailure('SINKFLEX_NO_ANSWER', 'no node lives in this program: ask the one that hosts the actor');
  return agent.stack({ actor: Handle.client(handle as Handle).id }, timeoutMs);
}
