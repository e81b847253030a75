/** A small database that each environment has for itself: one model, copied at the start. */
import { dump, merge, type Shape, validate } from './python/shape.ts';
import { noAttribute, PythonError } from './python/values.ts';
import { sha256 } from './table.ts';

export class Document<T = unknown> {
  /** As Python's texts name its class. */
  readonly name: string;
  readonly shape: Shape<T>;
  value: T;

  constructor(name: string, shape: Shape<T>, value: T) {
    this.name = name;
    this.shape = shape;
    this.value = value;
  }

  copy(): Document<T> {
    return new Document(this.name, this.shape, this.shape.copy(this.value));
  }

  print(): string {
    return this.shape.write(this.value, true);
  }

  /** The benchmark's hash: sha256 of the dump with sorted keys. */
  hash(): string {
    return sha256(this.print());
  }

  /** A new document with the patch merged in; raises what the model refuses. */
  merged(patch: Record<string, unknown>): Document<T> {
    const raw = merge(dump(this.shape, this.value), new Map(Object.entries(patch)));
    return new Document(this.name, this.shape, validate(this.name, this.shape, raw));
  }
}

/**
 * The two databases of a world. As in the original, merging a task's data into one side makes both sides see that side's database: `update`
 * does so on purpose.
 */
export class TwoSides<A, U> {
  #agent: Document;
  #user: Document;

  constructor(agent: Document<A>, user: Document<U>) {
    this.#agent = agent.copy() as Document;
    this.#user = user.copy() as Document;
  }

  update(side: 'assistant' | 'user', patch: Record<string, unknown>): void {
    const merged = (side === 'user' ? this.#user : this.#agent).merged(patch);
    this.#agent = merged;
    this.#user = merged;
  }

  /** What the agent's tools see as their database; raises where the side's database is the other one's. */
  agent(name: string, field: string): A {
    return seen(this.#agent, name, field) as A;
  }

  user(name: string, field: string): U {
    return seen(this.#user, name, field) as U;
  }

  hashes(): { agent: string; user: string } {
    return { agent: this.#agent.hash(), user: this.#user.hash() };
  }

  same(other: TwoSides<A, U>): boolean {
    return this.#agent.print() === other.#agent.print() && this.#user.print() === other.#user.print();
  }

  snapshot(): () => void {
    const [agent, user] = [this.#agent, this.#user];
    const [a, u] = [agent.copy(), user === agent ? undefined : user.copy()];
    return () => {
      this.#agent = a;
      this.#user = u ?? a;
    };
  }
}

function seen(document: Document, name: string, field: string): unknown {
  if (document.name === name) return document.value;
  throw new PythonError('AttributeError', noAttribute(null, field).message.replace('NoneType', document.name));
}
