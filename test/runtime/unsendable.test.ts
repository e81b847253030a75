// What can be sent arrives as it was, whatever it is nested in; what cannot is refused with its place, instead of arriving as something else.
import fc from 'fast-check';
import t from 'tap';
import { decodeAlone, Encoded, encodeAlone } from '../../runtime/wire/index.ts';

t.test('what would arrive as something else is refused, with its place', (t) => {
  const unsendable: [unknown, RegExp][] = [
    [/a/g, /a RegExp cannot be sent: send its source/],
    [new URL('http://host/'), /a URL cannot be sent: send its href/],
    [new WeakMap(), /a WeakMap/],
    [Promise.resolve(), /a Promise cannot be sent: await it/],
    [new SharedArrayBuffer(8), /a SharedArrayBuffer/],
    [new AbortController().signal, /an AbortSignal/],
    [new Blob([]), /a Blob/],
    [(function* () {})(), /a Generator cannot be sent: send an array/],
    [(async function* () {})(), /an AsyncGenerator cannot be sent: send an array/],
    [[1, 2].values(), /an Iterator cannot be sent: send an array/],
    [new Map([[1, 2]]).entries(), /an Iterator/],
    [new Set([1]).values(), /an Iterator/],
    ['text'[Symbol.iterator](), /an Iterator/],
    ['text'.matchAll(/t/g), /an Iterator/],
    [new FinalizationRegistry(() => {}), /a FinalizationRegistry/],
    [new EventTarget(), /an EventTarget/],
    [new TransformStream(), /a TransformStream/],
    [new TextDecoder(), /a TextDecoder/],
    [new Intl.NumberFormat('en'), /a NumberFormat cannot be sent/],
    [new Intl.DateTimeFormat('en'), /a DateTimeFormat cannot be sent/],
    [new Intl.Locale('en'), /a Locale cannot be sent/],
    [new Intl.DisplayNames('en', { type: 'region' }), /a DisplayNames cannot be sent/],
    [Object(1), /a Number/],
    [Symbol('s'), /a symbol/],
    [() => 1, /a function/],
    [2n ** 64n, /a bigint of more than 64 bits/],
  ];
  // What has a class of its own only from Node 22 on is told where it is passed.
  const named = 'Iterator' in globalThis;
  for (const [value, message] of unsendable) {
    t.throws(() => encodeAlone([0, value]), { code: 'SINKFLEX_NOT_SERIALIZABLE', message, details: { path: '[1]' } });
    if (message.source.startsWith('an Iterator') && !named) continue;
    for (const [holder, path] of [
      [{ list: [0, value] }, '.list[1]'],
      [new Map([['k', value]]), '.get("k")'],
      [value, ''],
    ] as const)
      t.throws(() => encodeAlone(holder), { code: 'SINKFLEX_NOT_SERIALIZABLE', message, details: { path } });
  }
  t.end();
});

const size = { maxLength: 5 };
const arrays = fc.oneof(
  fc.int8Array(size),
  fc.uint8Array(size),
  fc.uint8ClampedArray(size),
  fc.int16Array(size),
  fc.uint16Array(size),
  fc.int32Array(size),
  fc.uint32Array(size),
  fc.float32Array(size),
  fc.float64Array(size),
  fc.bigInt64Array(size),
  fc.bigUint64Array(size),
);
const leaf = fc.oneof(
  fc.constantFrom(null, undefined, true, false, Number.NaN, Number.POSITIVE_INFINITY, Number.MAX_SAFE_INTEGER, -(2 ** 53), 5e-324),
  fc.integer(),
  fc.double().map((x) => x + 0), // a bare -0 arrives as 0 (docs/runtime.md)
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 64n - 1n }),
  fc.date({ noInvalidDate: true }),
  arrays,
  arrays.map((array) => array.buffer.slice(array.byteOffset, array.byteOffset + array.byteLength)),
  arrays.map((array) => new DataView(array.buffer, array.byteOffset, array.byteLength)),
);
const keys = fc.oneof(fc.string({ maxLength: 6 }), fc.constantFrom('', 'then', 'constructor', 'length', '0', 'toJSON', 'é'));
const { value: anything } = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 5, withCrossShrink: true },
    leaf,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(keys, tie('value'), { maxKeys: 4, noNullPrototype: true }),
    fc.array(fc.tuple(tie('value'), tie('value')), { maxLength: 3 }).map((entries) => new Map(entries)),
    fc.array(tie('value'), { maxLength: 3 }).map((items) => new Set(items)),
    fc
      .tuple(fc.string(), fc.constantFrom(Error, TypeError, RangeError), fc.option(tie('value')))
      .map(([message, Type, cause]) => new Type(message, cause == null ? {} : { cause })),
    // In two places at once.
    tie('value').map((shared) => [shared, { again: shared }]),
  ),
}));

/** Where they differ; undefined: nowhere. Errors are compared by what people see of them: causes that are no errors become text in part. */
function difference(a: unknown, b: unknown, path = 'value'): string | undefined {
  if (Object.is(a, b)) return undefined;
  const here = `${path}: ${fc.stringify(a)}, not ${fc.stringify(b)}`;
  if (a instanceof Error)
    return b instanceof Error && a.name === b.name && a.message === b.message && 'cause' in a === 'cause' in b ? undefined : here;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return here;
  if (Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return here;
  if (a instanceof Date) return a.getTime() === (b as Date).getTime() ? undefined : here;
  const bytes = (x: ArrayBuffer | ArrayBufferView): string =>
    (ArrayBuffer.isView(x) ? Buffer.from(x.buffer, x.byteOffset, x.byteLength) : Buffer.from(x)).toString('hex');
  if (ArrayBuffer.isView(a) || a instanceof ArrayBuffer) return bytes(a) === bytes(b as ArrayBuffer) ? undefined : here;
  if (a instanceof Map) return difference([...a], [...(b as Map<unknown, unknown>)], `${path}.entries()`);
  if (a instanceof Set) return difference([...a], [...(b as Set<unknown>)], `${path}.values()`);
  const [own, other] = [Object.keys(a), Object.keys(b)];
  if (own.join('\0') !== other.join('\0')) return here;
  for (const key of own) {
    const found = difference((a as Record<string, unknown>)[key], (b as Record<string, unknown>)[key], `${path}.${key}`);
    if (found !== undefined) return found;
  }
  return undefined;
}

t.test('everything that can be sent arrives as it was', (t) => {
  const seen = new Set<string>();
  fc.assert(
    fc.property(anything, (value) => {
      seen.add(Object.prototype.toString.call(value));
      const { header, sections } = encodeAlone(value);
      const found = difference(value, decodeAlone(new Encoded(header, sections)));
      if (found !== undefined) throw new Error(found);
    }),
    { seed: 20261130, numRuns: 3000, endOnFailure: true },
  );
  t.ok(seen.size >= 20, [...seen].join());
  t.end();
});
