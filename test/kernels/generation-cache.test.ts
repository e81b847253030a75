// The key/value cache: what sequences share and what that saves, what happens when pages run out, and what becomes of it under new weights.
import fc from 'fast-check';
import t from 'tap';
import { type CacheOnUpdate, Engine, type EngineOptions, type GenerateResult, type WeightStore } from '../../kernels/index.ts';
import { createStore, generateOnce } from './engine-support.ts';

const random = (n: number, salt: number): Int32Array => Int32Array.from({ length: n }, (_, i) => Math.imul(i + salt, 2654435761) >>> 26);
const joined = (...parts: ArrayLike<number>[]): Int32Array => Int32Array.from(parts.flatMap((part) => Array.from(part)));
const ask = (tokens: Int32Array, sample = 0, maxNewTokens = 8) => ({
  tokens,
  maxNewTokens,
  stopTokens: [],
  temperature: 1,
  key: [1, 0, sample, 0] as const,
});

/** Log-probabilities of the last `count` tokens by the training pass. */
async function trained(engine: Engine, ids: Int32Array, count: number): Promise<number[]> {
  const { logprobs } = await engine.forward({ ids, cuSeqlens: Int32Array.of(0, ids.length) });
  return [...logprobs.subarray(ids.length - count)];
}

t.test('the samples of a group read their prompt once', async (t) => {
  const store = createStore();
  const engine = new Engine({ store, maxSequences: 8, maxSequenceTokens: 400, maxNumBatchedTokens: 50 });
  const apart = new Engine({ store, maxSequences: 8, maxSequenceTokens: 400, prefixCaching: false });
  t.teardown(() => Promise.all([engine.dispose(), apart.dispose()]));
  const prompt = random(200, 1);
  const draw = (e: Engine): Promise<GenerateResult[]> =>
    Promise.all(Array.from({ length: 8 }, (_, sample) => generateOnce(e, ask(prompt, sample))));
  const shared = await draw(engine);
  const alone = await draw(apart);
  t.same(
    shared.map(({ tokens, logprobs }) => [tokens, logprobs]),
    alone.map(({ tokens, logprobs }) => [tokens, logprobs]),
    'the same bits',
  );
  t.same(
    shared.map(({ cachedTokens }) => cachedTokens),
    [0, ...new Array(7).fill(199)],
    'all but the last token of the prompt, from which the first is drawn',
  );
  t.same([engine.stats().prefixQueries, engine.stats().prefixHits], [1600, 7 * 199]);
  t.equal(engine.stats().rows, 200 + 7 * 1 + 8 * 7);
  t.equal(apart.stats().prefixHits, 0);
  t.equal(apart.stats().rows, 8 * 207);
  t.same([...shared[3]!.logprobs], await trained(engine, joined(prompt, shared[3]!.tokens), 8));
});

t.test('a turn on top of another costs its new tokens only, in the same sequence or in one that begins later', async (t) => {
  const store = createStore();
  const engine = new Engine({ store, maxSequences: 2, maxSequenceTokens: 400 });
  t.teardown(() => engine.dispose());
  const first = random(100, 2);
  const second = random(9, 3);
  const sequence = await engine.openSequence();
  const one = await engine.generate(sequence, ask(first));
  const before = engine.stats().rows;
  const two = await engine.generate(sequence, ask(second, 1));
  t.equal(engine.stats().rows - before, 1 + 9 + 7);
  const conversation = joined(first, one.tokens, second);
  const again = await generateOnce(engine, ask(conversation, 1));
  t.same([again.tokens, again.logprobs], [two.tokens, two.logprobs]);
  t.equal(again.cachedTokens, conversation.length - 1, 'while the other is open');
  engine.closeSequence(sequence);
  const branch = joined(conversation.subarray(0, 90), random(30, 4));
  const other = await generateOnce(engine, ask(branch, 2));
  t.equal(other.cachedTokens, 90, 'it agrees in the middle of a page');
  t.same([...other.logprobs], await trained(engine, joined(branch, other.tokens), 8));
  const after = await generateOnce(engine, ask(joined(conversation, two.tokens, [7]), 3));
  t.equal(after.cachedTokens, conversation.length + two.tokens.length - 1, 'after it was closed; the token drawn last was never read');
});

