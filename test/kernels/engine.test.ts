// Generation as a caller sees it: turns, reasons to stop, waiting for a cache, closing, publishing under way, disposal and threads that die.
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { Engine, type GenerateRequest, VersionedSegment, WeightStore } from '../../kernels/index.ts';
import { createStore, generateOnce, tinyConfig } from './engine-support.ts';

const request = (over: Partial<GenerateRequest> = {}): GenerateRequest => ({
  tokens: Int32Array.of(1, 2, 3),
  maxNewTokens: 8,
  stopTokens: [],
  temperature: 1,
  key: [1, 2, 3, 4],
  ...over,
});

t.test('a turn stops for a reason, and the next one goes on where it ended', async (t) => {
  const store = createStore();
  const engine = new Engine({ store, maxSequences: 2, maxSequenceTokens: 40 });
  t.teardown(() => engine.dispose());
  const long = await generateOnce(engine, request({ maxNewTokens: 20 }));
  t.equal(long.stopReason, 'length');
  t.equal(long.tokens.length, 20);
  t.equal(long.lineage, 0);
  t.same([...long.versions], new Array(20).fill(0));
  t.ok(long.logprobs.every((lp) => lp < 0 && Number.isFinite(lp)));

  const stop = long.tokens[5]!;
  const short = await generateOnce(engine, request({ maxNewTokens: 20, stopTokens: [stop] }));
  t.equal(short.stopReason, 'stop');
  t.same([...short.tokens], [...long.tokens.subarray(0, long.tokens.indexOf(stop) + 1)], 'the stop token is part of the result');

  // 3 + 20 tokens, then the turn that follows reads the last one first: in all 40 - 1 fit before the last draw.
  const sequence = await engine.openSequence();
  await engine.generate(sequence, request({ maxNewTokens: 20 }));
  const second = await engine.generate(sequence, request({ tokens: Int32Array.of(9, 9), maxNewTokens: 100 }));
  t.equal(second.stopReason, 'context');
  t.equal(second.tokens.length, 40 - 23 - 2);
  const full = await engine.generate(sequence, request({ tokens: Int32Array.of(9) }));
  t.equal(full.stopReason, 'context');
  t.equal(full.tokens.length, 0);
  engine.closeSequence(sequence);

  // The whole sequence equals a forward over its tokens.
  const ids = Int32Array.of(1, 2, 3, ...long.tokens, 9, 9, ...second.tokens);
  const { logprobs } = await engine.forward({ ids, cuSeqlens: Int32Array.of(0, 40) });
  t.same([...logprobs.subarray(25)], [...second.logprobs]);
});

t.test('a prompt that fills the context draws one token', async (t) => {
  const engine = new Engine({ store: createStore(), maxSequences: 1, maxSequenceTokens: 64, maxNumBatchedTokens: 11 });
  t.teardown(() => engine.dispose());
  const fits = await generateOnce(engine, request({ tokens: new Int32Array(63).fill(4) }));
  t.same([fits.tokens.length, fits.stopReason], [1, 'context']);
  const over = await generateOnce(engine, request({ tokens: new Int32Array(64).fill(4) }));
  t.same([over.tokens.length, over.stopReason], [0, 'context']);
  t.equal(engine.stats().generatedTokens, 1);
});

t.test('greedy is the most likely token; keys decide what is drawn, not order', async (t) => {
  const engine = new Engine({ store: createStore(), maxSequences: 16, prefixCaching: false });
  t.teardown(() => engine.dispose());
  const [a, b, c, d] = await Promise.all([
    generateOnce(engine, request()),
    generateOnce(engine, request()),
    generateOnce(engine, request({ key: [1, 2, 3, 5] })),
    generateOnce(engine, request({ temperature: 0, key: [9, 9, 9, 9] })),
  ]);
  t.same(a, b, 'the same key');
  t.notSame([...a.tokens], [...c.tokens], 'another turn');
  const e = await generateOnce(engine, request({ temperature: 0 }));
  t.same([...d.tokens], [...e.tokens], 'greedy needs no key');
  // top-1 sampling at any temperature draws the greedy token, with the log-probability of the full distribution.
  const top = await generateOnce(engine, request({ topK: 1, temperature: 1 }));
  t.same([...top.tokens], [...e.tokens]);
  t.same([...top.logprobs], [...e.logprobs]);
});

