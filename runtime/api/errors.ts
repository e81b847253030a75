// The typed errors of the actor runtime: every failure that a caller can see, with a stable code, and the table of all codes.
import { SinkflexError } from '../../kernels/host.ts';

/** Every error code of runtime/, with what a caller can do about it. docs/errors.md lists the same set. */
export const runtimeErrorCodes = {
  SINKFLEX_ACTOR_DIED:
    'The actor is gone; details say how it ended and whether the call may have run. Spawn it with maxRestarts, or call again.',
  SINKFLEX_ACTOR_FAILED: 'The constructor failed, or the restart budget is spent: read the cause, then raise maxRestarts or fix the actor.',
  SINKFLEX_OUT_OF_MEMORY:
    'The worker used more memory than its limit, its JavaScript heap or the machine allows: raise memory or --max-old-space-size, or keep less.',
  SINKFLEX_ACTOR_UNRESPONSIVE:
    'Its event loop was blocked, or its process stopped, for longer than unresponsiveMs: split the work, or use native tasks that wait elsewhere.',
  SINKFLEX_ACTOR_BUSY: 'The mailbox (maxPending) or the channel (maxInFlightBytes) is full: await earlier calls first, or raise the limit.',
  SINKFLEX_TASK_DIED:
    'The thread or process that ran the task ended under it, more often than maxRetries allows: read the cause, or give it more memory.',
  SINKFLEX_RANK_FAILED: 'A member of a group failed: details.rank says which, the cause is what it failed with.',
  SINKFLEX_POOL_EMPTY: 'Every actor of the pool is dead or was removed: add others.',
  SINKFLEX_QUEUE_TIMEOUT: 'The queue stayed full, or empty, for as long as timeoutMs allows: look at the other side, or wait longer.',
  SINKFLEX_QUEUE_CLOSED: 'The queue was closed: nothing can be put, and what was there has been taken.',
  SINKFLEX_CALL_TIMEOUT: 'The deadline passed before the answer: raise timeoutMs, or look at what the actor is doing.',
  SINKFLEX_CALL_ABORTED: 'The AbortSignal of the call (or of the call around it) was aborted.',
  SINKFLEX_METHOD_FAILED: 'The method threw an error that is not a SinkflexError; name, message and stack are those of the actor.',
  SINKFLEX_UNKNOWN_METHOD: 'The actor does not declare that method: caller and actor run different code, or the name is reserved.',
  SINKFLEX_UNKNOWN_JOB: 'No job of that cluster has that name: `sinkflex job list` shows those that it has.',
  SINKFLEX_UNKNOWN_ACTOR: 'No actor has that id in this run.',
  SINKFLEX_NOT_SERIALIZABLE:
    'Pass plain data, Map, Set, Date, bigint (64 bits), typed arrays, errors, handles and refs; no functions, symbols or cycles.',
  SINKFLEX_BAD_DEFINITION:
    'Export the value of defineActor under the name that it was given, from a module that starts nothing when imported.',
  SINKFLEX_BAD_PROGRAM:
    'A file of the program is missing, changed, or outside of its package; the message names it. Import it from the package, or list it under include.',
  SINKFLEX_BAD_OPTION: 'Correct the option that the message names.',
  SINKFLEX_BAD_FAULTS:
    'The plan of faults asks for what it cannot mean, or for what this run cannot do to itself; the message says which: docs/faults.md.',
  SINKFLEX_NOT_INITIALISED: 'Call init() first.',
  SINKFLEX_ALREADY_INITIALISED: 'init() was called before: shutdown() ends the run, then init() may be called again.',
  SINKFLEX_SHUT_DOWN: 'The runtime was shut down while this was under way.',
  SINKFLEX_NO_ANSWER:
    'A worker or a run did not say in time what it is doing: it is busy in one call, stopped or ending; `sinkflex stack` may tell.',
  SINKFLEX_NO_RUN: 'No living run of yours is meant by that, or several are: name one with --run <folder or pid>.',
  SINKFLEX_NO_LOG: 'Nothing that goes by that name was written: `sinkflex list actors` shows the names.',
  SINKFLEX_DRIVER_ONLY: 'Call this in the program that called init(), not inside an actor.',
  SINKFLEX_OBJECT_RELEASED: 'The ref was released before it was used: keep the ref until its last user is done.',
  SINKFLEX_OBJECT_LOST: 'The worker that owned the value is gone: make the value again.',
  SINKFLEX_NAME_TAKEN: 'A living actor has that name: choose another, kill it first, or spawn with getIfExists and the same definition.',
  SINKFLEX_NO_HEAD: 'Start a head (sinkflex head) and give its folder to init({ address }) and to its agents; it may be on its way back.',
  SINKFLEX_NOT_PLACED: 'No node has room: explain() says what is missing where.',
  SINKFLEX_GROUP_REMOVED: 'The placement group was removed, or its owner ended: make another.',
  SINKFLEX_LEASE_LOST: 'The resources of a task were returned, or are gone with their node, their group or their owner: run it again.',
  SINKFLEX_JOURNAL_DAMAGED:
    "The head's journal does not pass its checksum: restore the folder from a backup, or start a cluster in a new one.",
  SINKFLEX_AUTHENTICATION_FAILED: 'The peer does not know the token of this run: it belongs to another run.',
  SINKFLEX_UNREACHABLE:
    'A host or a worker of another host cannot be reached: it is gone, or neither of the two listens where the other can go (--listen).',
  SINKFLEX_REPLICA_BEHIND: 'The copy of a segment on another host did not follow in time: the message says what it waits for.',
  SINKFLEX_TLS_REQUIRED:
    'Off loopback everything is encrypted: make certificates with sinkflex certs, or bring your own, and use wss:// (or listen on 127.0.0.1).',
  SINKFLEX_PROTOCOL: 'The peer sent bytes that are not a frame of this protocol; the connection was closed.',
} as const;