t.test('pages that nobody uses are kept within the bound, those unused for longest go first', async (t) => {
  const store = createStore();
  const engine = new Engine({ store, maxSequences: 4, maxSequenceTokens: 128, cacheTokens: 6 * 64 });
  t.teardown(() => engine.dispose());
  const prompts = Array.from({ length: 4 }, (_, i) => random(100, 10 * (i + 1)));
  const cached = async (i: number): Promise<number> => (await generateOnce(engine, ask(prompts[i]!, 0, 2))).cachedTokens;
  t.same([await cached(0), await cached(1), await cached(2)], [0, 0, 0], 'two pages each');
  t.same(engine.stats().cachePages, 6);
  t.same([await cached(0), await cached(2)], [99, 99]);
  t.equal(await cached(3), 0, 'takes the place of the second');
  t.equal(await cached(1), 0);
  t.equal(await cached(2), 99, 'still there');
  t.ok(engine.stats().cachePagesKept <= 6);
});

t.test('with room for few, sequences give way and lose nothing', async (t) => {
  const store = createStore();
  const play = async (o: Partial<EngineOptions>): Promise<{ results: GenerateResult[][]; preemptions: number }> => {
    const engine = new Engine({ store, maxSequences: 8, maxSequenceTokens: 256, ...o });
    try {
      const results = await Promise.all(
        Array.from({ length: 8 }, async (_, i) => {
          const sequence = await engine.openSequence();
          const turns = [];
          for (let turn = 0; turn < 3; turn++) turns.push(await engine.generate(sequence, ask(random(20, 40 * i + turn), i, 50)));
          return turns;
        }),
      );
      return { results, preemptions: engine.stats().preemptions };
    } finally {
      await engine.dispose();
    }
  };
  const roomy = await play({});
  t.equal(roomy.preemptions, 0);
  for (const prefixCaching of [true, false]) {
    const tight = await play({ cacheTokens: 320, maxNumBatchedTokens: 40, prefixCaching });
    t.ok(tight.preemptions > 0, `${tight.preemptions} preemptions`);
    for (const [i, turns] of tight.results.entries())
      for (const [j, { tokens, logprobs, versions, stopReason }] of turns.entries()) {
        const { cachedTokens: _, ...same } = roomy.results[i]![j]!;
        t.same({ tokens, logprobs, versions, stopReason, lineage: 0 }, same);
      }
  }
  t.throws(() => new Engine({ store, maxSequenceTokens: 256, cacheTokens: 255 }), {
    code: 'SINKFLEX_BAD_ARGUMENT',
    message: /cacheTokens/,
  });
});

t.test('aborted and closed sequences leave no page behind', async (t) => {
  const store = createStore();
  const engine = new Engine({ store, maxSequences: 6, maxSequenceTokens: 256, cacheTokens: 640, maxNumBatchedTokens: 16 });
  t.teardown(() => engine.dispose());
  const one = fc.record({
    length: fc.integer({ min: 1, max: 180 }),
    salt: fc.nat(2),
    draws: fc.integer({ min: 1, max: 60 }),
    abortAt: fc.nat(70),
    close: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(one, { minLength: 1, maxLength: 8 }), async (list) => {
      await Promise.all(
        list.map(async ({ length, salt, draws, abortAt, close }, i) => {
          const sequence = await engine.openSequence();
          const tokens = random(length, salt);
          let heard = 0;
          const stop = (): void => (close ? engine.closeSequence(sequence) : engine.abort(sequence));
          if (abortAt === 0) setImmediate(stop);
          const result = await engine.generate(sequence, ask(tokens, i, draws), () => ++heard === abortAt && stop());
          engine.closeSequence(sequence);
          const undisturbed = await generateOnce(engine, ask(tokens, i, draws));
          if (result.tokens.join() !== undisturbed.tokens.subarray(0, result.tokens.length).join())
            throw new Error('an abort changed what was drawn');
        }),
      );
      await generateOnce(engine, ask(random(3, 9), 0, 1));
      const { cachePagesUsed, openSequences } = engine.stats();
      // The count is taken in a step: the last one was of the one sequence that was open.
      if (cachePagesUsed > 1 || openSequences > 0) throw new Error(`${cachePagesUsed} pages, ${openSequences} sequences`);
    }),
    { seed: 5, numRuns: 25 },
  );
});

