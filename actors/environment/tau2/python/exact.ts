/** Arithmetic that rounds once, where JavaScript's own is a bit off or cannot: quotients of whole numbers, powers of floats. */

/** Not fewer than it takes, up to three more. */
export const bits = (v: bigint): number => (v < 0n ? -v : v).toString(16).length * 4;

/** The float nearest to a / b; infinite where that is too large. b is not 0. */
export function quotient(a: bigint, b: bigint): number {
  const limit = BigInt(Number.MAX_SAFE_INTEGER);
  const [x, y] = [a < 0n ? -a : a, b < 0n ? -b : b];
  const sign = a < 0n !== b < 0n ? -1 : 1;
  if (x <= limit && y <= limit) return Number(a) / Number(b);
  // 66 bits of the quotient and a sticky bit: Number() then rounds once.
  const shift = BigInt(66 - (bits(x) - bits(y)));
  const scaled = shift >= 0n ? x << shift : x;
  const divisor = shift >= 0n ? y : y << -shift;
  const value = (scaled / divisor) | (scaled % divisor === 0n ? 0n : 1n);
  return sign * Number(value) * 2 ** -Number(shift);
}

/** Beyond this many bits a power is reckoned with logarithms instead of exactly. */
const MOST_EXACT_BITS = 16_384;

/** The float nearest to x ** y. JavaScript's own misses it often by one unit of the last place, C's hardly ever. */
export function power(x: number, y: number): number {
  const plain = x ** y;
  // Nothing to refine in what is 1, an extreme, or no number.
  if (y === 0 || Math.abs(x) === 1 || !(Math.abs(plain) > 1e-290) || !Number.isFinite(plain)) return plain;
  const { whole, exponent } = parts(Math.abs(x));
  const sign = Math.sign(plain);
  if (Number.isInteger(y) && bits(whole) * Math.abs(y) <= MOST_EXACT_BITS) {
    const n = BigInt(Math.abs(y));
    const [top, two] = [whole ** n, exponent * n];
    const [a, b] = two >= 0n ? [top << two, 1n] : [top, 1n << -two];
    return sign * (y > 0 ? quotient(a, b) : quotient(b, a));
  }
  return sign * exponential(timesFloat(logarithm(whole, exponent), y));
}

/** x = whole * 2 ** exponent. */
function parts(x: number): { whole: bigint; exponent: bigint } {
  let exponent = Math.max(-1074, Math.floor(Math.log2(x)) - 53);
  let scaled = x * 2 ** -Math.trunc(exponent / 2) * 2 ** -(exponent - Math.trunc(exponent / 2));
  while (!Number.isInteger(scaled)) {
    scaled *= 2;
    exponent--;
  }
  return { whole: BigInt(scaled), exponent: BigInt(exponent) };
}

// Fixed point: 256 bits behind the point, far more than a float's 53 and what the series lose.
const POINT = 256n;
const ONE = 1n << POINT;
const LN2 = 2n * inverseTangentH(ONE / 3n);

/** z + z^3 / 3 + z^5 / 5 + ... */
function inverseTangentH(z: bigint): bigint {
  const square = (z * z) >> POINT;
  let [sum, term] = [0n, z];
  for (let n = 1n; term !== 0n && term !== -1n; n += 2n) {
    sum += term / n;
    term = (term * square) >> POINT;
  }
  return sum;
}

/** ln(whole * 2 ** exponent), fixed. */
function logarithm(whole: bigint, exponent: bigint): bigint {
  const length = BigInt(whole.toString(2).length);
  const m = (whole << POINT) >> length; // 0.5 <= m < 1
  return 2n * inverseTangentH(((m - ONE) << POINT) / (m + ONE)) + (length + exponent) * LN2;
}

function timesFloat(fixed: bigint, y: number): bigint {
  const { whole, exponent } = parts(Math.abs(y));
  const product = fixed * whole;
  const scaled = exponent >= 0n ? product << exponent : product >> -exponent;
  return y < 0 ? -scaled : scaled;
}

/** The float nearest to e ** t, t fixed. */
function exponential(t: bigint): number {
  const twos = (t + LN2 / 2n) / LN2;
  const rest = t - twos * LN2;
  let [sum, term] = [0n, ONE];
  for (let n = 1n; term !== 0n && term !== -1n; n++) {
    sum += term;
    term = ((term * rest) >> POINT) / n;
  }
  // In two steps, so that neither factor is out of a float's range.
  const scale = Number(twos) - Number(POINT);
  return Number(sum) * 2 ** Math.trunc(scale / 2) * 2 ** (scale - Math.trunc(scale / 2));
}
