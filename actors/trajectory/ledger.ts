/**
 * The ledger: where every sampled trajectory went. At every moment
 *   sampled = trained + filtered(reason) + aborted(reason) + in flight.
 * Each trajectory is followed by its identity, so that the equation is a check and not a definition.
 */
import { ActorsError } from '../errors.ts';

export interface LedgerSnapshot {
  sampled: number;
  trained: number;
  filtered: Record<string, number>;
  aborted: Record<string, number>;
  inFlight: number;
}

/** `task/sample`; one attempt at a time is in flight. */
export type TrajectoryKey = `${number}/${number}`;
export const trajectoryKey = (task: number, sample: number): TrajectoryKey => `${task}/${sample}`;

interface TrainedMark {
  lineage: number;
  step: number;
  count: number;
}

export class Ledger {
  #sampled = 0;
  #trained = 0;
  #filtered = new Map<string, number>();
  #aborted = new Map<string, number>();
  #inFlight = new Set<TrajectoryKey>();
  /** Trained marks that no checkpoint has made final. */
  #tentative: TrainedMark[] = [];

  static restore(s: LedgerSnapshot, reason: string): Ledger {
    const ledger = new Ledger();
    ledger.#sampled = s.sampled;
    ledger.#trained = s.trained;
    ledger.#filtered = new Map(Object.entries(s.filtered));
    ledger.#aborted = new Map(Object.entries(s.aborted));
    // What was in flight when the snapshot was taken did not survive it.
    if (s.inFlight > 0) add(ledger.#aborted, reason, s.inFlight);
    ledger.check();
    return ledger;
  }

  sample(key: TrajectoryKey): void {
    if (this.#inFlight.has(key)) throw violation('SINKFLEX_LEDGER_DUPLICATE', `trajectory ${key} is already in flight`, { key });
    this.#inFlight.add(key);
    this.#sampled++;
  }

  train(keys: readonly TrajectoryKey[], mark: { lineage: number; step: number }): void {
    for (const key of keys) this.#leave(key, 'trained');
    this.#trained += keys.length;
    this.#tentative.push({ ...mark, count: keys.length });
  }

  filter(key: TrajectoryKey, reason: string): void {
    this.#leave(key, `filtered(${reason})`);
    add(this.#filtered, reason, 1);
  }

  abort(key: TrajectoryKey, reason: string): void {
    this.#leave(key, `aborted(${reason})`);
    add(this.#aborted, reason, 1);
  }

  /** A checkpoint of `step` stands on disk: the marks up to it are final. */
  finalise(step: number): void {
    this.#tentative = this.#tentative.filter((m) => m.step > step);
  }

  /** The weights went back to checkpoint `step`: later training did not happen, and what was in flight belongs to an abandoned lineage. */
  rollback(step: number): void {
    let undone = 0;
    for (const m of this.#tentative) if (m.step > step) undone += m.count;
    this.#tentative = this.#tentative.filter((m) => m.step <= step);
    this.#trained -= undone;
    if (undone > 0) add(this.#aborted, 'rollback', undone);
    this.abortAll('rollback');
  }

  abortAll(reason: string): void {
    for (const key of [...this.#inFlight]) this.abort(key, reason);
  }

  inFlight(key: TrajectoryKey): boolean {
    return this.#inFlight.has(key);
  }

  snapshot(): LedgerSnapshot {
    return {
      sampled: this.#sampled,
      trained: this.#trained,
      filtered: Object.fromEntries([...this.#filtered].sort()),
      aborted: Object.fromEntries([...this.#aborted].sort()),
      inFlight: this.#inFlight.size,
    };
  }

  /** Throws if the books do not balance. */
  check(): LedgerSnapshot {
    const s = this.snapshot();
    const accounted = s.trained + total(this.#filtered) + total(this.#aborted) + s.inFlight;
    if (s.sampled !== accounted || s.trained < 0) {
      throw violation(
        'SINKFLEX_LEDGER_UNBALANCED',
        `${s.sampled} trajectories were sampled but ${accounted} are accounted for (${JSON.stringify(s)})`,
        { ...s },
      );
    }
    return s;
  }

  #leave(key: TrajectoryKey, to: string): void {
    if (!this.#inFlight.delete(key)) {
      throw violation('SINKFLEX_LEDGER_UNKNOWN', `trajectory ${key} cannot become ${to}: it is not in flight`, { key, to });
    }
  }
}

function add(counts: Map<string, number>, reason: string, n: number): void {
  counts.set(reason, (counts.get(reason) ?? 0) + n);
}

function total(counts: Map<string, number>): number {
  let n = 0;
  for (const c of counts.values()) n += c;
  return n;
}

function violation(
  code: 'SINKFLEX_LEDGER_DUPLICATE' | 'SINKFLEX_LEDGER_UNKNOWN' | 'SINKFLEX_LEDGER_UNBALANCED',
  message: string,
  details: Record<string, unknown>,
): ActorsError {
  return new ActorsError(code, `${message}. This is a defect of the dataflow; please report it with ledger.json.`, { details });
}
