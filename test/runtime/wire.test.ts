// Bytes between workers: whatever is sent arrives as it was, arrays as aligned views; whatever is not ours closes the connection.

import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { isSinkflexError } from '../../kernels/index.ts';
import { RemoteError } from '../../runtime/index.ts';
import {
  Channel,
  connect,
  decodeAlone,
  decodeError,
  encodeAlone,
  encodeError,
  FrameReader,
  listen,
  loopback,
  PREFIX_BYTES,
  socketPath,
  type Transport,
  writePrefix,
} from '../../runtime/wire/index.ts';
import { Session } from '../../runtime/worker/index.ts';

/** What a channel wrote, and a reader of it that gets the bytes in pieces of any size. */
function record(): { transport: Transport; bytes: () => Buffer } {
  const chunks: Buffer[] = [];
  return {
    transport: { handsOver: false, write: (parts) => chunks.push(...parts.map((part) => Buffer.from(part))) > 0, open() {}, close() {} },
    bytes: () => Buffer.concat(chunks),
  };
}

function receive(bytes: Buffer, cuts: number[]): { messages: unknown[][]; error: Error | undefined } {
  const messages: unknown[][] = [];
  let error: Error | undefined;
  let deliver: (chunk: Buffer) => void = () => {};
  const transport: Transport = { handsOver: false, write: () => true, open: (onData) => (deliver = onData), close() {} };
  const channel = new Channel(1, transport, {
    onMessage: (_, message) => void messages.push(message),
    onClose: (_, cause) => (error = cause),
  });
  channel.open();
  let at = 0;
  for (const cut of [...cuts.map((c) => c % (bytes.length + 1)).sort((a, b) => a - b), bytes.length]) {
    deliver(bytes.subarray(at, cut));
    at = cut;
  }
  return { messages, error };
}

const quiet = { onMessage(): void {}, onClose(): void {} };

const array = fc.oneof(
  fc.float32Array({ maxLength: 9 }),
  fc.float64Array({ maxLength: 9 }),
  fc.int8Array({ maxLength: 9 }),
  fc.uint16Array({ maxLength: 9 }),
  fc.int32Array({ maxLength: 9 }),
  fc.uint8Array({ maxLength: 9 }),
  fc.bigInt64Array({ maxLength: 3 }),
);
const { value } = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.constantFrom(null, undefined, true, false, 0, -1, 2 ** 40, Number.NaN, 1.5, 12345678901n, '', 'x', 'ünïcode', new Date(5)),
    fc.string(),
    // A bare -0 arrives as 0 (docs/runtime.md); in a typed array it keeps its sign.
    fc.double().map((x) => (x === 0 ? 0 : x)),
    array,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(fc.stringMatching(/^[a-z]{1,4}$/), tie('value'), { maxKeys: 4 }).map((o) => ({ ...o })),
    fc.array(fc.tuple(fc.string(), tie('value')), { maxLength: 3 }).map((entries) => new Map(entries)),
    fc.array(fc.integer(), { maxLength: 3 }).map((items) => new Set(items)),
  ),
}));

t.test('any messages, cut anywhere, arrive as they were', (t) => {
  fc.assert(
    fc.property(
      fc.array(value, { minLength: 1, maxLength: 12 }),
      fc.array(fc.nat(), { maxLength: 6 }),
      fc.array(fc.boolean(), { maxLength: 12 }),
      (values, cuts, flushes) => {
        const sink = record();
        const channel = new Channel(0, sink.transport, quiet);
        for (const [i, item] of values.entries()) {
          channel.send([1, item]);
          if (flushes[i]) channel.flush();
          // A value that cannot be sent fails alone: what comes before and after is not harmed.
          if (flushes[i] === false) {
            try {
              channel.send([2, { fresh: 1, [`k${i}`]: { deep: () => 1 } }]);
              throw new Error('a function was sent');
            } catch (error) {
              if ((error as { code?: string }).code !== 'SINKFLEX_NOT_SERIALIZABLE') throw error;
            }
          }
        }
        channel.flush();
        const { messages, error } = receive(sink.bytes(), cuts);
        if (error !== undefined) throw error;
        const expected = values.map((item) => [1, item]);
        if (!fc.stringify(messages).includes(fc.stringify(expected).slice(1, -1)) || messages.length !== values.length) {
          throw new Error(`sent ${fc.stringify(expected)}, got ${fc.stringify(messages)}`);
        }
      },
    ),
    { numRuns: 300 },
  );
  t.end();
});

