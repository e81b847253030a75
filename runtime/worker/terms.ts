// What a call asks for beyond its method and arguments: deadline, abort, stream, group, retries. Most calls have none of it.
import { performance } from 'node:perf_hooks';
import { CallAbortedError, CallTimeoutError } from '../api/errors.ts';
import type { CallOptions } from '../api/types.ts';
import type { PendingCall, Ref } from '../objects/index.ts';
import { onAbort } from './abort.ts';
import type { Scope } from './scope.ts';
import type { IncomingStream } from './stream.ts';

/** What terms need of the client that they belong to. */
export interface TermsOwner {
  describe(method: string): string;
  /** The caller no longer waits. */
  abandon(ref: Ref, error: Error): void;
  /** The call is over, well or not. */
  keyDone(key: number): void;
}

export class Terms implements PendingCall {
  /** performance.now() of the deadline, over all attempts; 0: none. */
  expiresAt = 0;
  abortable = false;
  group = '';
  stream: IncomingStream | undefined = undefined;
  /** Idempotency key, ascending within a client; 0: the call is never repeated. */
  key = 0;
  /** Executions that may still follow one whose answer was lost. */
  retries = 0;
  retryOn: ((error: Error) => boolean) | undefined = undefined;
  /** Executions that failed so far. */
  failures = 0;
  /** An attempt before this one may have run. */
  mayHaveRun = false;
  /** Waits a while before it is made again, and is in no queue. */
  resting = false;
  /** Not to be sent to an incarnation before this one. */
  notBefore = 0;
  #owner: TermsOwner | undefined = undefined;
  #timer: NodeJS.Timeout | undefined = undefined;
  #stopWaiting: (() => void)[] | undefined = undefined;

  /** Begins to watch the clock and the signals. Answers why the call should not even begin, if so. */
  begin(owner: TermsOwner, ref: Ref, options: CallOptions | undefined, scope: Scope | undefined): Error | undefined {
    this.#owner = owner;
    const timeoutMs = options?.timeoutMs;
    const now = performance.now();
    this.expiresAt = scope?.expiresAt ?? 0;
    if (timeoutMs !== undefined) this.expiresAt = this.expiresAt === 0 ? now + timeoutMs : Math.min(this.expiresAt, now + timeoutMs);
    this.group = options?.concurrencyGroup ?? '';
    this.retries = options?.maxRetries ?? 0;
    this.retryOn = options?.retryOn;
    const signals: AbortSignal[] = [];
    if (options?.signal !== undefined) signals.push(options.signal);
    if (scope?.abortable) signals.push(scope.signal);
    for (const signal of signals) if (signal.aborted) return new CallAbortedError(owner.describe(ref.method), false, signal.reason);
    if (this.expiresAt > 0 && this.expiresAt <= now) return new CallTimeoutError(owner.describe(ref.method), timeoutMs ?? 0, false);
    this.abortable = this.expiresAt > 0 || signals.length > 0 || this.stream !== undefined || options?.cancellable === true;
    if (this.expiresAt > 0) {
      const remaining = this.remaining(now);
      this.#timer = setTimeout(
        () => owner.abandon(ref, new CallTimeoutError(owner.describe(ref.method), remaining, this.doubt(ref))),
        remaining,
      );
    }
    if (signals.length > 0) {
      this.#stopWaiting = signals.map((signal) =>
        onAbort(signal, () => owner.abandon(ref, new CallAbortedError(owner.describe(ref.method), this.doubt(ref), signal.reason))),
      );
    }
    return undefined;
  }

  /** Whether the call may have run, in this attempt or an earlier one. */
  doubt(ref: Ref): boolean {
    return ref.callId > 0 || this.mayHaveRun;
  }

  /** Milliseconds of the deadline that are left, at least 1; 0: no deadline. */
  remaining(now = performance.now()): number {
    return this.expiresAt > 0 ? Math.max(1, Math.ceil(this.expiresAt - now)) : 0;
  }

  /** One execution less that may follow. */
  spend(): void {
    this.retries--;
    this.failures++;
    this.mayHaveRun = true;
  }

  settled(): void {
    clearTimeout(this.#timer);
    if (this.#stopWaiting !== undefined) for (const stop of this.#stopWaiting) stop();
    if (this.key !== 0) this.#owner?.keyDone(this.key);
  }
}