/** Publishes weights that differ in every tensor. */
async function change(store: WeightStore, version: number): Promise<void> {
  const trainer = new Engine({ store });
  const ids = random(40, 77);
  await trainer.forward({ ids, cuSeqlens: Int32Array.of(0, 40) }, { keep: true });
  await trainer.backward({ dLogprobs: new Float32Array(40).fill(1) });
  await trainer.optimizerStep({ lr: 0.01, lineage: 0, version });
  await trainer.dispose();
}

t.test('nothing that was read under other weights is shared', async (t) => {
  const store = createStore();
  const engine = new Engine({ store, maxSequences: 2, maxSequenceTokens: 256 });
  t.teardown(() => engine.dispose());
  const prompt = random(150, 6);
  await generateOnce(engine, ask(prompt));
  t.equal((await generateOnce(engine, ask(prompt))).cachedTokens, 149);
  await change(store, 1);
  const fresh = await generateOnce(engine, ask(prompt));
  t.equal(fresh.cachedTokens, 0);
  t.same([...fresh.versions], new Array(8).fill(1));
  t.same([...fresh.logprobs], await trained(engine, joined(prompt, fresh.tokens), 8));
  t.equal((await generateOnce(engine, ask(prompt))).cachedTokens, 149);
});

t.test('new weights under way: the cache is kept, dropped after the turn, or recomputed at once', async (t) => {
  const prompt = random(70, 8);
  const play = async (cacheOnUpdate: CacheOnUpdate) => {
    const store = createStore();
    const engine = new Engine({ store, maxSequences: 2, maxSequenceTokens: 2000, cacheOnUpdate });
    const sequence = await engine.openSequence();
    // The listener hears tokens while the engine draws on, so how many are of the first version is open.
    let publish: Promise<void> | undefined;
    const first = await engine.generate(sequence, ask(prompt, 0, 1900), ({ version }) => {
      if (version === 0) publish ??= change(store, 1);
      else engine.abort(sequence);
    });
    await publish;
    const ids = joined(prompt, first.tokens);
    const at = first.versions.indexOf(1);
    t.ok(at > 0, `${cacheOnUpdate}: ${at} tokens of the first version, then ${first.tokens.length - at} of the second`);
    t.same([...first.versions], [...new Array(at).fill(0), ...new Array(first.tokens.length - at).fill(1)]);
    const before = engine.stats().rows;
    const second = await engine.generate(sequence, ask(random(5, 9), 1, 3));
    const rows = engine.stats().rows - before;
    const whole = joined(ids, random(5, 9), second.tokens);
    const now = await trained(engine, whole, whole.length - prompt.length);
    const exact = (from: number, logprobs: Float32Array): boolean => logprobs.every((lp, i) => Object.is(lp, now[from + i]));
    const result = {
      firstExact: exact(at, first.logprobs.subarray(at)),
      secondExact: exact(first.tokens.length + 5, second.logprobs),
      readAgain: rows > ids.length,
    };
    await engine.dispose();
    store.close();
    return result;
  };
  t.same(await play('kept'), { firstExact: false, secondExact: false, readAgain: false });
  t.same(await play('dropped'), { firstExact: false, secondExact: true, readAgain: true });
  t.same(await play('recomputed'), { firstExact: true, secondExact: true, readAgain: false });
});
