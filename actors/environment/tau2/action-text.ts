/**
 * Actions as the original's gym reads and prints them: a JSON object is a call, `name(key=value)` is a call with Python literals, anything
 * else is text. As there, positional arguments are dropped, and a call in a fence is text.
 */
import { type ExactJson, readExact } from '../../exact-json.ts';
import { isDict, repr } from './python/values.ts';
import type { Tau2Call } from './tasks.ts';

export type ActionText = { text: string } | { call: Tau2Call };

/** Undefined for an empty action. */
export function parseActionText(action: string): ActionText | undefined {
  const trimmed = action.trim();
  if (trimmed === '') return undefined;
  const call = jsonCall(trimmed) ?? functionalCall(trimmed);
  return call ? { call } : { text: action };
}

function jsonCall(text: string): Tau2Call | undefined {
  if (!text.startsWith('{')) return undefined;
  try {
    const json = readExact(text) as Map<string, ExactJson>;
    const [name, args, id, requestor] = ['name', 'arguments', 'id', 'requestor'].map((key) => json.get(key));
    if (typeof name !== 'string' || !isDict(args)) return undefined;
    if (id !== undefined && typeof id !== 'string') return undefined;
    if (requestor !== undefined && requestor !== 'assistant' && requestor !== 'user') return undefined;
    return { name, arguments: Object.fromEntries(args), ...(id === undefined ? {} : { id }) };
  } catch {
    return undefined;
  }
}

function functionalCall(text: string): Tau2Call | undefined {
  const match = /^([\p{L}\p{N}_]+)\s*\((.*)\)$/u.exec(text);
  if (!match) return undefined;
  try {
    return { name: match[1]!, arguments: new Literals(match[2]!).keywords() };
  } catch {
    return undefined;
  }
}

/** Keyword arguments with Python literals. Throws where Python's parser, or the original's reading of its tree, would. */
class Literals {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  keywords(): Record<string, unknown> {
    const out: Record<string, unknown> = {};
    let named = false;
    this.#blanks();
    while (this.#at < this.#text.length) {
      const name = /^([\p{L}_][\p{L}\p{N}_]*)\s*=(?!=)/u.exec(this.#text.slice(this.#at));
      if (name) {
        if (Object.hasOwn(out, name[1]!)) throw new SyntaxError('keyword argument repeated');
        this.#at += name[0].length;
        out[name[1]!] = this.#value();
        named = true;
      } else {
        if (named) throw new SyntaxError('positional argument follows keyword argument');
        this.#value(); // dropped, as in the original
      }
      this.#blanks();
      if (this.#at >= this.#text.length) break;
      this.#take(',');
      this.#blanks();
    }
    return out;
  }

  #blanks(): void {
    while (/\s/.test(this.#text[this.#at] ?? '')) this.#at++;
  }

  #take(token: string): void {
    if (!this.#text.startsWith(token, this.#at)) throw new SyntaxError(`expected ${token}`);
    this.#at += token.length;
  }

  #value(): unknown {
    this.#blanks();
    const c = this.#text[this.#at];
    if (c === '[') return this.#items('[', ']');
    if (c === '(') return this.#tuple();
    if (c === '{') return this.#dict();
    if (c === '"' || c === "'") return this.#string();
    if (c === '-' || c === '+') {
      this.#at++;
      const operand = this.#value();
      if (typeof operand !== 'number' && typeof operand !== 'bigint') throw new TypeError('bad operand');
      return c === '-' ? -operand : operand;
    }
    const number = /^(?:\d[\d_]*\.?[\d_]*|\.\d+)(?:[eE][-+]?\d+)?/.exec(this.#text.slice(this.#at));
    if (number) {
      this.#at += number[0].length;
      if (/^0\d/.test(number[0])) throw new SyntaxError('leading zeros');
      if (/[\p{L}_]/u.test(this.#text[this.#at] ?? '')) throw new SyntaxError('invalid literal');
      const digits = number[0].replaceAll('_', '');
      return /^\d+$/.test(digits) ? BigInt(digits) : Number(digits);
    }
    const name = /^[\p{L}_][\p{L}\p{N}_]*/u.exec(this.#text.slice(this.#at));
    if (!name) throw new SyntaxError('no value');
    this.#at += name[0].length;
    if (/[.([]/.test(this.#text[this.#at] ?? '')) throw new SyntaxError('not a literal');
    const constants: Record<string, unknown> = { True: true, False: false, None: null };
    if (KEYWORDS.has(name[0])) throw new SyntaxError(`${name[0]} is a keyword`);
    return Object.hasOwn(constants, name[0]) ? constants[name[0]] : name[0];
  }

  #items(open: string, close: string): unknown[] {
    this.#take(open);
    const out: unknown[] = [];
    for (;;) {
      this.#blanks();
      if (this.#text[this.#at] === close) break;
      out.push(this.#value());
      this.#blanks();
      if (this.#text[this.#at] === close) break;
      this.#take(',');
    }
    this.#take(close);
    return out;
  }

  /** Brackets around one value are just brackets. */
  #tuple(): unknown {
    const from = this.#at;
    const out = this.#items('(', ')');
    return out.length === 1 && !/,\s*\)$/.test(this.#text.slice(from, this.#at)) ? out[0] : out;
  }

  #dict(): Map<string, unknown> {
    this.#take('{');
    const out = new Map<string, unknown>();
    for (;;) {
      this.#blanks();
      if (this.#text[this.#at] === '}') break;
      const key = this.#value();
      this.#blanks();
      this.#take(':');
      out.set(String(key), this.#value());
      this.#blanks();
      if (this.#text[this.#at] === '}') break;
      this.#take(',');
    }
    this.#take('}');
    return out;
  }

  /** Strings side by side are one. */
  #string(): string {
    let out = '';
    for (;;) {
      const quote = this.#text[this.#at]!;
      const end = new RegExp(`^${quote}((?:[^\\\\${quote}\\n]|\\\\[\\s\\S])*)${quote}`).exec(this.#text.slice(this.#at));
      if (!end) throw new SyntaxError('unterminated string');
      this.#at += end[0].length;
      out += unescaped(end[1]!);
      this.#blanks();
      if (this.#text[this.#at] !== '"' && this.#text[this.#at] !== "'") return out;
    }
  }
}

const KEYWORDS = new Set(
  'and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield'.split(
    ' ',
  ),
);
const ESCAPES: Readonly<Record<string, string>> = {
  n: '\n',
  t: '\t',
  r: '\r',
  '\\': '\\',
  "'": "'",
  '"': '"',
  a: '\x07',
  b: '\b',
  f: '\f',
  v: '\v',
  '\n': '',
  '0': '\0',
};

function unescaped(text: string): string {
  return text.replace(/\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[\s\S])/g, (all, code: string) => {
    if (code.length > 1) return String.fromCharCode(Number.parseInt(code.slice(1), 16));
    return ESCAPES[code] ?? all;
  });
}

/** A call as the gym prints it: keys sorted, quotes of strings escaped. */
export function callText(call: Tau2Call): string {
  const args = Object.keys(call.arguments)
    .sort()
    .map((name) => {
      const value = call.arguments[name];
      return `${name}=${typeof value === 'string' ? `'${value.replaceAll("'", "\\'")}'` : repr(value)}`;
    });
  return `${call.name}(${args.join(', ')})`;
}