t.test('typed arrays arrive as aligned views of one received buffer, and as they were when sent', (t) => {
  const sink = record();
  const channel = new Channel(0, sink.transport, quiet);
  const doubles = Float64Array.of(1, 2, 3);
  const large = new Float32Array(100_000).fill(7);
  channel.send([
    1,
    Uint8Array.of(1, 2, 3),
    doubles,
    Float32Array.of(4),
    large,
    new Uint8Array(large.buffer, 4, 5).slice().buffer,
    new DataView(new ArrayBuffer(3)),
  ]);
  doubles[0] = 99; // too late
  large[0] = 99;
  channel.flush();
  const { messages } = receive(sink.bytes(), [5, 40, 70_000]);
  const [, bytes, f64, f32, big, buffer, view] = messages[0] as [
    number,
    Uint8Array,
    Float64Array,
    Float32Array,
    Float32Array,
    ArrayBuffer,
    DataView,
  ];
  t.same([...bytes], [1, 2, 3]);
  t.same([...f64], [1, 2, 3]);
  t.same([...f32], [4]);
  t.equal(big[0], 7);
  t.equal(big.length, 100_000);
  t.equal(f64.byteOffset % 8, 0);
  t.equal(f64.buffer, bytes.buffer, 'views of the same frame');
  t.equal(big.buffer, bytes.buffer);
  t.equal(buffer.byteLength, 5);
  t.equal(view.byteLength, 3);
  t.end();
});

t.test('random and damaged bytes close the connection with a typed error, never anything else', (t) => {
  const sink = record();
  const channel = new Channel(0, sink.transport, quiet);
  channel.send([0, 1, 2, 1, 'method', [{ a: 1, b: 'two' }, new Float32Array(5)], 0, 0]);
  channel.send([0, 2, 2, 1, 'method', [{ a: 1, b: 'two' }, new Map([[1, new Set([2])]])], 0, 0]);
  channel.flush();
  const good = sink.bytes();
  const check = (bytes: Buffer): void => {
    const { error } = receive(bytes, []);
    if (error !== undefined && !isSinkflexError(error)) throw error;
  };
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => check(Buffer.from(bytes))),
    { numRuns: 500 },
  );
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(good.length - 1), fc.nat(255)), { minLength: 1, maxLength: 4 }), (edits) => {
      const bytes = Buffer.from(good);
      for (const [at, byte] of edits) bytes[at] = byte;
      check(bytes);
    }),
    { numRuns: 1500 },
  );
  t.end();
});

t.test('sizes are checked before anything is allocated', (t) => {
  const reader = new FrameReader(() => {}, { messageBytes: 1000, sectionBytes: 8000 });
  for (const [messages, sections] of [
    [1001, 0],
    [10, 8008],
    [0, 8],
  ] as const) {
    const prefix = Buffer.alloc(PREFIX_BYTES);
    writePrefix(prefix, messages, sections, true);
    t.throws(() => reader.push(prefix), { code: 'SINKFLEX_PROTOCOL' });
  }
  t.end();
});

