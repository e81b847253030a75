// Values: put, get, wait, and the refs that something of this worker keeps alive for others.
import { PENDING, Ref } from '../objects/index.ts';
import { type Encoded, encodeAlone, SHARED_BYTES, viewToFill } from '../wire/index.ts';
import { collectRefs, session } from '../worker/index.ts';
import { checkKnown, checkTimeout, count, ms } from './check.ts';
import { CallTimeoutError, RuntimeFailure } from './errors.ts';
import type { ObjectRef } from './types.ts';

/** Lent to nobody that could give it back: ours to end. */
const KEPT = -1;

/** Keeps the refs of this worker among these until the answer is called. */
export function keep(refs: readonly Ref[]): () => void {
  const own = refs.filter((ref) => ref.borrowed === undefined);
  for (const ref of own) session().lend(ref, KEPT);
  return () => {
    for (const ref of own) session().loans.change(ref.id, KEPT, -1);
  };
}

/** Puts what they hold of others back when a ref is collected that nobody released. */
const keptGone = new FinalizationRegistry<() => void>((letGo) => letGo());

/**
 * A copy of the value, encoded once, for any number of calls. From 64 KiB on it is in shared memory: workers of the host read it without a
 * copy. Arrays of `allocate()` are not copied at all. SINKFLEX_OBJECT_STORE_FULL when neither memory nor disk has room.
 *
 * @example
 * using batch = put(tokens);
 * await Promise.all(trainers.map((trainer) => trainer.step(batch)));
 */
export function put<T>(value: T): ObjectRef<Awaited<T>> {
  const { store } = session();
  const refs: Ref[] = [];
  const outer = collectRefs(refs);
  const ref = new Ref();
  let encoded: Encoded;
  try {
    if (store === undefined) {
      encoded = encodeAlone(value);
      ref.resolve(encoded);
    } else {
      encoded = store.put(ref, value);
      if (encoded.block !== undefined) session().loans.register(ref, session());
    }
  } finally {
    collectRefs(outer);
  }
  if (refs.length > 0) {
    ref.holds = refs;
    encoded.refs = refs;
    const letGo = keep(refs);
    keptGone.register(ref, letGo, ref);
    encoded.onRelease.push(() => {
      keptGone.unregister(ref);
      letGo();
    });
  }
  return ref as unknown as ObjectRef<Awaited<T>>;
}

/** Constructors of arrays that can be allocated in shared memory. */
export interface TypedArrayConstructor<A extends ArrayBufferView> {
  readonly BYTES_PER_ELEMENT: number;
  new (buffer: ArrayBuffer, byteOffset: number, length: number): A;
}

/**
 * An array in shared memory, to be filled in place: put(), arguments and results that hold it pass it on without a copy. Its content is
 * arbitrary at first. Once it was passed on, the value is fixed: what is written to the array afterwards is seen here only.
 *
 * @example
 * const batch = allocate(Float32Array, 1_000_000);
 * fill(batch);
 * using ref = put({ batch });
 */
export function allocate<A extends ArrayBufferView>(type: TypedArrayConstructor<A>, length: number): A {
  const bytes = length * type.BYTES_PER_ELEMENT;
  if (!Number.isSafeInteger(length) || length < 0 || bytes > 2 ** 32)
    throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `length is ${length}; it must be an integer from 0, for at most 4 GiB`);
  const { store } = session();
  const buffer = store === undefined || bytes < SHARED_BYTES ? new ArrayBuffer(bytes) : viewToFill(store.allocate(bytes));
  return new type(buffer, 0, length);
}

type Values<R extends readonly ObjectRef<unknown>[]> = { -readonly [I in keyof R]: R[I] extends ObjectRef<infer T> ? T : never };

/** The values of all refs; the first failure rejects. */
export function get<const R extends readonly ObjectRef<unknown>[]>(refs: R, options?: { timeoutMs?: number }): Promise<Values<R>>;
export function get<T>(ref: ObjectRef<T>, options?: { timeoutMs?: number }): Promise<T>;
export async function get(
  refs: ObjectRef<unknown> | readonly ObjectRef<unknown>[],
  options: { timeoutMs?: number } = {},
): Promise<unknown> {
  const timeoutMs = checkTimeout('get', options);
  const all = Array.isArray(refs) ? Promise.all(refs as readonly ObjectRef<unknown>[]) : Promise.resolve(refs as ObjectRef<unknown>);
  if (timeoutMs === undefined) return all;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new CallTimeoutError('get()', timeoutMs, true)), timeoutMs);
  });
  try {
    return await Promise.race([all, late]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Waits until `numReturns` refs have settled (value or error), or the time is up; answers both groups in the order given. `fetch` (default
 * true): values of other workers are brought here, and a ref counts once its value is; false: it counts once its owner has the value.
 */
export function wait<T>(
  refs: readonly ObjectRef<T>[],
  options: { numReturns?: number; timeoutMs?: number; fetch?: boolean } = {},
): Promise<{ done: ObjectRef<T>[]; pending: ObjectRef<T>[] }> {
  checkKnown('wait', options, { numReturns: true, timeoutMs: true, fetch: true });
  const wanted = Math.min(count('numReturns', options.numReturns, 1, 0), refs.length);
  const timeoutMs = options.timeoutMs === undefined ? undefined : ms('timeoutMs', options.timeoutMs, 0);
  const own = refs as unknown as readonly Ref[];
  return new Promise((resolve) => {
    const settled = new Set<number>();
    let timer: NodeJS.Timeout | undefined;
    let over = false;
    const isDone = (_: unknown, i: number): boolean => settled.has(i) || own[i]!.state !== PENDING;
    const finish = (): void => {
      over = true;
      clearTimeout(timer);
      resolve({ done: refs.filter(isDone), pending: refs.filter((ref, i) => !isDone(ref, i)) });
    };
    own.forEach((ref, i) => {
      const arrived = (): void => {
        settled.add(i);
        if (!over && settled.size >= wanted) finish();
      };
      if (options.fetch === false) ref.whenThere(arrived);
      else ref.whenSettled(arrived);
    });
    if (!over && settled.size >= wanted) finish();
    else if (!over && timeoutMs !== undefined) timer = setTimeout(finish, timeoutMs);
  });
}
