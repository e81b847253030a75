/** Reading what the policy wrote: the plain-words format, `call tool argument ...`, and anything else as speech. Total: never throws. */
import type { Action, ActionParser } from '../environment/types.ts';

/** One argument of a tool: a number of digits written apart, or one of some words. */
export type WordParameter = { name: string; digits: number } | { name: string; words: readonly string[] };

export interface WordFormat {
  tools: Record<string, readonly WordParameter[]>;
  /** Speech of this form ends the episode. */
  closing?: RegExp;
}

/**
 * A parser for tool calls in plain words: `call refund delta 3` becomes refund({ ride: 'delta', amount: '3' }).
 *
 * @example wordParser({ tools: { find_rider: [{ name: 'code', digits: 2 }] } })('call find_rider 3 1')
 */
export function wordParser(format: WordFormat): ActionParser {
  const tools = new Map(Object.entries(format.tools));
  return (text) => {
    const words = text.trim().split(/\s+/);
    if (words[0] === '') return malformed(text, 'the turn is empty');
    if (words[0] !== 'call') {
      return { text, toolCalls: [], finish: format.closing?.test(text) ?? false };
    }
    const name = words[1];
    const parameters = name === undefined ? undefined : tools.get(name);
    if (name === undefined || !parameters) return malformed(text, name === undefined ? 'no tool is named' : `no tool is named ${name}`);
    const values: Record<string, string> = {};
    let at = 2;
    for (const parameter of parameters) {
      if ('digits' in parameter) {
        const digits = words.slice(at, at + parameter.digits);
        if (digits.length < parameter.digits || !digits.every((d) => /^\d$/.test(d))) {
          return malformed(text, `${name} takes ${parameter.digits} digits for ${parameter.name}`);
        }
        values[parameter.name] = digits.join('');
        at += parameter.digits;
      } else {
        const word = words[at];
        if (word === undefined || !parameter.words.includes(word)) return malformed(text, `${name} takes a word for ${parameter.name}`);
        values[parameter.name] = word;
        at++;
      }
    }
    if (at < words.length) return malformed(text, `${name} takes no more arguments`);
    return { text, toolCalls: [{ name, arguments: values }], finish: false };
  };
}

function malformed(text: string, why: string): Action {
  return { text, toolCalls: [], finish: false, malformed: why };
}
