// Which nodes are heard of: each says every so often that it is there. One that is silent becomes suspect, and when its lease is over it is
// lost. Pure: the time is passed in. A node that has never said anything is not watched; whether it is there is known from its connection.

export interface LivenessTimes {
  /** Between two signs of life. */
  everyMs: number;
  /** Silent for longer: suspect. Nothing is placed there until it is heard again. */
  suspectMs: number;
  /** Silent for longer: lost, with all that runs there. */
  leaseMs: number;
}

/** Suspect within 3 s of its last breath, what ran there placed elsewhere within 12. */
export const LIVENESS: Readonly<LivenessTimes> = { everyMs: 500, suspectMs: 2000, leaseMs: 10_000 };

interface Watched {
  heardAt: number;
  suspect: boolean;
}

export interface Verdicts {
  suspect: { node: string; silentMs: number }[];
  lost: { node: string; silentMs: number }[];
}

export class Liveness {
  readonly #times: LivenessTimes;
  readonly #nodes = new Map<string, Watched>();
  /** When check() was to be called, as due() said last. */
  #due: number | undefined;

  constructor(times: LivenessTimes = LIVENESS) {
    this.#times = times;
  }

  /** It is there. Answers whether it was suspect until now. */
  heard(node: string, now: number): boolean {
    const known = this.#nodes.get(node);
    if (known === undefined) {
      this.#nodes.set(node, { heardAt: now, suspect: false });
      return false;
    }
    known.heardAt = now;
    const { suspect } = known;
    known.suspect = false;
    return suspect;
  }

  /** It has gone, or its connection has: others look after that. */
  forget(node: string): void {
    this.#nodes.delete(node);
  }

  /** When check() has something to do; undefined: nothing is watched. */
  due(): number | undefined {
    let first: number | undefined;
    for (const { heardAt, suspect } of this.#nodes.values()) {
      const at = heardAt + (suspect ? this.#times.leaseMs : this.#times.suspectMs) + 1;
      if (first === undefined || at < first) first = at;
    }
    this.#due = first;
    return first;
  }

  /**
   * Who has become suspect, and who is lost and no longer watched. Call it at due(). If that is late, whoever calls was itself stopped or
   * busy: what was said meanwhile is not read yet, so nobody's time has passed for as long, and two signs of life longer.
   */
  check(now: number): Verdicts {
    const late = this.#due === undefined ? 0 : now - this.#due;
    const { everyMs } = this.#times;
    if (late > everyMs) for (const watched of this.#nodes.values()) watched.heardAt = Math.min(now, watched.heardAt + late + 2 * everyMs);
    const verdicts: Verdicts = { suspect: [], lost: [] };
    for (const [node, watched] of this.#nodes) {
      const silentMs = now - watched.heardAt;
      if (silentMs > this.#times.leaseMs) {
        this.#nodes.delete(node);
        verdicts.lost.push({ node, silentMs });
      } else if (silentMs > this.#times.suspectMs && !watched.suspect) {
        watched.suspect = true;
        verdicts.suspect.push({ node, silentMs });
      }
    }
    return verdicts;
  }
}