export type RuntimeErrorCode = keyof typeof runtimeErrorCodes;

/** How one incarnation of an actor ended. Plain data. */
export interface Death {
  incarnation: number;
  /**
   * What ended it: its process or thread went away, its constructor or start() threw, kill() was called or its owner ended, the run was shut
   * down, its node was lost. `refused`: it never lived, the cause says why.
   */
  reason: 'exit' | 'constructor' | 'killed' | 'shutdown' | 'lost' | 'refused';
  exitCode?: number;
  signal?: string;
  /** It ended for want of memory: over its own limit, its JavaScript heap was full, or the kernel had none left. */
  outOfMemory?: boolean;
  /** Last lines that its worker wrote to stderr, oldest first. */
  lastStderr: string[];
  /** The error that ended it (unhandled rejection, exception, constructor), if known. */
  cause?: unknown;
  /** Of a wanted end, why it was wanted; of a final one, why nothing follows: a clause. */
  because?: string;
}

function describeEnd(death: Death): string {
  const because = death.because === undefined ? '' : ` (${death.because})`;
  if (death.reason === 'killed') return `was killed${because}`;
  if (death.reason === 'lost') return `was lost with its node${because}`;
  if (death.reason === 'refused') return `was not spawned: ${(death.cause as Error | undefined)?.message ?? 'the head refused it'}`;
  if (death.reason === 'shutdown') return 'was ended by shutdown';
  const cause = death.cause instanceof Error ? `: ${death.cause.message}` : '';
  if (death.reason === 'constructor') return `failed in its constructor${cause}${because}`;
  const how = death.signal !== undefined ? `signal ${death.signal}` : `exit code ${death.exitCode ?? 'unknown'}`;
  const stderr = cause === '' && death.lastStderr.length > 0 ? `; last line on stderr: ${death.lastStderr.at(-1)}` : '';
  return `${death.outOfMemory === true ? 'ran out of memory' : 'died'} (${how})${cause}${stderr}`;
}