t.test('a listener lets in who knows the token, and nobody else', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sinkflex-test-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const token = Buffer.alloc(32, 1);
  const refused: Error[] = [];
  const peers: [number, Transport][] = [];
  let arrived: () => void = () => {};
  const listener = await listen(
    folder,
    token,
    3,
    (caller, transport) => {
      peers.push([caller, transport]);
      arrived();
    },
    (error) => refused.push(error),
  );
  t.teardown(() => listener.close());
  await t.rejects(connect(folder, Buffer.alloc(32, 2), 7, 3), { code: 'SINKFLEX_AUTHENTICATION_FAILED' });
  t.equal(peers.length, 0);

  // Somebody who does not even speak the protocol, and somebody who guesses the proof.
  for (const words of [Buffer.alloc(24, 0x41), Buffer.concat([Buffer.from('SFXA'), Buffer.alloc(20)])]) {
    const socket = createConnection(socketPath(folder, 3));
    socket.on('error', () => {});
    socket.on('data', () => socket.write(Buffer.alloc(32)));
    await once(socket, 'connect');
    socket.write(words);
    await once(socket, 'close');
  }
  t.same(
    refused.map((error) => (error as Error & { code: string }).code),
    ['SINKFLEX_AUTHENTICATION_FAILED', 'SINKFLEX_AUTHENTICATION_FAILED'],
  );
  t.equal(peers.length, 0);

  const known = new Promise<void>((resolve) => (arrived = resolve));
  const channel = new Channel(3, (await connect(folder, token, 7, 3)) as Transport, quiet);
  channel.open();
  channel.send([1, 'hello']);
  await known;
  t.equal(peers[0]![0], 7);
  const said = await new Promise<unknown[]>((resolve) =>
    new Channel(7, peers[0]![1], { onMessage: (_, message) => resolve(message), onClose() {} }).open(),
  );
  t.same(said, [1, 'hello']);
  channel.close();
});

t.test('whoever is let in still says nothing ill-formed twice', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sinkflex-test-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const token = Buffer.alloc(32, 1);
  const session = new Session({ worker: 5, folder, token, maxInFlightBytes: 1000 }, { send() {} });
  await session.open();
  t.teardown(() => session.close());
  let caller = 9;
  const dial = async (message: unknown[]): Promise<unknown[] | 'closed'> => {
    const transport = (await connect(folder, token, ++caller, 5)) as Transport;
    return new Promise((resolve) => {
      const channel = new Channel(5, transport, { onMessage: (_, answer) => resolve(answer), onClose: () => resolve('closed') });
      channel.open();
      channel.send(message);
    });
  };
  const CALL = 0;
  const FETCH = 4;
  for (const bad of [
    [99, 1],
    ['x'],
    [],
    [CALL, 1, 'actor', 1, 'm', [], 0, 0],
    [CALL, 1, 1, 1, { m: 1 }, [], 0, 0],
    [CALL, 1, 1, 1, 'm', 'args', 0, 0],
    [CALL, 1, 1, 1, 'm', [], null, 0],
  ]) {
    t.equal(await dial(bad), 'closed', JSON.stringify(bad));
  }
  const [, , unknown] = (await dial([CALL, 1, 77, 1, 'm', [], 0, 0])) as [number, number, unknown];
  t.match(decodeError(unknown), { code: 'SINKFLEX_ACTOR_DIED', details: { mayHaveRun: false } });
  const [, , unlent] = (await dial([FETCH, 1, 77])) as [number, number, unknown];
  t.match(decodeError(unlent), { code: 'SINKFLEX_OBJECT_RELEASED' });
});

t.test('a loop back into the same worker copies', async (t) => {
  const [a, b] = loopback();
  const sent = { list: [1], array: Float32Array.of(1, 2) };
  const got = await new Promise<unknown[]>((resolve) => {
    new Channel(0, b, { onMessage: (_, message) => resolve(message), onClose() {} }).open();
    const channel = new Channel(0, a, quiet);
    channel.open();
    channel.send([1, sent]);
    sent.list.push(2);
    sent.array[0] = 9;
  });
  t.same(got, [1, { list: [1], array: Float32Array.of(1, 2) }]);
});

