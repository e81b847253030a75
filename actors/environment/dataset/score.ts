/** Rules that say whether a reply answers a question. */

export type Score = (reply: string, answer: string) => boolean;

const plain = (text: string): string => text.trim().replace(/\s+/g, ' ').toLowerCase();

/** The last number of a text, as GSM8K's rule reads it: thousands separators go, a full stop after it is none of its digits. */
export function lastNumber(text: string): number | undefined {
  const found = text.match(/-?\$?\d[\d,]*(?:\.\d+)?|-?\.\d+/g)?.at(-1);
  return found === undefined ? undefined : Number(found.replace(/[$,]/g, ''));
}

const scores = {
  /** The reply is the answer, but for case and white space. */
  exact: (reply, answer) => plain(reply) === plain(answer),
  /** The answer stands somewhere in the reply. */
  contains: (reply, answer) => plain(reply).includes(plain(answer)),
  /** The last number of the reply is that of the answer. */
  number: (reply, answer) => {
    const said = lastNumber(reply);
    return said !== undefined && said === lastNumber(answer);
  },
} satisfies Record<string, Score>;

export const SCORES = {
  names: Object.keys(scores) as (keyof typeof scores)[],
  of: (name: keyof typeof scores): Score => scores[name],
};