/** The incarnation that was to answer is gone. `mayHaveRun`: the method may have run, in part or in whole. */
export class ActorDiedError extends SinkflexError {
  constructor(actor: string, death: Death, mayHaveRun: boolean, final = false) {
    const doubt = mayHaveRun ? 'the call may have run' : 'the call did not run';
    super('SINKFLEX_ACTOR_DIED', `actor ${actor} (incarnation ${death.incarnation}) ${describeEnd(death)}; ${doubt}`, {
      ...(death.cause === undefined ? {} : { cause: death.cause }),
      details: {
        actor,
        incarnation: death.incarnation,
        reason: death.reason,
        exitCode: death.exitCode,
        signal: death.signal,
        outOfMemory: death.outOfMemory ?? false,
        lastStderr: death.lastStderr,
        mayHaveRun,
        final,
      },
    });
    this.name = 'ActorDiedError';
  }
  get incarnation(): number {
    return this.details?.incarnation as number;
  }
  get exitCode(): number | undefined {
    return this.details?.exitCode as number | undefined;
  }
  get signal(): string | undefined {
    return this.details?.signal as string | undefined;
  }
  get outOfMemory(): boolean {
    return this.details?.outOfMemory === true;
  }
  get lastStderr(): string[] {
    return (this.details?.lastStderr as string[] | undefined) ?? [];
  }
  get mayHaveRun(): boolean {
    return this.details?.mayHaveRun as boolean;
  }
  /** No other incarnation will follow, as far as the caller knows: calling again is of no use. */
  get final(): boolean {
    return this.details?.final === true;
  }
}

/** The actor will not come back: its constructor failed, or it died more often than its budget allows. */
export class ActorFailedError extends SinkflexError {
  constructor(actor: string, death: Death, restarts: number, mayHaveRun = false) {
    const times = restarts === 1 ? 'once' : `${restarts} times`;
    const spent = restarts === 0 || death.because !== undefined ? '' : `; it was restarted ${times} before, and maxRestarts allows no more`;
    super('SINKFLEX_ACTOR_FAILED', `actor ${actor} ${describeEnd(death)}${spent}`, {
      cause: death.cause ?? new ActorDiedError(actor, death, false, true),
      details: {
        actor,
        incarnation: death.incarnation,
        reason: death.reason,
        restarts,
        outOfMemory: death.outOfMemory ?? false,
        lastStderr: death.lastStderr,
        mayHaveRun,
        final: true,
      },
    });
    this.name = 'ActorFailedError';
  }
}

export class CallTimeoutError extends SinkflexError {
  constructor(what: string, timeoutMs: number, mayHaveRun: boolean) {
    const doubt = mayHaveRun ? 'it may have run' : 'it did not run';
    super('SINKFLEX_CALL_TIMEOUT', `${what} did not answer within ${Math.round(timeoutMs)} ms; ${doubt}`, {
      details: { timeoutMs, mayHaveRun },
    });
    this.name = 'CallTimeoutError';
  }
}

export class CallAbortedError extends SinkflexError {
  constructor(what: string, mayHaveRun: boolean, cause?: unknown) {
    super('SINKFLEX_CALL_ABORTED', `${what} was aborted; ${mayHaveRun ? 'it may have run' : 'it did not run'}`, {
      ...(cause === undefined ? {} : { cause }),
      details: { mayHaveRun },
    });
    this.name = 'CallAbortedError';
  }
}

export class ActorBusyError extends SinkflexError {
  constructor(message: string, details: Record<string, unknown>) {
    super('SINKFLEX_ACTOR_BUSY', message, { details: { ...details, mayHaveRun: false } });
    this.name = 'ActorBusyError';
  }
}

/** What a method threw, if that was no SinkflexError: same name and message, the actor's stack; own fields are in `details`. */
export class RemoteError extends SinkflexError {
  constructor(name: string, message: string, options: { cause?: unknown; details?: Record<string, unknown> } = {}) {
    super('SINKFLEX_METHOD_FAILED', message, options);
    this.name = name;
  }
}

/** Any other failure of the runtime; `code` says which. */
export class RuntimeFailure extends SinkflexError {
  constructor(code: RuntimeErrorCode, message: string, options: { cause?: unknown; details?: Record<string, unknown> } = {}) {
    super(code, message, options);
    this.name = 'RuntimeFailure';
  }
}