t.test(
  'streamed tokens come one by one and are the result; an abort or a listener that throws ends the turn, not the sequence',
  async (t) => {
    const engine = new Engine({ store: createStore(), maxSequences: 3, maxSequenceTokens: 4096, prefixCaching: false });
    t.teardown(() => engine.dispose());
    const ask = { tokens: Int32Array.of(1, 2, 3), maxNewTokens: 30, stopTokens: [], temperature: 1, key: [1, 2, 3, 4] as const };
    const silent = await generateOnce(engine, ask);
    const heard: { token: number; logprob: number; version: number }[][] = [[], []];
    const results = await Promise.all(
      heard.map(async (list) => {
        const sequence = await engine.openSequence();
        const result = await engine.generate(sequence, ask, (drawn) => list.push(drawn));
        t.equal(list.length, 30, 'all was heard before the result');
        engine.closeSequence(sequence);
        return result;
      }),
    );
    for (const [i, result] of results.entries()) {
      t.same(result, silent);
      t.same(
        heard[i]!.map(({ token }) => token),
        [...result.tokens],
      );
      t.same(
        heard[i]!.map(({ logprob }) => logprob),
        [...result.logprobs],
      );
    }
    const sequence = await engine.openSequence();
    let count = 0;
    const aborted = await engine.generate(sequence, { ...ask, maxNewTokens: 4000 }, () => ++count === 5 && engine.abort(sequence));
    t.equal(aborted.stopReason, 'aborted');
    t.ok(aborted.tokens.length >= 5 && aborted.tokens.length < 4000);
    t.same(aborted.tokens.slice(0, 30), silent.tokens.slice(0, aborted.tokens.length), 'what was drawn is kept');
    await t.rejects(
      engine.generate(sequence, { ...ask, maxNewTokens: 3000 }, () => {
        throw new Error('heard enough');
      }),
      { message: 'heard enough' },
    );
    t.equal((await engine.generate(sequence, { ...ask, maxNewTokens: 2 })).tokens.length, 2, 'the sequence goes on');
  },
);

t.test('callers wait for a cache in order; closing while generating aborts and frees', async (t) => {
  const engine = new Engine({ store: createStore(), maxSequences: 2, maxSequenceTokens: 4096 });
  t.teardown(() => engine.dispose());
  const fresh = await generateOnce(engine, request());
  const [a, b] = [await engine.openSequence(), await engine.openSequence()];
  const order: string[] = [];
  const waiting = ['first', 'second'].map((name) => engine.openSequence().then((s) => order.push(name) && s));
  t.equal(engine.stats().waitingSequences, 2);
  const endless = engine.generate(a, request({ maxNewTokens: 4000 }));
  await engine.generate(b, request()); // by now `a` has drawn something
  engine.closeSequence(a);
  engine.closeSequence(a);
  const aborted = await endless;
  t.equal(aborted.stopReason, 'aborted');
  t.ok(aborted.tokens.length > 0 && aborted.tokens.length < 4000);
  t.same([...aborted.tokens.subarray(0, 8)], [...fresh.tokens]);
  const first = await waiting[0]!;
  t.same(order, ['first']);
  t.same([...(await engine.generate(first, request())).tokens], [...fresh.tokens], 'nothing of the aborted sequence is left in the cache');
  engine.closeSequence(b);
  await waiting[1];
  t.same(order, ['first', 'second']);
});

