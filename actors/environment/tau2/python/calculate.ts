/**
 * Python arithmetic over digits, points, blanks, brackets and the four signs, as the calculator evaluates it: ints without bound, one slash true
 * division, two floor, `**` binding tighter than a sign on its left.
 */
import { bits, power, quotient } from './exact.ts';
import { floatRepr, round2 } from './float.ts';
import { iterate, PythonError, typeError, typeName, valueError } from './values.ts';

type Num = bigint | number;
/** `()` */
const EMPTY = Symbol('tuple');
type Value = Num | typeof EMPTY;

const ALLOWED = '0123456789+-*/(). ';
/** Numbers that no sensible expression needs, and that would take Python minutes. */
const MOST_BITS = 65_536;

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

function toFloat(v: Num): number {
  const x = Number(v);
  if (typeof v === 'bigint' && !Number.isFinite(x)) throw new PythonError('OverflowError', 'int too large to convert to float');
  return x;
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
  if (typeof a === 'bigint' && typeof b === 'bigint') return ofInts(operator, a, b);
  const [x, y] = [toFloat(a), toFloat(b)];
  switch (operator) {
    case '+':
      return x + y;
    case '-':
      return x - y;
    case '*':
      return x * y;
    case '/':
      if (y === 0) throw new PythonError('ZeroDivisionError', 'division by zero');
      return x / y;
    case '//':
      if (y === 0) throw new PythonError('ZeroDivisionError', 'float floor division by zero');
      return floorOf(x, y);
    default:
      return powerOf(x, y);
  }
}

function ofInts(operator: string, a: bigint, b: bigint): Num {
  switch (operator) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return bounded(a * b);
    case '/':
      if (b === 0n) throw new PythonError('ZeroDivisionError', 'division by zero');
      return divide(a, b);
    case '//': {
      if (b === 0n) throw new PythonError('ZeroDivisionError', 'integer division or modulo by zero');
      const ratio = a / b;
      return a % b !== 0n && a < 0n !== b < 0n ? ratio - 1n : ratio;
    }
    default:
      if (b < 0n) return powerOf(toFloat(a), toFloat(b));
      if (b > BigInt(MOST_BITS) && a !== 0n && a !== 1n && a !== -1n) throw new PythonError('OverflowError', 'the power is too large');
      if (Number(b) * bits(a) > MOST_BITS && (a > 1n || a < -1n)) throw new PythonError('OverflowError', 'the power is too large');
      return a ** b;
  }
}

function bounded(v: bigint): bigint {
  if (bits(v) > 4 * MOST_BITS) throw new PythonError('OverflowError', 'the product is too large');
  return v;
}

/** True division of ints, correctly rounded. */
function divide(a: bigint, b: bigint): number {
  const value = quotient(a, b);
  if (!Number.isFinite(value)) throw new PythonError('OverflowError', 'integer division result too large for a float');
  return value;
}

/** Floor division of floats, as CPython computes it: from the remainder, so that 1.0 // 0.1 is 9.0. */
function floorOf(x: number, y: number): number {
  let mod = x % y;
  let ratio = (x - mod) / y;
  if (mod !== 0 && mod < 0 !== y < 0) {
    mod += y;
    ratio -= 1;
  }
  // The sign of x / y, which may itself be a negative zero.
  if (ratio === 0) return x / y < 0 || Object.is(x / y, -0) ? -0 : 0;
  const floor = Math.floor(ratio);
  return ratio - floor > 0.5 ? floor + 1 : floor;
}

function powerOf(x: number, y: number): number {
  if (x === 0 && y < 0) throw new PythonError('ZeroDivisionError', '0.0 cannot be raised to a negative power');
  if (x < 0 && !Number.isInteger(y)) throw typeError("float() argument must be a string or a real number, not 'complex'");
  const value = power(x, y);
  if (!Number.isFinite(value) && Number.isFinite(x) && Number.isFinite(y)) {
    throw new PythonError('OverflowError', "(34, 'Numerical result out of range')");
  }
  return value;
}
