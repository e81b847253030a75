// One value for many nodes: it goes from node to node in pieces, each passing on what it has so far. Every connection carries the value once, so
// that many nodes take hardly longer than one.
import { kill, ready, spawn, withOptions } from '../api/actors.ts';
import { checkTimeout } from '../api/check.ts';
import { defineActor } from '../api/definition.ts';
import { RuntimeFailure } from '../api/errors.ts';
import type { ActorHandle, ObjectRef } from '../api/types.ts';
import { put } from '../api/values.ts';
import { decodeAlone, Encoded, encodeAlone } from '../wire/index.ts';

const PIECE_BYTES = 2 ** 20;
/** Pieces under way to the first node. */
const WINDOW = 16;

interface Spreading {
  header: Uint8Array;
  bytes: number;
  /** Who has it before; absent: it is pushed. */
  from?: ActorHandle<SpreadNodeActor>;
}

/** The value on one node. */
class SpreadNodeActor {
  readonly #header: Uint8Array;
  readonly #sections: Uint8Array;
  readonly #from: ActorHandle<SpreadNodeActor> | undefined;
  #have = 0;
  #failure: unknown;
  #waiting: (() => void)[] = [];
  #kept: ObjectRef<unknown> | undefined;

  constructor({ header, bytes, from }: Spreading) {
    this.#header = header;
    this.#sections = new Uint8Array(bytes);
    this.#from = from;
  }

  start(): void {
    if (this.#from === undefined) return;
    this.#pull(this.#from).catch((error: unknown) => {
      this.#failure = error;
      this.#wake();
    });
  }

  async #pull(from: ActorHandle<SpreadNodeActor>): Promise<void> {
    for await (const piece of withOptions(from, { streamWindow: WINDOW }).pieces()) this.push(piece);
  }

  /** The next piece. */
  push(piece: Uint8Array): void {
    this.#sections.set(piece, this.#have);
    this.#have += piece.length;
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** Until there is more than that. */
  async #beyond(at: number): Promise<void> {
    while (this.#have <= at && this.#have < this.#sections.length) {
      if (this.#failure !== undefined) throw this.#failure;
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  /** All of it, as it comes. */
  async *pieces(): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < this.#sections.length; ) {
      await this.#beyond(at);
      const end = Math.min(this.#have, at + PIECE_BYTES);
      yield this.#sections.subarray(at, end);
      at = end;
    }
  }

  /** Once it is whole: a value of this node. */
  async keep(): Promise<{ ref: ObjectRef<unknown> }> {
    while (this.#have < this.#sections.length) await this.#beyond(this.#have);
    this.#kept ??= put(decodeAlone(new Encoded(this.#header, this.#sections)));
    return { ref: this.#kept };
  }
}
export const SpreadNode = defineActor(import.meta.url, 'SpreadNode', SpreadNodeActor);

/** Copies of one value, one a node. */
export interface Spread<T> {
  /** That of the node, for calls to actors there. */
  on(node: string): ObjectRef<T>;
  /** Lets go of all of them. */
  release(): Promise<void>;
}

/**
 * Gives each of those nodes a copy of a value, for many readers there. The value travels from one node to the next in pieces of 1 MiB while it
 * still arrives. Rejects, with nothing left behind, when a node is lost on the way.
 *
 * @example
 * const copies = await spread(table, ['a', 'b', 'c']);
 * await Promise.all(workers.map(({ node, handle }) => handle.load(copies.on(node))));
 */
export async function spread<T>(value: T, nodes: readonly string[], options: { timeoutMs?: number } = {}): Promise<Spread<T>> {
  const timeoutMs = checkTimeout('spread', options) ?? 600_000;
  if (new Set(nodes).size < nodes.length) throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `each node is named once: ${nodes.join(', ')}`);
  const { header, sections } = encodeAlone(value);
  const chain: ActorHandle<SpreadNodeActor>[] = [];
  for (const node of nodes) {
    const from = chain.at(-1);
    const args: [Spreading] = [{ header, bytes: sections.length, ...(from === undefined ? {} : { from }) }];
    chain.push(spawn(SpreadNode, { args, strategy: { node }, maxConcurrency: WINDOW + 4 }));
  }
  const end = async (): Promise<void> => void (await Promise.all(chain.map((each) => kill(each))));
  try {
    await Promise.all(chain.map((each) => ready(each, { timeoutMs })));
    const [first] = chain;
    if (first !== undefined) await pushAll(withOptions(first, { timeoutMs }), sections);
    const kept = await Promise.all(chain.map((each) => withOptions(each, { timeoutMs }).keep()));
    const byNode = new Map(nodes.map((node, i) => [node, kept[i]!.ref as ObjectRef<T>]));
    return {
      on(node) {
        const ref = byNode.get(node);
        if (ref === undefined) throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `the value was not spread to node ${node}`);
        return ref;
      },
      release: end,
    };
  } catch (error) {
    await end();
    throw error;
  }
}

async function pushAll(to: ActorHandle<SpreadNodeActor>, sections: Uint8Array): Promise<void> {
  const underWay: PromiseLike<void>[] = [];
  for (let at = 0; at < sections.length; at += PIECE_BYTES) {
    if (underWay.length === WINDOW) await underWay.shift();
    const call = to.push(sections.subarray(at, at + PIECE_BYTES));
    call.catch(() => {}); // it is awaited below, unless one before it fails
    underWay.push(call);
  }
  await Promise.all(underWay);
}