t.test('mistakes are typed errors', async (t) => {
  const store = createStore();
  const engine = new Engine({ store, maxSequences: 1 });
  const sequence = await engine.openSequence();
  const bad = { code: 'SINKFLEX_BAD_ARGUMENT' };
  await t.rejects(engine.generate(sequence, request({ tokens: new Int32Array(0) })), bad);
  await t.rejects(engine.generate(sequence, request({ tokens: Int32Array.of(67) })), {
    ...bad,
    message: /tokens\[0\] = 67 must be from 0 to 66/,
  });
  await t.rejects(engine.generate(sequence, request({ tokens: Int32Array.of(-1) })), bad);
  await t.rejects(engine.generate(sequence, request({ maxNewTokens: 0 })), bad);
  await t.rejects(engine.generate(sequence, request({ temperature: -1 })), bad);
  await t.rejects(engine.generate(sequence, request({ temperature: Number.NaN })), bad);
  await t.rejects(engine.generate(sequence, request({ topP: 0 })), bad);
  await t.rejects(engine.generate(sequence, request({ key: [1, 2, 3, -1] })), bad);
  await t.rejects(engine.generate(sequence, request({ tokens: [1] as unknown as Int32Array })), bad);
  await t.rejects(engine.forward({ ids: Int32Array.of(1, 2), cuSeqlens: Int32Array.of(0, 3) }), bad);
  await t.rejects(engine.forward({ ids: Int32Array.of(1, 2), cuSeqlens: Int32Array.of(0, 2, 1, 2) }), bad);
  await t.rejects(engine.forward({ ids: Int32Array.of(1, 99), cuSeqlens: Int32Array.of(0, 2) }), bad);
  await t.rejects(engine.forward({ ids: new Int32Array(0), cuSeqlens: Int32Array.of(0, 0) }), bad);
  await t.rejects(engine.forward({ ids: Int32Array.of(1), cuSeqlens: Int32Array.of(0, 1) }, { temperature: 0 }), bad);
  await t.rejects(engine.backward({ dLogprobs: new Float32Array(2) }), { code: 'SINKFLEX_ENGINE_NOTHING_KEPT' });
  await engine.forward({ ids: Int32Array.of(1, 2), cuSeqlens: Int32Array.of(0, 2) }, { keep: true });
  await t.rejects(engine.backward({ dLogprobs: new Float32Array(3) }), bad);
  await t.rejects(engine.optimizerStep({ lr: -1, lineage: 0, version: 1 }), bad);
  const busy = engine.generate(sequence, request());
  await t.rejects(engine.generate(sequence, request()), { code: 'SINKFLEX_SEQUENCE_BUSY' });
  await busy;
  engine.closeSequence(sequence);
  await t.rejects(engine.generate(sequence, request()), { code: 'SINKFLEX_SEQUENCE_CLOSED' });
  t.throws(() => new Engine({ store, threads: 0 }), bad);
  t.throws(() => new Engine({ store, maxSequenceTokens: 1.5 }), bad);
  await engine.dispose();
  await engine.dispose();
  await t.rejects(engine.openSequence(), { code: 'SINKFLEX_ENGINE_DISPOSED' });
  await t.rejects(engine.forward({ ids: Int32Array.of(1), cuSeqlens: Int32Array.of(0, 1) }), { code: 'SINKFLEX_ENGINE_DISPOSED' });

  const empty = WeightStore.create(tinyConfig());
  const early = new Engine({ store: empty });
  await t.rejects(generateOnce(early, request()), { code: 'SINKFLEX_STORE_EMPTY' });
  await t.rejects(early.forward({ ids: Int32Array.of(1), cuSeqlens: Int32Array.of(0, 1) }), { code: 'SINKFLEX_STORE_EMPTY' });
  empty.initialise(1);
  t.equal((await generateOnce(early, request())).tokens.length, 8, 'and works once something was published');
  await early.dispose();
  const small = VersionedSegment.create({ slotBytes: 4096 });
  t.throws(() => WeightStore.open({ segment: small.address, config: tinyConfig() }), { code: 'SINKFLEX_STORE_MISMATCH' });
});

t.test('each step takes the newest version; frozen engines keep theirs; idle engines hold none', async (t) => {
  const store = createStore();
  const trainer = new Engine({ store });
  const engine = new Engine({ store: WeightStore.open(store.address), maxSequenceTokens: 8192, maxSequences: 4 });
  t.teardown(() => Promise.all([trainer.dispose(), engine.dispose()]));
  const sequence = await engine.openSequence();
  const endless = engine.generate(sequence, request({ maxNewTokens: 8000 }));
  await generateOnce(engine, request());
  for (let version = 1; version <= 12; version++) await trainer.optimizerStep({ lr: 0, lineage: 0, version });
  await generateOnce(engine, request());
  engine.closeSequence(sequence);
  const { versions } = await endless;
  t.equal(versions[0], 0);
  t.equal(versions.at(-1), 12);
  t.ok(
    versions.every((v, i) => i === 0 || v >= versions[i - 1]!),
    'versions never go back',
  );
  t.same(store.segment.pins(), [], 'nothing is held between turns');

  engine.freeze(true);
  await generateOnce(engine, request());
  await trainer.optimizerStep({ lr: 0, lineage: 1, version: 3 });
  const frozen = await generateOnce(engine, request());
  t.same([frozen.versions[0], frozen.lineage], [12, 0]);
  engine.freeze(false);
  const thawed = await generateOnce(engine, request());
  t.same([thawed.versions[0], thawed.lineage], [3, 1]);
});

t.test('a kept forward and its backward use one version, whatever is published between them', async (t) => {
  const store = createStore();
  const [a, b, writer] = [new Engine({ store }), new Engine({ store }), new Engine({ store })];
  const batch = { ids: Int32Array.from({ length: 30 }, (_, i) => i), cuSeqlens: Int32Array.of(0, 30) };
  const g = { dLogprobs: new Float32Array(30).fill(1) };
  await a.forward(batch, { keep: true });
  await b.forward(batch, { keep: true });
  await b.backward(g);
  for (let version = 1; version <= 6; version++) {
    await writer.forward(batch, { keep: true });
    await writer.backward(g);
    await writer.optimizerStep({ lr: 0.1, lineage: 0, version });
  }
  await a.backward(g);
  t.same(a.gradients(), b.gradients());
  await Promise.all([a.dispose(), b.dispose(), writer.dispose()]);
});

