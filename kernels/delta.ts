// One version of a weight image as the change of another, without loss: what travels to other hosts. Format: kernels/memory/delta.h.
import { awaitNative, callNative } from './errors.ts';
import { addon } from './native.ts';

const native = addon as unknown as {
  encodeDelta(before: Uint8Array | undefined, now: Uint8Array, elementBytes: number, threads: number): Promise<Uint8Array>;
  applyDelta(delta: Uint8Array, before: Uint8Array | undefined, now: Uint8Array, threads: number): Promise<void>;
};

/**
 * `now` [n] as the change of `before` [n], or (undefined) as a whole; never more than n + n / 4096 + 64 bytes. `elementBytes`: 2 for bf16, 4 for
 * float32. Runs on threads of its own; both must stay as they are, and pinned, until it settles.
 * @example
 * const delta = await encodeDelta(older.data, newer.data, { elementBytes: 2 });
 */
export function encodeDelta(
  before: Uint8Array | undefined,
  now: Uint8Array,
  o: { elementBytes: 2 | 4; threads?: number },
): Promise<Uint8Array> {
  return awaitNative(callNative(() => native.encodeDelta(before, now, o.elementBytes, o.threads ?? 1)));
}

/**
 * Writes to `now` [n] what encodeDelta was given, from the same `before`. SINKFLEX_DELTA_DAMAGED when the delta is cut off, malformed or for
 * another size, or when a checksum of the outcome is not that of the original, as with another `before`: `now` holds nothing usable then.
 */
export function applyDelta(
  delta: Uint8Array,
  before: Uint8Array | undefined,
  now: Uint8Array,
  o: { threads?: number } = {},
): Promise<void> {
  return awaitNative(callNative(() => native.applyDelta(delta, before, now, o.threads ?? 1)));
}
