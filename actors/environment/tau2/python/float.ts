/** Floats as Python prints and rounds them. */

/** `repr(x)` of a float: the shortest digits that read back as the same number, `250.0`, `1e-07`, `1e+16`. */
export function floatRepr(x: number): string {
  if (Number.isNaN(x)) return 'nan';
  if (!Number.isFinite(x)) return x > 0 ? 'inf' : '-inf';
  if (x === 0) return Object.is(x, -0) ? '-0.0' : '0.0';
  const [mantissa, exponentText] = Math.abs(x).toExponential().split('e') as [string, string];
  const exponent = Number(exponentText);
  const sign = x < 0 ? '-' : '';
  if (exponent < -4 || exponent >= 16) {
    return `${sign}${mantissa}e${exponent < 0 ? '-' : '+'}${String(Math.abs(exponent)).padStart(2, '0')}`;
  }
  const digits = mantissa.replace('.', '');
  if (exponent < 0) return `${sign}0.${'0'.repeat(-exponent - 1)}${digits}`;
  if (digits.length <= exponent + 1) return `${sign}${digits.padEnd(exponent + 1, '0')}.0`;
  return `${sign}${digits.slice(0, exponent + 1)}.${digits.slice(exponent + 1)}`;
}

/** `f"{x:.2f}"` */
export function fixed2(x: number): string {
  if (x < 0 || Object.is(x, -0)) return `-${fixed2(-x)}`;
  if (!Number.isFinite(x)) return floatRepr(x);
  return Number.isInteger(x) ? `${BigInt(x)}.00` : round2(x).toFixed(2);
}

/**
 * `round(x, 2)`: to the nearest cent of the exact binary value, exact ties to even. Exact ties exist only where 8 x is odd (fractions .125,
 * .375, .625, .875); there toFixed would go away from zero.
 */
export function round2(x: number): number {
  // toFixed forgets the sign of a negative zero.
  if (x === 0 || !Number.isFinite(x) || Math.abs(x) >= 2 ** 52) return x;
  const eighths = x * 8;
  if (Number.isInteger(eighths) && eighths % 2 !== 0) {
    const down = Math.floor(x * 100);
    return (down % 2 === 0 ? down : down + 1) / 100;
  }
  return Number(x.toFixed(2));
}
