/**
 * Context compaction: when a conversation outgrows the context, the episode goes on in a new sequence whose beginning is the old one with
 * less of what tools answered. Turns of the policy are carried over as the ids that they are, as context: they were trained where they were
 * sampled. Nothing that the policy said is decoded and encoded again.
 */
import type { Message } from '../environment/index.ts';
import type { Dialogue } from './episode.ts';

export interface CompactionOptions {
  /** Latest turns whose answers stay whole; at least 1. */
  keepTurns: number;
  /** What stands for an older answer of a tool. */
  shorten: (message: Message) => Message;
}

interface Exchange {
  turn: Int32Array;
  observation: readonly Message[];
  /** The turn came without its end, which the observation has to begin with. */
  open: boolean;
  delta: Int32Array;
}

/** The conversation as the policy reads it now. */
export class CompactableContext {
  readonly #dialogue: Pick<Dialogue, 'delta'>;
  readonly #o: CompactionOptions;
  readonly #prompt: Int32Array;
  #exchanges: Exchange[] = [];

  constructor(prompt: Int32Array, dialogue: Pick<Dialogue, 'delta'>, o: CompactionOptions) {
    this.#prompt = prompt;
    this.#dialogue = dialogue;
    this.#o = o;
  }

  /** A turn of the policy and what came of it: `delta`, as ids. */
  exchange(turn: Int32Array, observation: readonly Message[], open: boolean, delta: Int32Array): void {
    this.#exchanges.push({ turn, observation, open, delta });
  }

  /**
   * The beginning of a new sequence, at most `most` tokens: older answers of tools shortened, then the oldest exchanges left out. Undefined
   * where not even the prompt and the exchanges to keep fit.
   */
  compact(most: number): Int32Array | undefined {
    const { keepTurns, shorten } = this.#o;
    const older = Math.max(0, this.#exchanges.length - keepTurns);
    const exchanges = this.#exchanges.map((e, i) => {
      if (i >= older || !e.observation.some((m) => m.role === 'tool')) return e;
      const observation = e.observation.map((m) => (m.role === 'tool' ? shorten(m) : m));
      const delta = this.#dialogue.delta(observation, e.open);
      return delta.length < e.delta.length ? { ...e, observation, delta } : e;
    });
    let length = this.#prompt.length + exchanges.reduce((n, e) => n + e.turn.length + e.delta.length, 0);
    let left = 0;
    for (; length > most && left < older; left++) length -= exchanges[left]!.turn.length + exchanges[left]!.delta.length;
    if (length > most) return undefined;
    this.#exchanges = exchanges.slice(left);
    const ids = new Int32Array(length);
    let at = 0;
    for (const part of [this.#prompt, ...this.#exchanges.flatMap((e) => [e.turn, e.delta])]) {
      ids.set(part, at);
      at += part.length;
    }
    return ids;
  }
}