t.test('weights that are not numbers fail the requests, not the engine', async (t) => {
  const store = createStore();
  const engine = new Engine({ store });
  t.teardown(() => engine.dispose());
  const publish = async (version: number, fill: (data: Uint8Array) => void): Promise<void> => {
    const writing = await store.segment.beginWrite();
    fill(writing.data);
    writing.publish({ lineage: 0, version });
  };
  const pin = store.pin();
  const good = pin.data.slice();
  pin.release();
  const sequence = await engine.openSequence();
  await publish(1, (data) => {
    data.set(good);
    data.fill(0xff, store.layout.dataStart);
  });
  await t.rejects(engine.generate(sequence, request()), {
    code: 'SINKFLEX_ENGINE_NOT_FINITE',
    message: /version 0\.1 .*lower the learning rate, or check the checkpoint/,
  });
  await publish(2, (data) => data.set(good));
  await t.rejects(engine.generate(sequence, request()), { code: 'SINKFLEX_SEQUENCE_CLOSED' });
  engine.closeSequence(sequence);
  t.equal((await generateOnce(engine, request())).tokens.length, 8);
});

t.test('disposal ends what is open', async (t) => {
  const engine = new Engine({ store: createStore(), maxSequences: 1, maxSequenceTokens: 100_000 });
  const sequence = await engine.openSequence();
  const open = [
    engine.generate(sequence, request({ maxNewTokens: 90_000 })),
    engine.openSequence(),
    engine.forward({ ids: new Int32Array(2000), cuSeqlens: Int32Array.of(0, 2000) }),
    engine.forward({ ids: new Int32Array(2000), cuSeqlens: Int32Array.of(0, 2000) }),
  ].map((promise) =>
    promise.then(
      () => 'done',
      (e: { code: string }) => e.code,
    ),
  );
  await engine.dispose();
  const codes = await Promise.all(open);
  t.same(codes.slice(0, 2), ['SINKFLEX_ENGINE_DISPOSED', 'SINKFLEX_ENGINE_DISPOSED']);
  t.equal(codes[3], 'SINKFLEX_ENGINE_DISPOSED', 'what had not begun is dropped');
});

t.test('a worker thread may die with its engine at work', async (t) => {
  const store = createStore();
  const source = `
    const { parentPort, workerData } = require('node:worker_threads');
    import(workerData.face).then(async ({ Engine, WeightStore }) => {
      const engine = new Engine({ store: WeightStore.open(workerData.address), maxSequenceTokens: 100000, maxSequences: 2 });
      const sequence = await engine.openSequence();
      const r = (n) => ({ tokens: Int32Array.of(1, 2, 3), maxNewTokens: n, stopTokens: [], temperature: 1, key: [1, 2, 3, 4] });
      if (workerData.how !== 'idle') engine.generate(sequence, r(90000)).catch(() => {});
      const other = await engine.openSequence();
      const { tokens } = await engine.generate(other, r(5));
      if (workerData.how === 'forward') engine.forward({ ids: new Int32Array(3000), cuSeqlens: Int32Array.of(0, 3000) }, { keep: true });
      parentPort.postMessage([...tokens]);
      if (workerData.how === 'exit') process.exit(0);
    });`;
  const face = new URL('../../kernels/index.js', import.meta.url).href;
  const expected = [...(await soloTokens(store))];
  for (const how of ['idle', 'generate', 'forward', 'exit', 'generate']) {
    const worker = new Worker(source, { eval: true, workerData: { face, address: store.address, how } });
    const exited = new Promise((resolve) => worker.once('exit', resolve));
    const tokens = await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
    t.same(tokens, expected, how);
    if (how !== 'exit') await worker.terminate();
    await exited;
  }
  t.same(store.segment.pins(), [], 'no pin is left behind');
  t.same([...(await soloTokens(store))], expected);
});

async function soloTokens(store: WeightStore): Promise<Int32Array> {
  const engine = new Engine({ store });
  const { tokens } = await generateOnce(engine, request({ maxNewTokens: 5 }));
  await engine.dispose();
  return tokens;
}

t.test('an engine nobody refers to is collected, and an open promise keeps the process alive', async (t) => {
  const store = createStore();
  for (let i = 0; i < 50; i++) await soloTokens(store);
  for (let i = 0; i < 20; i++) await generateOnce(new Engine({ store, maxSequences: 2 }), request());
  (globalThis as { gc?: () => void }).gc?.();
  t.pass('no crash');
});
