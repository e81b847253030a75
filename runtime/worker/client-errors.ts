// What a caller is told when its call will not be answered.
import { ActorBusyError, ActorDiedError, ActorFailedError, type Death, RuntimeFailure } from '../api/errors.ts';
import type { Place } from '../control/index.ts';
import type { Ref } from '../objects/index.ts';
import { decodeError } from '../wire/index.ts';
import type { Terms } from './terms.ts';

export interface Callee {
  readonly id: number;
  readonly target: number;
  readonly name: string;
  describe(method: string): string;
}

export function busy(callee: Callee, ref: Ref, place: Place): ActorBusyError {
  // Where a flood came from is seen in its first frames, and each costs as much as the refusal itself.
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = Math.min(stackTraceLimit, 4);
  try {
    return new ActorBusyError(
      `the mailbox of actor ${callee.name} is full (maxPending ${place.maxPending}); ${callee.describe(ref.method)} did not run`,
      { actor: callee.name, maxPending: place.maxPending },
    );
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

/** The incarnation that a call was sent to has ended. */
export function deathOf(callee: Callee, ref: Ref, place: Place): ActorDiedError {
  const data = place.death!;
  const same = data.incarnation === ref.incarnation;
  const death: Death = same
    ? { ...data, cause: data.cause === undefined ? undefined : decodeError(data.cause) }
    : { incarnation: ref.incarnation, reason: 'exit', lastStderr: [] };
  return new ActorDiedError(callee.name, death, true, place.status === 'dead');
}

/** The actor is dead: nobody will run the call. */
export function finalError(callee: Callee, place: Place, terms: Terms | undefined): Error {
  const data = place.death;
  if (data === undefined)
    return new RuntimeFailure('SINKFLEX_UNKNOWN_ACTOR', `no actor of this run is ${callee.name} (number ${callee.id})`);
  const death: Death = { ...data, cause: data.cause === undefined ? undefined : decodeError(data.cause) };
  const doubt = terms?.mayHaveRun ?? false;
  const own = death.reason === 'constructor' || (place.failed && place.restarts > 0);
  return own ? new ActorFailedError(callee.name, death, place.restarts, doubt) : new ActorDiedError(callee.name, death, doubt, true);
}

/** Whether the callee answered that the incarnation that it was sent to was ending: its own end, not one that the method ran into. */
export function isDeathOf(callee: Callee, ref: Ref, error: Error): error is ActorDiedError {
  if (!(error instanceof ActorDiedError) || error.incarnation !== ref.incarnation) return false;
  const actor = error.details?.actor;
  return actor === callee.name || actor === String(callee.target);
}
