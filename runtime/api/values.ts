// Values: put, get, wait, and the refs that something of this worker keeps alive for others.
import { PENDING, Ref } from '../objects/index.ts';
import { encodeAlone } from '../wire/index.ts';
import { collectRefs, session } from '../worker/index.ts';
import { CallTimeoutError } from './errors.ts';
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

/**
 * A copy of the value, encoded once, for any number of calls.
 *
 * @example
 * using batch = put(tokens);
 * await Promise.all(trainers.map((trainer) => trainer.step(batch)));
 */
export function put<T>(value: T): ObjectRef<Awaited<T>> {
  session();
  const refs: Ref[] = [];
  const outer = collectRefs(refs);
  try {
    const ref = new Ref();
    ref.resolve(encodeAlone(value));
    if (refs.length > 0) {
      ref.holds = refs;
      keep(refs);
    }
    return ref as unknown as ObjectRef<Awaited<T>>;
  } finally {
    collectRefs(outer);
  }
}

type Values<R extends readonly ObjectRef<unknown>[]> = { -readonly [I in keyof R]: R[I] extends ObjectRef<infer T> ? T : never };

/** The values of all refs; the first failure rejects. */
export function get<const R extends readonly ObjectRef<unknown>[]>(refs: R, options?: { timeoutMs?: number }): Promise<Values<R>>;
export function get<T>(ref: ObjectRef<T>, options?: { timeoutMs?: number }): Promise<T>;
export async function get(
  refs: ObjectRef<unknown> | readonly ObjectRef<unknown>[],
  options: { timeoutMs?: number } = {},
): Promise<unknown> {
  const all = Array.isArray(refs) ? Promise.all(refs as readonly ObjectRef<unknown>[]) : Promise.resolve(refs as ObjectRef<unknown>);
  const { timeoutMs } = options;
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

/** Waits until `numReturns` refs have settled (value or error), or the time is up; answers both groups in the order given. */
export function wait<T>(
  refs: readonly ObjectRef<T>[],
  options: { numReturns?: number; timeoutMs?: number } = {},
): Promise<{ done: ObjectRef<T>[]; pending: ObjectRef<T>[] }> {
  const wanted = Math.min(options.numReturns ?? 1, refs.length);
  const own = refs as unknown as readonly Ref[];
  return new Promise((resolve) => {
    let settled = 0;
    let timer: NodeJS.Timeout | undefined;
    let over = false;
    const finish = (): void => {
      over = true;
      clearTimeout(timer);
      resolve({ done: refs.filter((_, i) => own[i]!.state !== PENDING), pending: refs.filter((_, i) => own[i]!.state === PENDING) });
    };
    for (const ref of own) {
      ref.whenSettled(() => {
        settled++;
        if (!over && settled >= wanted) finish();
      });
    }
    if (!over && settled >= wanted) finish();
    else if (!over && options.timeoutMs !== undefined) timer = setTimeout(finish, options.timeoutMs);
  });
}
