// Calls that wait at their caller, in order: first those that are made again, by key, then the others as they were made. A million of
// them may wait, so nothing here costs more than a place in an array.
import type { Ref } from '../objects/index.ts';
import { encodeAlone } from '../wire/index.ts';
import { collectRefs } from './session.ts';
import type { Terms } from './terms.ts';

/** callId of a call whose caller gave up before it was sent. */
const ABANDONED = -1;

export class WaitingCalls {
  /** Made again; a few at most. */
  #again: Ref[] = [];
  #calls: Ref[] = [];
  #head = 0;
  #abandoned = 0;

  get size(): number {
    return this.#again.length + this.#calls.length - this.#head - this.#abandoned;
  }

  push(ref: Ref): void {
    this.#calls.push(ref);
  }

  /** A call that was sent before all that never were. */
  pushAgain(ref: Ref, key: number): void {
    const list = this.#again;
    let at = list.length;
    while (at > 0 && (list[at - 1]!.guard as Terms).key > key) at--;
    list.splice(at, 0, ref);
  }

  /** The next call for that incarnation; undefined: none, or the first one waits for a later incarnation. */
  take(incarnation: number): Ref | undefined {
    const first = this.#again[0];
    if (first !== undefined) {
      if ((first.guard as Terms).notBefore > incarnation) return undefined;
      this.#again.shift();
      return first;
    }
    while (this.#head < this.#calls.length) {
      const ref = this.#calls[this.#head]!;
      this.#calls[this.#head++] = undefined as unknown as Ref;
      if (this.#head === this.#calls.length) {
        this.#calls = [];
        this.#head = 0;
      } else if (this.#head >= 4096 && this.#head * 2 > this.#calls.length) {
        this.#calls = this.#calls.slice(this.#head);
        this.#head = 0;
      }
      if (ref.callId !== ABANDONED) return ref;
      this.#abandoned--;
    }
    return undefined;
  }

  /** It will not be taken. */
  abandon(ref: Ref): void {
    const at = this.#again.indexOf(ref);
    if (at >= 0) this.#again.splice(at, 1);
    else if (ref.callId === 0) {
      ref.callId = ABANDONED;
      this.#abandoned++;
    }
  }

  *all(): IterableIterator<Ref> {
    yield* this.#again;
    for (let i = this.#head; i < this.#calls.length; i++) if (this.#calls[i]!.callId !== ABANDONED) yield this.#calls[i]!;
  }

  takeAll(): Ref[] {
    return this.beyond(0);
  }

  /** Takes out what has more than so many before it. */
  beyond(count: number): Ref[] {
    const all = [...this.all()];
    const kept = all.slice(0, count);
    this.#again = kept.slice(0, this.#again.length);
    this.#calls = kept.slice(this.#again.length);
    this.#head = 0;
    this.#abandoned = 0;
    return all.slice(count);
  }
}

/** The arguments as they are now, for a call that is sent later or perhaps again. */
export function keepArguments(ref: Ref, args: unknown[]): void {
  let plain = true;
  for (let i = 0; i < args.length && plain; i++) {
    const arg = args[i];
    plain = (typeof arg !== 'object' && typeof arg !== 'function' && typeof arg !== 'symbol') || arg === null;
  }
  if (plain) {
    ref.args = args;
    return;
  }
  const refs: Ref[] = [];
  const outer = collectRefs(refs);
  try {
    ref.args = encodeAlone(args);
  } finally {
    collectRefs(outer);
  }
  if (refs.length > 0) ref.holds = refs;
}
