// mulberry32: 32 bits of state, plain data, so that it can be part of a snapshot and a replay draws the same. For choices, not for secrets.

export const nextState = (state: number): number => (state + 0x6d2b79f5) >>> 0;

/** From 0 to below 1. */
export function unitOf(state: number): number {
  let x = Math.imul(state ^ (state >>> 15), state | 1);
  x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
  return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
}
