// Numbers for the workers of a node: unique in the cluster, given out by the head in blocks, never used twice.
import { RuntimeFailure } from '../api/errors.ts';

export class WorkerNumbers {
  readonly #more: () => void;
  readonly #blocks: { next: number; last: number }[] = [];
  /** All that it ever had, from first to last. */
  readonly given: [first: number, last: number][] = [];
  #asked = false;

  /** `more`: asks the head for another block. */
  constructor(more: () => void) {
    this.#more = more;
  }

  get empty(): boolean {
    return this.#blocks.length === 0;
  }

  add(first: number, last: number): void {
    this.#asked = false;
    this.#blocks.push({ next: first, last });
    this.given.push([first, last]);
  }

  next(): number {
    const block = this.#blocks[0];
    if (block === undefined) throw new RuntimeFailure('SINKFLEX_NO_HEAD', 'the head has given this node no more numbers for workers');
    const number = block.next++;
    if (block.next > block.last) this.#blocks.shift();
    // Long before they run out: the head may be away just then.
    const left = this.#blocks.reduce((sum, { next, last }) => sum + last - next + 1, 0);
    if (left < 1000 && !this.#asked) {
      this.#asked = true;
      this.#more();
    }
    return number;
  }
}
