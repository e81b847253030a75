// Errors as plain data, and back: code, name, message, the thrower's stack, cause, details. An error of ours comes back as its own
// class; any other comes back as RemoteError with the same name, message and stack.
import { isSinkflexError, SinkflexError } from '../../kernels/host.ts';
import {
  ActorBusyError,
  ActorDiedError,
  ActorFailedError,
  CallAbortedError,
  CallTimeoutError,
  RemoteError,
  RuntimeFailure,
  runtimeErrorCodes,
} from '../api/errors.ts';
import { registerWireClass } from './codec.ts';

/** [code | null, name, message, stack, has cause, cause, details | null] */
export type ErrorData = [string | null, string, string, string, boolean, unknown, Record<string, unknown> | null];

const MAX_CAUSES = 8;

/** Values inside errors that cannot travel must not hide the error: they become text. */
function presentable(value: unknown, depth: number): unknown {
  if (value instanceof Error) return { name: value.name, message: value.message };
  if (value === null || typeof value === 'number' || typeof value === 'string' || typeof value === 'boolean' || value === undefined)
    return value;
  if (depth > MAX_CAUSES) return String(value);
  if (Array.isArray(value)) return value.slice(0, 1000).map((item) => presentable(item, depth + 1));
  if (typeof value === 'object' && (Object.getPrototypeOf(value) === Object.prototype || Object.getPrototypeOf(value) === null)) {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, presentable(item, depth + 1)]));
  }
  return typeof value === 'bigint' ? value : describe(value);
}

function describe(value: unknown): string {
  try {
    return String(value);
  } catch {
    return Object.prototype.toString.call(value);
  }
}

export function encodeError(error: unknown, depth = 0): ErrorData {
  if (!(error instanceof Error))
    return [
      null,
      'Error',
      `a value that is no error was thrown: ${describe(error)}`,
      '',
      true,
      { value: presentable(error, depth + 1) },
      null,
    ];
  const { name, message, stack, cause } = error as Error & { cause?: unknown };
  const code = isSinkflexError(error) ? error.code : null;
  let details: Record<string, unknown> | null = null;
  if (isSinkflexError(error)) {
    if (error.details !== undefined) details = presentable(error.details, depth) as Record<string, unknown>;
  } else {
    const own = Object.entries(error).filter(([key]) => key !== 'cause' && key !== 'stack' && key !== 'message' && key !== 'name');
    if (own.length > 0) details = presentable(Object.fromEntries(own), depth) as Record<string, unknown>;
  }
  const withCause = cause !== undefined && depth < MAX_CAUSES;
  return [code, String(name), String(message), String(stack ?? ''), withCause, withCause ? nested(cause, depth) : null, details];
}

/** Says which of both a cause is, since anything can be thrown. */
function nested(cause: unknown, depth: number): unknown {
  return cause instanceof Error ? { error: encodeError(cause, depth + 1) } : { value: presentable(cause, depth + 1) };
}

const classes: Record<string, { prototype: object }> = {
  SINKFLEX_ACTOR_DIED: ActorDiedError,
  SINKFLEX_ACTOR_FAILED: ActorFailedError,
  SINKFLEX_ACTOR_BUSY: ActorBusyError,
  SINKFLEX_CALL_TIMEOUT: CallTimeoutError,
  SINKFLEX_CALL_ABORTED: CallAbortedError,
};

export function decodeError(data: unknown): SinkflexError {
  if (!Array.isArray(data)) return new RuntimeFailure('SINKFLEX_PROTOCOL', 'the peer sent an error that is none');
  const [code, name, message, stack, hasCause, cause, details] = data as ErrorData;
  const options: { cause?: unknown; details?: Record<string, unknown> } = {};
  if (hasCause) options.cause = decodeCause(cause);
  if (details !== null && typeof details === 'object') options.details = details;
  let error: SinkflexError;
  if (typeof code === 'string' && code.startsWith('SINKFLEX_') && code !== 'SINKFLEX_METHOD_FAILED') {
    error = new SinkflexError(code as `SINKFLEX_${string}`, String(message), options);
    const known = Object.hasOwn(classes, code) ? classes[code] : code in runtimeErrorCodes ? RuntimeFailure : undefined;
    if (known !== undefined) Object.setPrototypeOf(error, known.prototype);
    error.name = String(name);
  } else {
    error = new RemoteError(String(name), String(message), options);
  }
  if (typeof stack === 'string' && stack !== '')
    Object.defineProperty(error, 'stack', { value: stack, configurable: true, writable: true, enumerable: false });
  return error;
}

function decodeCause(cause: unknown): unknown {
  if (typeof cause !== 'object' || cause === null) return cause;
  if ('error' in cause) return decodeError(cause.error);
  return 'value' in cause ? cause.value : cause;
}

// Errors inside values (a result that holds one) travel the same way.
registerWireClass('error', Error, (error) => encodeError(error), decodeError);
