/** What an agent's message asks of the user, read by word lists alone: the same text always reads the same. */

export type Slot = 'order' | 'pay' | 'reason' | 'address' | 'which';

export interface Reading {
  /** It wants to know who it speaks with. */
  identity: { email: boolean; name: boolean; user: boolean } | undefined;
  confirms: boolean;
  refuses: boolean;
  slots: Slot[];
  /** It asks what else there is to do. */
  offers: boolean;
}

const CONFIRMS =
  /\b(confirm|proceed|go ahead|agree|shall i|should i|may i|do you want me to|would you like me to|(is|are|does) (this|that|these|those|it) (all )?(correct|right|okay|ok|fine|work)|(yes|y) ?(\/|or) ?(no|n))\b|\(["']?yes["']?\)/;
const REFUSES =
  /\b(cannot|can't|can not|could not|couldn't|unable|not able|not possible|impossible|not allowed|isn't possible|unfortunately|not available|unavailable|sold out|out of stock|won't be able|don't have|no longer available)\b/;
const IDENTITY = /\b(verify|verification|identity|identify|authenticate|locate your (account|profile)|find your (account|profile))\b/;
const OFFERS = /\b(anything else|something else|else (i|we) can|other requests?|further (help|assistance)|how (can|may) i (help|assist))\b/;
const ASKS = /[?]|\b(please|could you|can you|provide|tell me|let me know|share|need|specify|give me|which|what)\b/;

const SLOTS: [Slot, RegExp][] = [
  ['order', /\border (id|number|#|no)|\bwhich (of your )?orders?\b|\bwhat order\b/],
  ['pay', /\b(which|what|prefer\w*|choose|provide|specify|select|how)\b[^.?!]*\b(payment|pay|refund\w*|card|paypal)\b/],
  ['reason', /\b(reason|why)\b/],
  ['address', /\b(what|which|provide|give|share|need|specify|tell)\b[^.?!]*\baddress\b/],
  [
    'which',
    /\b(which|what)\b[^.?!]*\b(item|product|one|variant|option|color|size|model|kind|type)s?\b|\bmore (details|specific)\b|\bclarify\b/,
  ],
];

export function readAgent(text: string): Reading {
  const said = text.toLowerCase().replaceAll('\u2019', "'");
  const asks = ASKS.test(said);
  const email = /\be-?mail\b/.test(said);
  const name = /\b(zip|postal|full name|first (and last )?name|last name|your name)\b/.test(said);
  const user = /\buser ?(id|name)\b/.test(said);
  const identity = asks && (email || name || user || IDENTITY.test(said)) ? { email, name, user } : undefined;
  // Only sentences that ask fill a slot: "I refund your card" asks for nothing.
  const questions = said
    .split(/(?<=[.?!\n])\s+/)
    .filter((s) => ASKS.test(s))
    .join(' ');
  return {
    identity,
    confirms: CONFIRMS.test(said),
    refuses: REFUSES.test(said),
    slots: SLOTS.filter(([, pattern]) => pattern.test(questions)).map(([slot]) => slot),
    offers: OFFERS.test(said),
  };
}
