// Constructor errors that no restart mends: a mistake in the program is the same next time. Anything else may be a service that is not up
// yet, and waiting cures that.
import type { DeathData } from '../control/index.ts';

const MISTAKES = new Set(['TypeError', 'ReferenceError', 'SyntaxError', 'AssertionError']);
/** Of our own, and of Node: what a program asks for that is not there. */
const MISTAKE_CODES = new Set([
  'SINKFLEX_BAD_DEFINITION',
  'SINKFLEX_BAD_OPTION',
  'SINKFLEX_NOT_SERIALIZABLE',
  'ERR_MODULE_NOT_FOUND',
  'ERR_PACKAGE_PATH_NOT_EXPORTED',
  'ERR_INVALID_ARG_TYPE',
  'ERR_INVALID_ARG_VALUE',
  'ERR_ASSERTION',
]);

/** Both incarnations ended in their constructor or start(), with the same mistake. */
export function isHopeless(before: DeathData | undefined, now: DeathData): boolean {
  if (before?.reason !== 'constructor' || now.reason !== 'constructor' || before.incarnation !== now.incarnation - 1) return false;
  if (before.cause === undefined || now.cause === undefined) return false;
  const [code, name, message, , hasCause, , details] = now.cause;
  const [codeBefore, nameBefore, messageBefore] = before.cause;
  if (code !== codeBefore || name !== nameBefore || message !== messageBefore) return false;
  const known = code ?? details?.code;
  // An error with a cause tells of something else that failed: `TypeError: fetch failed` is a connection that was refused.
  return (typeof known === 'string' && MISTAKE_CODES.has(known)) || (MISTAKES.has(name) && !hasCause);
}
