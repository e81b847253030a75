/** A bounded memory for pure functions: two generations of a Map, so that what is in use survives and the rest is dropped in bulk. */

export class Memo<K, V> {
  readonly #capacity: number;
  #young = new Map<K, V>();
  #old = new Map<K, V>();

  /** Holds at most twice `capacity` entries. */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get(key: K, make: () => V): V {
    const young = this.#young.get(key);
    if (young !== undefined) return young;
    const value = this.#old.get(key) ?? make();
    if (this.#young.size >= this.#capacity) {
      this.#old = this.#young;
      this.#young = new Map();
    }
    this.#young.set(key, value);
    return value;
  }
}
