/** Python's arithmetic: ints without bound, one slash true division, two floor, floats where one of two numbers is one. */
import { bits, power, quotient } from './exact.ts';
import { numberOf, PythonError, typeError, typeName } from './values.ts';

/** An int is a bigint, a float a number. */
export type Num = bigint | number;

/** Numbers that no sensible expression needs, and that would take Python minutes. */
const MOST_BITS = 65_536;

export function toFloat(v: Num): number {
  const x = Number(v);
  if (typeof v === 'bigint' && !Number.isFinite(x)) throw new PythonError('OverflowError', 'int too large to convert to float');
  return x;
}

/** `a <operator> b` of anything; bools count as ints. What Python repeats or joins, a string times an int, is refused too: no tool has a use for it. */
export function arithmetic(operator: string, left: unknown, right: unknown): Num {
  const [a, b] = [numberOf(left), numberOf(right)];
  if (a === undefined || b === undefined) {
    throw typeError(`unsupported operand type(s) for ${operator}: '${typeName(left)}' and '${typeName(right)}'`);
  }
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
