/**
 * Python arithmetic over digits, points, blanks, brackets and the four signs, as the calculator evaluates it: ints without bound, one slash true
 * division, two floor, `**` binding tighter than a sign on its left.
 */
import { arithmetic, type Num, toFloat } from './arithmetic.ts';
import { floatRepr, round2 } from './float.ts';
import { iterate, PythonError, typeError, typeName, valueError } from './values.ts';

/** `()` */
const EMPTY = Symbol('tuple');
type Value = Num | typeof EMPTY;

const ALLOWED = '0123456789+-*/(). ';

/** `str(round(float(eval(expression)), 2))` */
export function calculate(expression: unknown): string {
  for (const char of iterate(expression)) {
    if (typeof char !== 'string') throw typeError(`'in <string>' requires string as left operand, not ${typeName(char)}`);
    if (!ALLOWED.includes(char)) throw valueError('Invalid characters in expression');
  }
  if (typeof expression !== 'string') throw typeError('eval() arg 1 must be a string, bytes or code object');
  const value = new Parser(expression).evaluate();
  if (value === EMPTY) throw typeError("float() argument must be a string or a real number, not 'tuple'");
  return floatRepr(round2(toFloat(value)));
}

const syntax = (): PythonError => new PythonError('SyntaxError', 'invalid syntax (<string>, line 1)');
const NUMBER = /^(?:\d+\.\d*|\.\d+|\d+)/;

class Parser {
  readonly #tokens: (Num | string)[] = [];
  #at = 0;

  constructor(text: string) {
    let rest = text;
    for (;;) {
      rest = rest.replace(/^ +/, '');
      if (rest === '') return;
      const number = NUMBER.exec(rest)?.[0];
      if (number !== undefined) {
        this.#tokens.push(literal(number));
        rest = rest.slice(number.length);
        continue;
      }
      const operator = /^(?:\*\*|\/\/|[-+*/()])/.exec(rest)?.[0];
      if (operator === undefined) throw syntax(); // a dot alone
      this.#tokens.push(operator);
      rest = rest.slice(operator.length);
    }
  }

  evaluate(): Value {
    if (this.#tokens.length === 0) throw new PythonError('SyntaxError', 'invalid syntax (<string>, line 0)');
    const value = this.#sum();
    if (this.#at < this.#tokens.length) throw syntax();
    return value;
  }

  #take(...operators: string[]): string | undefined {
    const token = this.#tokens[this.#at];
    if (typeof token !== 'string' || !operators.includes(token)) return undefined;
    this.#at++;
    return token;
  }

  #sum(): Value {
    let left = this.#product();
    for (;;) {
      const operator = this.#take('+', '-');
      if (!operator) return left;
      left = binary(operator, left, this.#product());
    }
  }

  #product(): Value {
    let left = this.#signed();
    for (;;) {
      const operator = this.#take('*', '/', '//');
      if (!operator) return left;
      left = binary(operator, left, this.#signed());
    }
  }

  #signed(): Value {
    const sign = this.#take('+', '-');
    if (!sign) return this.#power();
    const value = this.#signed();
    if (value === EMPTY) throw typeError(`bad operand type for unary ${sign}: 'tuple'`);
    return sign === '-' ? -value : value;
  }

  #power(): Value {
    const base = this.#atom();
    return this.#take('**') ? binary('**', base, this.#signed()) : base;
  }

  #atom(): Value {
    const token = this.#tokens[this.#at++];
    let value: Value;
    if (token === '(') {
      if (this.#take(')')) value = EMPTY;
      else {
        value = this.#sum();
        if (!this.#take(')')) throw syntax();
      }
    } else if (token === undefined || typeof token === 'string') throw syntax();
    else value = token;
    // `2(3)` is a call.
    if (this.#tokens[this.#at] === '(') {
      this.#at++;
      if (!this.#take(')')) {
        this.#sum();
        if (!this.#take(')')) throw syntax();
      }
      throw typeError(`'${value === EMPTY ? 'tuple' : typeof value === 'bigint' ? 'int' : 'float'}' object is not callable`);
    }
    return value;
  }
}

function literal(text: string): Num {
  if (text.includes('.')) return Number(text);
  if (/^0+[1-9]/.test(text)) throw new PythonError('SyntaxError', 'leading zeros in decimal integer literals are not permitted');
  return BigInt(text);
}

function binary(operator: string, a: Value, b: Value): Num {
  if (a === EMPTY || b === EMPTY) throw typeError(`unsupported operand type(s) for ${operator}`);
  return arithmetic(operator, a, b);
}
