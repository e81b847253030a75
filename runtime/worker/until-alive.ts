// Waits for the end of an actor's constructor.
import { CallTimeoutError } from '../api/errors.ts';
import type { Place } from '../control/index.ts';
import { Ref } from '../objects/index.ts';
import { type Callee, finalError } from './client-errors.ts';

/** Resolves when the actor is alive; rejects when it is dead. `watchers` are called at the next change of its place. */
export async function untilAlive(
  callee: Callee,
  timeoutMs: number | undefined,
  place: () => Place | undefined,
  watchers: (() => void)[],
): Promise<void> {
  const deadline = new Ref();
  const late = (): void => deadline.reject(new CallTimeoutError(`the constructor of ${callee.name}`, timeoutMs ?? 0, true));
  const timer = timeoutMs === undefined ? undefined : setTimeout(late, timeoutMs);
  const check = (): void => {
    const now = place();
    if (now?.status === 'alive') deadline.resolve(undefined);
    else if (now?.status === 'dead') deadline.reject(finalError(callee, now, undefined));
    else watchers.push(check);
  };
  check();
  try {
    await deadline;
  } finally {
    clearTimeout(timer);
  }
}
