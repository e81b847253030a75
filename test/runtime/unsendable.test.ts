// What cannot be sent is refused with its place, instead of arriving as something else.
import t from 'tap';
import { encodeAlone } from '../../runtime/wire/index.ts';

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
    [new Intl.NumberFormat('en'), /a NumberFormat cannot be sent/],
    [new Intl.DateTimeFormat('en'), /a DateTimeFormat cannot be sent/],
    [new Intl.Locale('en'), /a Locale cannot be sent/],
    [new Intl.DisplayNames('en', { type: 'region' }), /a DisplayNames cannot be sent/],
    [Object(1), /a Number/],
    [Symbol('s'), /a symbol/],
    [() => 1, /a function/],
    [2n ** 64n, /a bigint of more than 64 bits/],
  ];
  for (const [value, message] of unsendable) {
    for (const [holder, path] of [
      [{ list: [0, value] }, '.list[1]'],
      [new Map([['k', value]]), '.get("k")'],
      [value, ''],
    ] as const)
      t.throws(() => encodeAlone(holder), { code: 'SINKFLEX_NOT_SERIALIZABLE', message, details: { path } });
  }
  t.end();
});
