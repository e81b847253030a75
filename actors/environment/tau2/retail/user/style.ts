/** How a scripted user talks: the same things in other words, drawn by seed. */
import { CounterRandom } from '../../../random.ts';

export const STYLES = ['plain', 'terse', 'chatty'] as const;
export type Style = (typeof STYLES)[number];

const BEFORE = [
  'Well,',
  'Right, so:',
  'Hm, let me see.',
  'Okay, here it is.',
  'Sorry, the dog is barking.',
  'Good question.',
  'So, as I said to my neighbor:',
];
const AFTER = [
  'I hope that helps.',
  'Take your time.',
  'What a day.',
  'I am so glad that somebody answers.',
  'It is raining here, by the way.',
  'You know how it is.',
];
const YES = { plain: 'Yes, please go ahead.', terse: 'Yes.', chatty: 'Yes, yes, please go ahead, that is just what I meant.' };
const NO = { plain: 'No, that is not what I want.', terse: 'No.', chatty: 'No, oh no, that is not what I want at all.' };

export class Voice {
  readonly style: Style;
  readonly #random: CounterRandom;

  constructor(style: Style, seed: number) {
    this.style = style;
    this.#random = new CounterRandom(seed, 0x75736572);
  }

  /** Several sentences as one message; who is chatty wraps them. */
  say(...sentences: string[]): string {
    const text = sentences.filter((s) => s !== '').join(' ');
    if (this.style !== 'chatty') return text;
    return `${this.#random.pick(BEFORE)} ${text} ${this.#random.pick(AFTER)}`;
  }

  get yes(): string {
    return YES[this.style];
  }

  get no(): string {
    return NO[this.style];
  }
}
