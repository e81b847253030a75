// The job of the fault suite: workers on several hosts enter results in a book on another one; whatever happens to them, every entry is there
// once, and nothing was done that nobody asked for.
import { type ActorHandle, defineActor, withOptions } from '../../runtime/index.ts';

export interface Books {
  /** Items that are in the book, and the sum of their values. */
  entered: number;
  sum: number;
  /** Entries of what was there already: its worker was lost after it had entered it, or before it could answer. */
  repeated: number;
}

class BookActor {
  readonly #values = new Map<number, number>();
  #repeated = 0;
  enter(item: number, value: number, _: Uint8Array): number {
    const known = this.#values.get(item);
    if (known !== undefined && known !== value) throw new Error(`item ${item} was ${known} and is ${value}`);
    if (known === undefined) this.#values.set(item, value);
    else this.#repeated++;
    return value;
  }
  books(): Books {
    const sum = [...this.#values.values()].reduce((a, b) => a + b, 0);
    return { entered: this.#values.size, sum, repeated: this.#repeated };
  }
}

class GrinderActor {
  readonly #book: ActorHandle<BookActor>;
  readonly #ballast: Uint8Array;
  constructor(book: ActorHandle<BookActor>, bytes: number) {
    this.#book = withOptions(book, { maxRetries: 100 });
    this.#ballast = new Uint8Array(bytes);
  }
  async grind(item: number): Promise<number> {
    return await this.#book.enter(item, item * item, this.#ballast);
  }
}

export const Book = defineActor(import.meta.url, 'Book', BookActor);
export const Grinder = defineActor(import.meta.url, 'Grinder', GrinderActor);
