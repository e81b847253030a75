/** The tokens of one episode as they come: ids with mask, log-probability and version in arrays that grow by doubling. */

export class TokenBuffer {
  #ids: Int32Array;
  #mask: Uint8Array;
  #logprobs: Float32Array;
  #versions: Int32Array;
  /** Of each sequence, in the order in which its tokens were read. */
  readonly #experts: (Uint8Array | Uint16Array)[][] = [[]];
  /** Where the sequences after the first begin. */
  readonly #forks: number[] = [];
  #length = 0;

  constructor(capacity = 256) {
    this.#ids = new Int32Array(capacity);
    this.#mask = new Uint8Array(capacity);
    this.#logprobs = new Float32Array(capacity);
    this.#versions = new Int32Array(capacity).fill(-1);
  }

  get length(): number {
    return this.#length;
  }

  /** Tokens of the sequence that the policy reads now. */
  get context(): number {
    return this.#length - (this.#forks.at(-1) ?? 0);
  }

  /** What comes now begins a new sequence. */
  fork(): void {
    this.#forks.push(this.#length);
    this.#experts.push([]);
  }

  /** Tokens of the environment: never trained. */
  observe(ids: Int32Array): void {
    this.#reserve(ids.length);
    this.#ids.set(ids, this.#length);
    this.#length += ids.length;
  }

  /** Tokens of the policy, with their evidence. */
  produce(ids: Int32Array, logprobs: Float32Array, versions: Int32Array): void {
    this.#reserve(ids.length);
    this.#ids.set(ids, this.#length);
    this.#logprobs.set(logprobs, this.#length);
    this.#versions.set(versions, this.#length);
    this.#mask.fill(1, this.#length, this.#length + ids.length);
    this.#length += ids.length;
  }

  /** Experts of the tokens that a turn read, in order. */
  route(experts: Uint8Array | Uint16Array): void {
    this.#experts.at(-1)!.push(experts);
  }

  /** Copies of exactly the tokens so far. `experts`: with those of each token, unknown for what nobody read (the last draw). */
  take(experts?: { each: number; wide: boolean }): {
    ids: Int32Array;
    mask: Uint8Array;
    logprobs: Float32Array;
    versions: Int32Array;
    experts?: Uint8Array | Uint16Array;
    forks?: number[];
  } {
    const n = this.#length;
    const routes = experts && (experts.wide ? new Uint16Array(n * experts.each).fill(65535) : new Uint8Array(n * experts.each).fill(255));
    for (const [sequence, parts] of routes ? this.#experts.entries() : []) {
      let at = sequence === 0 ? 0 : this.#forks[sequence - 1]! * experts!.each;
      for (const part of parts) {
        routes!.set(part, at);
        at += part.length;
      }
    }
    return {
      ...(this.#forks.length > 0 ? { forks: [...this.#forks] } : {}),
      ...(routes ? { experts: routes } : {}),
      ids: this.#ids.slice(0, n),
      mask: this.#mask.slice(0, n),
      logprobs: this.#logprobs.slice(0, n),
      versions: this.#versions.slice(0, n),
    };
  }

  #reserve(more: number): void {
    let capacity = this.#ids.length;
    if (this.#length + more <= capacity) return;
    while (capacity < this.#length + more) capacity *= 2;
    const grow = <A extends Int32Array | Uint8Array | Float32Array>(old: A, fresh: A): A => {
      fresh.set(old);
      return fresh;
    };
    const known = this.#ids.length;
    this.#ids = grow(this.#ids, new Int32Array(capacity));
    this.#mask = grow(this.#mask, new Uint8Array(capacity));
    this.#logprobs = grow(this.#logprobs, new Float32Array(capacity));
    this.#versions = grow(this.#versions, new Int32Array(capacity)).fill(-1, known);
  }
}
