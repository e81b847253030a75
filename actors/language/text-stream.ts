/**
 * Tokens in, text out, as they come: no half character is let out, no stop string is, and nothing is decoded more than a few times however
 * long the turn.
 */
import type { Tokenizer } from './tokenizer.ts';

const REPLACEMENT = '\ufffd';

export class TextStream {
  readonly #tokenizer: Tokenizer;
  readonly #stops: readonly string[];
  readonly #specials: boolean;
  #ids: number[] = [];
  /** ids[0, #read) are in the text; decoding starts at #from, a few tokens before, since tokens are joined by what stands before them. */
  #from = 0;
  #read = 0;
  /** Decoded and not let out: it may be the beginning of a stop string. */
  #held = '';
  #text = '';
  /** The stop string that ended the text. */
  stopped: string | undefined;

  /** `specials`: special tokens are part of the text. */
  constructor(tokenizer: Tokenizer, stops: readonly string[] = [], o: { specials?: boolean } = {}) {
    this.#tokenizer = tokenizer;
    this.#specials = o.specials ?? false;
    this.#stops = stops.filter((stop) => stop !== '');
  }

  /** All that was let out. */
  get text(): string {
    return this.#text;
  }

  /** Answers the text that this token let out. */
  push(id: number): string {
    if (this.stopped !== undefined || (!this.#specials && this.#tokenizer.isSpecial(id))) return '';
    this.#ids.push(id);
    const before = this.#tokenizer.decode(this.#ids.slice(this.#from, this.#read));
    const all = this.#tokenizer.decode(this.#ids.slice(this.#from));
    if (all.endsWith(REPLACEMENT) && this.#ids.length - this.#read < 8) return '';
    this.#from = this.#read;
    this.#read = this.#ids.length;
    return this.#letOut(all.slice(before.length), false);
  }

  /** The turn is over: answers what was held back. */
  end(): string {
    if (this.stopped !== undefined) return '';
    const before = this.#tokenizer.decode(this.#ids.slice(this.#from, this.#read));
    const rest = this.#tokenizer.decode(this.#ids.slice(this.#from)).slice(before.length);
    this.#read = this.#ids.length;
    return this.#letOut(rest, true);
  }

  #letOut(fresh: string, last: boolean): string {
    this.#held += fresh;
    let cut = -1;
    for (const stop of this.#stops) {
      const at = this.#held.indexOf(stop);
      if (at >= 0 && (cut < 0 || at < cut)) {
        cut = at;
        this.stopped = stop;
      }
    }
    const keep = cut >= 0 || last ? 0 : unfinishedMarker(this.#held, this.#stops);
    const out = cut >= 0 ? this.#held.slice(0, cut) : this.#held.slice(0, this.#held.length - keep);
    this.#held = cut >= 0 ? '' : this.#held.slice(this.#held.length - keep);
    this.#text += out;
    return out;
  }
}

/** Length of the longest end of `text` that begins one of the markers, and is not a whole one: what may not be shown yet. */
export function unfinishedMarker(text: string, markers: readonly string[]): number {
  let longest = 0;
  for (const marker of markers) {
    for (let n = Math.min(marker.length - 1, text.length); n > longest; n--) {
      if (text.endsWith(marker.slice(0, n))) longest = n;
    }
  }
  return longest;
}
