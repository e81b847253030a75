// What can be sent, as far as a type shows: a parameter that never can is a compile error where the call is written.
import type { AnyHandle, ObjectRef } from './types.ts';

declare const why: unique symbol;

/** The type of a parameter whose values cannot be sent; nothing is assignable to it. */
export interface CannotBeSent<Why extends string> {
  readonly [why]: Why;
}

type Primitive = string | number | bigint | boolean | null | undefined;
/** Objects with methods that travel all the same. */
type Known = AnyHandle | ObjectRef<unknown> | ArrayBufferView | ArrayBuffer | Date | Error;
type Bound = Promise<unknown> | WeakMap<WeakKey, unknown> | WeakSet<WeakKey> | WeakRef<WeakKey> | RegExp | AbortSignal | AbortController;
type Code = ((...args: never[]) => unknown) | (abstract new (...args: never[]) => unknown);

/**
 * Why a value of type A cannot be sent; never: as far as its type shows, it can. Looks four levels deep; `any`, `unknown` and type
 * parameters show nothing.
 */
export type Obstacle<A, Depth extends readonly unknown[] = [0, 0, 0, 0]> = unknown extends A
  ? never
  : A extends Primitive | Known
    ? never
    : A extends symbol
      ? 'a symbol cannot be sent'
      : A extends Code
        ? 'a function or an object with methods cannot be sent: pass plain data, or a handle of an actor'
        : A extends Bound
          ? 'an object that lives in one place cannot be sent'
          : Depth extends readonly [unknown, ...infer Rest]
            ? A extends ReadonlyMap<infer K, infer V>
              ? Obstacle<K, Rest> | Obstacle<V, Rest>
              : A extends ReadonlySet<infer V>
                ? Obstacle<V, Rest>
                : A extends readonly (infer E)[]
                  ? Obstacle<E, Rest>
                  : { [K in keyof A]-?: Obstacle<A[K], Rest> }[keyof A]
            : never;