t.test('errors and values that stand alone', (t) => {
  const error = Object.assign(new TypeError('bad', { cause: new RangeError('worse') }), { code: 'EBAD', n: 1, f: () => 1 });
  const back = decodeError(decodeAlone(encodeAlone(encodeError(error)))) as RemoteError;
  t.ok(back instanceof RemoteError);
  t.match(back, {
    name: 'TypeError',
    message: 'bad',
    code: 'SINKFLEX_METHOD_FAILED',
    details: { code: 'EBAD', n: 1 },
    stack: error.stack!,
    cause: { name: 'RangeError', message: 'worse' },
  });
  const inside = decodeAlone(encodeAlone({ e: new SyntaxError('inside'), a: Float64Array.of(1) })) as { e: Error; a: Float64Array };
  t.equal(inside.e.name, 'SyntaxError');
  t.same(inside.a, Float64Array.of(1));
  const cycle: Record<string, unknown> = {};
  cycle.self = cycle;
  t.throws(() => encodeAlone(cycle), { code: 'SINKFLEX_NOT_SERIALIZABLE' });
  t.throws(() => encodeAlone(Symbol('s')), { code: 'SINKFLEX_NOT_SERIALIZABLE' });
  t.throws(() => encodeAlone(2n ** 70n), { code: 'SINKFLEX_NOT_SERIALIZABLE' });
  t.end();
});

t.test('nesting and claims of containers are bounded before anything is decoded', (t) => {
  const frame = (...bytes: number[]): Buffer => {
    const prefix = Buffer.alloc(PREFIX_BYTES);
    writePrefix(prefix, bytes.length, 0, true);
    return Buffer.concat([prefix, Buffer.from(bytes)]);
  };
  const many = (byte: number, n: number): number[] => new Array<number>(n).fill(byte);
  for (const [what, bytes] of Object.entries({
    'an array of four billion': [0xdd, 0xff, 0xff, 0xff, 0xff, 1],
    'arrays in arrays of what is there once': [0xdc, 0, 8, 0xdc, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8],
    'a map of more than there is': [0xde, 0xff, 0xff, 1, 2],
    'a record of more keys than there are': [0xd4, 0x72, 0x40, 0xdc, 0xff, 0xff, 0xa1, 0x61],
    'a shape without keys': [0xd4, 0x72, 0x40, 1],
    'a value cut short': [0x92, 1],
    'a string cut short': [0x91, 0xd9, 200, 0x61],
    'an extension of somebody else': [0x91, 0xd4, 0x65, 0, 0x90],
    'brackets for the whole stack': [...many(0x91, 100_000), 1],
  })) {
    const { messages, error } = receive(frame(...bytes), []);
    t.match(error, { code: 'SINKFLEX_PROTOCOL' }, what);
    t.same(messages, []);
  }
  let deep: unknown = 1;
  for (let i = 0; i < 900; i++) deep = i % 3 === 0 ? [deep] : i % 3 === 1 ? { deep } : new Map([[1, deep]]);
  const sink = record();
  const channel = new Channel(0, sink.transport, quiet);
  channel.send([1, deep]);
  t.throws(() => channel.send([2, [[...many(7, 1000)], [[deep]].concat(), { a: [[[[[[[[[[deep]]]]]]]]]], b: wrapped(deep, 100) }]]), {
    code: 'SINKFLEX_NOT_SERIALIZABLE',
  });
  t.throws(() => encodeAlone(wrapped(deep, 100)), { code: 'SINKFLEX_NOT_SERIALIZABLE' });
  channel.send([3, { fine: true }]);
  channel.flush();
  const { messages, error } = receive(sink.bytes(), []);
  t.equal(error, undefined);
  t.same(messages[1], [3, { fine: true }]);
  t.equal(messages.length, 2);

  // Shapes beyond the first 64 have names of two bytes, and old ones are defined again.
  const shapes = record();
  const other = new Channel(0, shapes.transport, quiet);
  const sent = Array.from({ length: 20_000 }, (_, i) => [1, { [`a${(i * i) % 1237}`]: i, b: [{ [`c${i % 301}`]: [] }] }]);
  for (const [i, message] of sent.entries()) {
    other.send(message);
    if (i % 100 === 0) other.flush();
  }
  other.flush();
  const got = receive(shapes.bytes(), []);
  t.equal(got.error, undefined);
  t.equal(JSON.stringify(got.messages), JSON.stringify(sent));
  t.end();
});

function wrapped(value: unknown, times: number): unknown {
  let result = value;
  for (let i = 0; i < times; i++) result = [result];
  return result;
}
