/**
 * JSON as Python's json module reads it, where JSON.parse loses something: 5 is not 5.0, whole numbers have no bound, keys stay where they stand,
 * NaN and Infinity are numbers. Models were trained on tools that see the difference, and print it.
 */

/** A whole number is a bigint; a number was written with a point or an exponent. */
export type ExactJson = null | boolean | string | bigint | number | ExactJson[] | Map<string, ExactJson>;

/** As deep, and with as many digits, as Python reads. */
const MOST_DEPTH = 990;
const MOST_DIGITS = 4300;

const BLANK = /[ \t\n\r]*/y;
const STRING = /"[ !#-[\]-\uffff]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[ !#-[\]-\uffff]*)*"/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/y;
const NAMED: readonly (readonly [string, ExactJson])[] = [
  ['null', null],
  ['true', true],
  ['false', false],
  ['NaN', Number.NaN],
  ['Infinity', Number.POSITIVE_INFINITY],
  ['-Infinity', Number.NEGATIVE_INFINITY],
];

/** Throws SyntaxError, which says what was expected where. */
export function readExact(text: string): ExactJson {
  return new Reader(text).all();
}

/** The members of a JSON object, each with its value as it was written. Throws SyntaxError, also for what is no object. */
export function readMembers(text: string): Map<string, { value: ExactJson; text: string }> {
  const members = new Map<string, { value: ExactJson; text: string }>();
  const value = new Reader(text).all((key, member, from, to) => members.set(key, { value: member, text: text.slice(from, to) }));
  if (!(value instanceof Map)) throw new SyntaxError('expected an object at character 1');
  return members;
}

type Watch = (key: string, value: ExactJson, from: number, to: number) => void;

class Reader {
  readonly #text: string;
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** `watch` hears of the outermost object's members. */
  all(watch?: Watch): ExactJson {
    this.#blanks();
    const value = this.#value(watch);
    this.#blanks();
    if (this.#at < this.#text.length) throw this.#error('the end');
    return value;
  }

  #error(expected: string): SyntaxError {
    return new SyntaxError(`expected ${expected} at character ${this.#at + 1}`);
  }

  #match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text);
    if (found) this.#at = pattern.lastIndex;
    return found;
  }

  #blanks(): void {
    const code = this.#text.charCodeAt(this.#at);
    if (code === 0x20 || (code >= 0x09 && code <= 0x0d)) this.#match(BLANK);
  }

  #take(char: string): boolean {
    if (this.#text[this.#at] !== char) return false;
    this.#at++;
    return true;
  }

  #value(watch?: Watch): ExactJson {
    switch (this.#text[this.#at]) {
      case '"':
        return this.#string();
      case '{':
        return this.#nested(() => this.#object(watch));
      case '[':
        return this.#nested(() => this.#array());
    }
    const from = this.#at;
    const number = this.#match(NUMBER);
    if (!number) return this.#named();
    if (number[1] !== undefined || number[2] !== undefined) return Number(number[0]);
    if (number[0].length <= MOST_DIGITS) return BigInt(number[0]);
    this.#at = from;
    throw this.#error(`at most ${MOST_DIGITS} digits`);
  }

  #named(): ExactJson {
    const named = NAMED.find(([name]) => this.#text.startsWith(name, this.#at));
    if (!named) throw this.#error('a value');
    this.#at += named[0].length;
    return named[1];
  }

  #nested<T>(read: () => T): T {
    if (++this.#depth > MOST_DEPTH) throw this.#error(`at most ${MOST_DEPTH} levels`);
    this.#at++;
    this.#blanks();
    const value = read();
    this.#depth--;
    return value;
  }

  #string(): string {
    const from = this.#at;
    const found = this.#match(STRING)?.[0];
    if (found === undefined) throw this.#error('a string that ends');
    return found.includes('\\') ? (JSON.parse(found) as string) : this.#text.slice(from + 1, this.#at - 1);
  }

  #array(): ExactJson[] {
    const out: ExactJson[] = [];
    if (this.#take(']')) return out;
    for (;;) {
      out.push(this.#value());
      this.#blanks();
      if (this.#take(']')) return out;
      if (!this.#take(',')) throw this.#error("',' or ']'");
      this.#blanks();
    }
  }

  #object(watch?: Watch): Map<string, ExactJson> {
    const out = new Map<string, ExactJson>();
    if (this.#take('}')) return out;
    for (;;) {
      if (this.#text[this.#at] !== '"') throw this.#error('a name in double quotes');
      const key = this.#string();
      this.#blanks();
      if (!this.#take(':')) throw this.#error("':'");
      this.#blanks();
      const from = this.#at;
      const value = this.#value();
      out.set(key, value);
      watch?.(key, value, from, this.#at);
      this.#blanks();
      if (this.#take('}')) return out;
      if (!this.#take(',')) throw this.#error("',' or '}'");
      this.#blanks();
    }
  }
}

/** As JSON.parse gives it; what stands under a name in `exact` comes as an object of exact values. */
export function plainJson(value: ExactJson, exact: readonly string[] = []): unknown {
  if (typeof value === 'bigint') return Number(value);
  if (Array.isArray(value)) return value.map((item) => plainJson(item, exact));
  if (!(value instanceof Map)) return value;
  const members = [...value].map(([key, item]): [string, unknown] => [
    key,
    exact.includes(key) && item instanceof Map ? Object.fromEntries(item) : plainJson(item, exact),
  ]);
  return Object.fromEntries(members);
}

/** Plain data as exact values. Whole numbers were written without a point, unless `ints` says that those are bigints already. */
export function exactJson(value: unknown, ints: 'numbers' | 'bigints' = 'numbers'): ExactJson {
  if (typeof value === 'number') return ints === 'numbers' && Number.isInteger(value) ? BigInt(value) : value;
  if (Array.isArray(value)) return value.map((item) => exactJson(item, ints));
  if (value instanceof Map || typeof value !== 'object' || value === null) return (value ?? null) as ExactJson;
  return new Map(Object.entries(value).map(([key, item]) => [key, exactJson(item, ints)]));
}

/** Whether plain data cannot say it. */
export function needsExact(value: ExactJson): boolean {
  if (typeof value === 'bigint') return !Number.isSafeInteger(Number(value));
  if (typeof value === 'number') return Number.isInteger(value) || !Number.isFinite(value);
  if (Array.isArray(value)) return value.some(needsExact);
  // Keys like numbers would come first.
  return value instanceof Map && [...value].some(([key, item]) => /^[0-9]+$/.test(key) || needsExact(item));
}
