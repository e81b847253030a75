/**
 * Sequences of an engine that are kept after their turn: a request whose prompt goes on from one of them costs its new tokens only. Taken
 * out while they generate; the one unused for longest goes when room is needed, all of them when the weights change.
 */
import type { Engine } from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';

interface Kept {
  sequence: number;
  /** What the cache holds, and the token drawn last. */
  ids: Int32Array;
}

export interface Lease {
  sequence: number;
  /** How many ids of the prompt it holds already. */
  shared: number;
  /** Of the weights when it was taken. */
  version: string;
}

function isPrefix(prefix: Int32Array, of: Int32Array): boolean {
  if (prefix.length >= of.length) return false; // a turn begins with something to read
  for (let i = prefix.length - 1; i >= 0; i--) if (prefix[i] !== of[i]) return false;
  return true;
}

export class SequenceCache {
  readonly #engine: Engine;
  readonly #waitMs: number;
  /** Oldest first. */
  #kept: Kept[] = [];
  #taken = 0;
  #waiting = 0;
  #version = '';

  constructor(engine: Engine, o: { waitMs: number }) {
    this.#engine = engine;
    this.#waitMs = o.waitMs;
  }

  get running(): number {
    return this.#taken;
  }

  /** Waits for a sequence; SINKFLEX_SERVER_BUSY when none becomes free in time. */
  async take(prompt: Int32Array, signal?: AbortSignal): Promise<Lease> {
    this.#dropStale();
    let best = -1;
    for (const [i, kept] of this.#kept.entries()) {
      if (isPrefix(kept.ids, prompt) && (best < 0 || kept.ids.length > this.#kept[best]!.ids.length)) best = i;
    }
    if (best >= 0) {
      const [{ sequence, ids }] = this.#kept.splice(best, 1) as [Kept];
      this.#taken++;
      return { sequence, shared: ids.length, version: this.#version };
    }
    if (this.#taken + this.#kept.length >= this.#engine.maxSequences) {
      const oldest = this.#kept.shift();
      if (oldest !== undefined) this.#engine.closeSequence(oldest.sequence);
    }
    const sequence = await this.#open(signal);
    this.#taken++;
    return { sequence, shared: 0, version: this.#version };
  }

  async #open(signal: AbortSignal | undefined): Promise<number> {
    let late = false;
    let timer: NodeJS.Timeout | undefined;
    let abort: (() => void) | undefined;
    const opened = this.#engine.openSequence();
    this.#waiting++;
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
      return await Promise.race([opened, given]);
    } catch (error) {
      late = true;
      throw error;
    } finally {
      this.#waiting--;
      clearTimeout(timer);
      if (abort !== undefined) signal?.removeEventListener('abort', abort);
    }
  }

  /** Gives it back after a turn; `ids`: prompt and what was drawn. Without them it is closed: nobody knows what its cache holds. */
  give(lease: Lease, ids?: Int32Array): void {
    this.#taken--;
    this.#dropStale();
    const keep = ids !== undefined && lease.version === this.#version && this.#waiting === 0 && ids.length < this.#engine.maxSequenceTokens;
    if (keep) this.#kept.push({ sequence: lease.sequence, ids });
    else this.#engine.closeSequence(lease.sequence);
  }

  #dropStale(): void {
    const { lineage, version } = this.#engine.store.current() ?? { lineage: -1, version: -1 };
    const now = `${lineage}.${version}`;
    if (now === this.#version) return;
    this.#version = now;
    for (const { sequence } of this.#kept.splice(0)) this.#engine.closeSequence(sequence);
  }
}
