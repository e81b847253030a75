// Which characters of some modules have run, as the engine itself counts (precise block coverage): what guides the fuzzing of the readers.
import { Session } from 'node:inspector';
import { basename } from 'node:path';

interface Script {
  url: string;
  functions: { ranges: { startOffset: number; endOffset: number; count: number }[] }[];
}

export class ReaderCoverage {
  readonly #session = new Session();
  readonly #modules: ReadonlySet<string>;
  /** By function, 1 for every character of it that has run. */
  readonly #seen = new Map<string, Uint8Array>();

  /** Modules by the names of their files; they must be imported after this, or they are compiled without counters. */
  constructor(modules: readonly string[]) {
    this.#modules = new Set(modules);
    this.#session.connect();
    this.#post('Profiler.enable');
    this.#post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  }

  /** Whether what ran since the last call reached anything new; it counts as seen from now on where `keep` is true. */
  advanced(keep: boolean): boolean {
    let found = false;
    for (const { url, functions } of this.#post('Profiler.takePreciseCoverage').result) {
      const module = basename(url);
      if (!this.#modules.has(module)) continue;
      for (const { ranges } of functions) {
        const { startOffset, endOffset, count } = ranges[0]!;
        if (count === 0) continue;
        // Each by itself: a function that has run says nothing about those that are written inside it.
        const key = `${module} ${startOffset}`;
        const seen = this.#seen.get(key) ?? new Uint8Array(endOffset - startOffset);
        if (keep) this.#seen.set(key, seen);
        // Inner ranges come after the outer ones, and are right about their part.
        const ran = new Uint8Array(seen.length);
        for (const r of ranges) ran.fill(r.count > 0 ? 1 : 0, r.startOffset - startOffset, r.endOffset - startOffset);
        for (let i = 0; i < ran.length; i++) {
          if (ran[i] === 0 || seen[i] === 1) continue;
          found = true;
          if (keep) seen[i] = 1;
        }
      }
    }
    return found;
  }

  get functions(): number {
    return this.#seen.size;
  }

  #post(method: string, parameters: object = {}): { result: Script[] } {
    let answer: unknown;
    // In the same thread: the answer is there when the call returns.
    this.#session.post(method, parameters, (error, result) => {
      if (error) throw error;
      answer = result;
    });
    return answer as { result: Script[] };
  }
}
