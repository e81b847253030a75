/** Sequences of an engine for requests: waited for in order of arrival, with a deadline. What they share of what was read is the engine's. */
import type { Engine } from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';

export class SequencePool {
  readonly #engine: Engine;
  readonly #waitMs: number;
  #taken = 0;

  constructor(engine: Engine, o: { waitMs: number }) {
    this.#engine = engine;
    this.#waitMs = o.waitMs;
  }

  get running(): number {
    return this.#taken;
  }

  /** Waits for a sequence; SINKFLEX_SERVER_BUSY when none becomes free in time. */
  async take(signal?: AbortSignal): Promise<number> {
    let late = false;
    let timer: NodeJS.Timeout | undefined;
    let abort: (() => void) | undefined;
    const opened = this.#engine.openSequence();
    // Nobody waits for it any more: it goes to the next one.
    opened.then(
      (sequence) => late && this.#engine.closeSequence(sequence),
      () => {},
    );
    const given = new Promise<never>((_, reject) => {
      timer = setTimeout(
        () => reject(new ActorsError('SINKFLEX_SERVER_BUSY', `no sequence became free within ${Math.round(this.#waitMs / 1000)} s`)),
        this.#waitMs,
      );
      abort = () => reject(new ActorsError('SINKFLEX_ABORTED', 'the caller has gone'));
      if (signal?.aborted) abort();
      else signal?.addEventListener('abort', abort, { once: true });
    });
    try {
      const sequence = await Promise.race([opened, given]);
      this.#taken++;
      return sequence;
    } catch (error) {
      late = true;
      throw error;
    } finally {
      clearTimeout(timer);
      if (abort !== undefined) signal?.removeEventListener('abort', abort);
    }
  }

  give(sequence: number): void {
    this.#taken--;
    this.#engine.closeSequence(sequence);
  }
}
