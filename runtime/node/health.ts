// Tells a worker whose event loop is blocked from one that the kernel has stopped and from one that is merely waiting for a processor.
// Pure: samples in, a judgement out.
import type { Health } from './carrier.ts';

/** Workers tick ten times a second; without a tick for so long the loop does not turn. Leaves time to tell of it within 2 s. */
export const BLOCKED_AFTER_MS = 1400;
/** On a machine with too few processors a loop may wait for its turn: it is blocked for sure only after this. */
export const STARVED_AFTER_MS = 5000;
/** Of a processor: who computes more than this without a tick is busy, not waiting for a processor. */
const BUSY_SHARE = 0.1;

export interface Sample {
  /** Milliseconds, of a clock that only goes forward. */
  now: number;
  /** 0: it has never ticked, so nothing can be said of its loop. */
  tick: number;
  /** Of a process: its state in /proc, and the processor time that it has used, milliseconds. Threads have neither. */
  process?: { state: string; cpuMs: number };
}

export class HealthJudge {
  #tick = 0;
  /** Its last tick, and the processor time that it had used then. */
  #at = 0;
  #cpuMs = 0;
  #stoppedAt: number | undefined;
  #last: number | undefined;
  readonly #blockedAfterMs: number;

  constructor(blockedAfterMs: number = BLOCKED_AFTER_MS) {
    this.#blockedAfterMs = blockedAfterMs;
  }

  /** `forMs`: how long it has been so. */
  judge({ now, tick, process }: Sample, periodMs: number): { health: Health; forMs: number } {
    // Whoever takes the samples was late itself (suspended, or without a processor): that time counts against nobody.
    const late = this.#last === undefined ? 0 : Math.max(0, now - this.#last - 2 * periodMs);
    this.#last = now;
    this.#at += late;
    if (process?.state === 'T' || process?.state === 't') {
      this.#stoppedAt ??= now;
      return { health: 'stopped', forMs: now - this.#stoppedAt };
    }
    if (this.#stoppedAt !== undefined || tick !== this.#tick) {
      this.#stoppedAt = undefined;
      this.#tick = tick;
      this.#at = now;
      this.#cpuMs = process?.cpuMs ?? 0;
    }
    const forMs = now - this.#at;
    if (tick === 0 || forMs < this.#blockedAfterMs) return { health: 'ok', forMs: 0 };
    const starved = process?.state === 'R' && process.cpuMs - this.#cpuMs < forMs * BUSY_SHARE;
    return starved && forMs < STARVED_AFTER_MS ? { health: 'ok', forMs: 0 } : { health: 'blocked', forMs };
  }
}
