// Values of this worker that others hold. A lent ref stays alive, whatever becomes of the caller's variable, until every borrower has
// given it back, or is gone. Counts are kept for each holder and may be negative for a moment: when a borrower passes a ref on, the
// third party's return can arrive before the borrower's notice, but never before the borrower gives back its own loan.
import type { Keeper, Ref } from './reference.ts';

interface Entry {
  ref: Ref;
  /** Holder's worker -> loans not yet given back. */
  holders: Map<number, number>;
}

export class Loans {
  #entries = new Map<number, Entry>();
  #next = 1;

  /** The number under which others ask for the ref. */
  register(ref: Ref, keeper: Keeper): number {
    if (ref.id === 0) {
      ref.id = this.#next++;
      ref.keeper = keeper;
    }
    return ref.id;
  }

  lend(ref: Ref, holder: number): void {
    let entry = this.#entries.get(ref.id);
    if (entry === undefined) {
      entry = { ref, holders: new Map() };
      this.#entries.set(ref.id, entry);
    }
    this.#add(ref.id, entry, holder, 1);
  }

  change(id: number, holder: number, by: 1 | -1): void {
    const entry = this.#entries.get(id);
    if (entry !== undefined) this.#add(id, entry, holder, by);
  }

  #add(id: number, entry: Entry, holder: number, by: number): void {
    const count = (entry.holders.get(holder) ?? 0) + by;
    if (count !== 0) entry.holders.set(holder, count);
    else entry.holders.delete(holder);
    if (entry.holders.size === 0) this.#drop(id, entry);
  }

  #drop(id: number, entry: Entry): void {
    this.#entries.delete(id);
    entry.ref.noLongerLent();
  }

  heldBy(holder: number): boolean {
    for (const { holders } of this.#entries.values()) if (holders.has(holder)) return true;
    return false;
  }

  get(id: number): Ref | undefined {
    return this.#entries.get(id)?.ref;
  }

  has(id: number): boolean {
    return this.#entries.has(id);
  }

  holderGone(holder: number): void {
    for (const [id, entry] of this.#entries) {
      entry.holders.delete(holder);
      if (entry.holders.size === 0) this.#drop(id, entry);
    }
  }

  /** Every lent value, oldest first, with who holds it. */
  *entries(): IterableIterator<{ ref: Ref; holders: ReadonlyMap<number, number> }> {
    yield* this.#entries.values();
  }

  get size(): number {
    return this.#entries.size;
  }
}
