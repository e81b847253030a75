// Sampling against a plain reference: what is drawn from the reported distribution under every rule, stop strings wherever tokens end, and
// the expert choices of routing replay.
import fc from 'fast-check';
import t from 'tap';
import { Engine, type GenerateRequest, type GenerateResult } from '../../kernels/index.ts';
import { createStore, generateOnce } from './engine-support.ts';

const V = 67;
const store = createStore();
const engine = new Engine({ store, maxSequences: 8, maxSequenceTokens: 200 });
t.teardown(async () => {
  await engine.dispose();
  store.close();
});

/** Philox-4x32-10, the first 53 bits as a fraction. */
function uniform(key: readonly number[], position: number): number {
  let [k0, k1] = [key[0]! >>> 0, key[1]! >>> 0];
  let c = [key[2]! >>> 0, key[3]! >>> 0, position, 0];
  const wide = (a: number, b: number): [number, number] => {
    const product = BigInt(a) * BigInt(b);
    return [Number(product >> 32n), Number(product & 0xffffffffn)];
  };
  for (let round = 0; round < 10; round++) {
    const [ah, al] = wide(0xd2511f53, c[0]!);
    const [bh, bl] = wide(0xcd9e8d57, c[2]!);
    c = [(bh ^ c[1]! ^ k0) >>> 0, bl, (ah ^ c[3]! ^ k1) >>> 0, al];
    k0 = (k0 + 0x9e3779b9) >>> 0;
    k1 = (k1 + 0xbb67ae85) >>> 0;
  }
  return (c[0]! * 2 ** 21 + (c[1]! >>> 11)) / 2 ** 53;
}

/** The token that `r` draws at a position where every token has the scaled logit (up to a constant) `z`. */
function reference(r: GenerateRequest, before: readonly number[], drawn: readonly number[], z: Float64Array): number {
  const scale = r.temperature || 1;
  const edited = z.map((value, id) => {
    let x = value * scale + (r.logitBias?.get(id) ?? 0);
    const times = drawn.filter((token) => token === id).length;
    if (times > 0 || before.includes(id)) x = x > 0 ? x / (r.repetitionPenalty ?? 1) : x * (r.repetitionPenalty ?? 1);
    if (times > 0) x -= (r.presencePenalty ?? 0) + times * (r.frequencyPenalty ?? 0);
    if (drawn.length < (r.minTokens ?? 0) && r.stopTokens.includes(id)) x = Number.NEGATIVE_INFINITY;
    return x / scale;
  });
  let order = Array.from(edited.keys()).sort((a, b) => edited[b]! - edited[a]! || a - b);
  if (r.temperature === 0) return order[0]!;
  const largest = edited[order[0]!]!;
  const weight = (id: number): number => Math.exp(edited[id]! - largest);
  const sum = (ids: number[]): number => ids.reduce((total, id) => total + weight(id), 0);
  order = order.filter((id) => weight(id) >= (r.minP ?? 0));
  if (r.topK) order = order.slice(0, r.topK);
  const enough = (r.topP ?? 1) * sum(order);
  let [kept, nucleus] = [0, 0];
  while (kept < order.length && (kept === 0 || nucleus < enough)) nucleus += weight(order[kept++]!);
  const candidates = ((r.topP ?? 1) < 1 ? order.slice(0, kept) : order).sort((a, b) => a - b);
  let left = uniform(r.key, before.length + drawn.length) * sum(candidates);
  for (const id of candidates) {
    left -= weight(id);
    if (left < 0) return id;
  }
  return candidates.at(-1)!;
}

const rules = fc.record({
  tokens: fc.array(fc.nat(V - 1), { minLength: 1, maxLength: 12 }),
  temperature: fc.constantFrom(0, 0.6, 1, 1.7),
  topK: fc.constantFrom(0, 1, 5, 30),
  topP: fc.constantFrom(1, 0.9, 0.5, 0.01),
  minP: fc.constantFrom(0, 0.02, 0.3, 1),
  logitBias: fc.oneof(fc.constant(undefined), fc.array(fc.tuple(fc.nat(V - 1), fc.integer({ min: -100, max: 5 })), { maxLength: 5 })),
  presencePenalty: fc.constantFrom(0, 0, 0.7, -1),
  frequencyPenalty: fc.constantFrom(0, 0, 0.4),
  seed: fc.nat(1e6),
});

t.test('what is drawn is what the reference draws from the reported distribution', async (t) => {
  let compared = 0;
  await fc.assert(
    fc.asyncProperty(rules, async ({ tokens, logitBias, seed, ...rest }) => {
      const request: GenerateRequest = {
        ...rest,
        tokens: Int32Array.from(tokens),
        maxNewTokens: 10,
        stopTokens: [11, 12, 13],
        minTokens: seed % 4,
        key: [seed, 1, 2, 3],
        topLogprobs: V,
        ...(logitBias === undefined ? {} : { logitBias: new Map(logitBias) }),
      };
      const result = await generateOnce(engine, request);
      const drawn: number[] = [];
      for (const [i, token] of result.tokens.entries()) {
        const z = new Float64Array(V);
        const [ids, logprobs] = [result.topTokens!, result.topLogprobs!].map((all) => all.subarray(i * V, (i + 1) * V)) as [
          Int32Array,
          Float32Array,
        ];
        ids.forEach((id, j) => {
          z[id] = logprobs[j]!;
        });
        // Penalties of repetition act on logits, which log-probabilities are only up to a constant: tested by itself below.
        const expected = reference(request, tokens, drawn, z);
        if (expected !== token) throw new Error(`draw ${i}: ${token}, the reference draws ${expected}`);
        if (!Object.is(result.logprobs[i], logprobs[ids.indexOf(token)]))
          throw new Error('the log-probability is not that of the distribution');
        drawn.push(token);
        compared++;
      }
    }),
    { seed: 31, numRuns: 150 },
  );
  t.ok(compared > 500, `${compared} draws`);
});

t.test("alternatives are the training pass's log-probabilities, descending, ties to the lower id", async (t) => {
  const tokens = Int32Array.of(4, 8, 15);
  const { topTokens, topLogprobs } = await generateOnce(engine, {
    tokens,
    maxNewTokens: 1,
    stopTokens: [],
    temperature: 0.7,
    key: [1, 2, 3, 4],
    topLogprobs: V,
  });
  const ids = Int32Array.from(Array.from(topTokens!).flatMap((id) => [...tokens, id]));
  const { logprobs } = await engine.forward({ ids, cuSeqlens: Int32Array.from({ length: V + 1 }, (_, i) => 4 * i) }, { temperature: 0.7 });
  t.same(
    [...topLogprobs!],
    Array.from({ length: V }, (_, i) => logprobs[4 * i + 3]),
  );
  t.ok(topLogprobs!.every((lp, i) => i === 0 || lp <= topLogprobs![i - 1]!));
  const few: GenerateResult['topTokens'][] = [];
  const sequence = await engine.openSequence();
  const streamed = await engine.generate(
    sequence,
    { tokens, maxNewTokens: 5, stopTokens: [], temperature: 0.7, key: [1, 2, 3, 4], topLogprobs: 3 },
    (drawn) => few.push(drawn.topTokens),
  );
  engine.closeSequence(sequence);
  t.same([...few[0]!], [...topTokens!.subarray(0, 3)]);
  t.same(
    few.flatMap((three) => [...three!]),
    [...streamed.topTokens!],
  );
});

t.test('repetition is left alone unless asked, and then bent by each kind of penalty', async (t) => {
  const ask: GenerateRequest = { tokens: Int32Array.of(1, 2, 3), maxNewTokens: 40, stopTokens: [], temperature: 0, key: [0, 0, 0, 0] };
  const plain = await generateOnce(engine, ask);
  for (const penalty of [{ presencePenalty: 100 }, { frequencyPenalty: 100 }, { repetitionPenalty: 50 }]) {
    const bent = await generateOnce(engine, { ...ask, ...penalty });
    t.ok(new Set(bent.tokens).size > new Set(plain.tokens).size, JSON.stringify(penalty));
    const ids = Int32Array.from([...ask.tokens, ...bent.tokens]);
    const { logprobs } = await engine.forward({ ids, cuSeqlens: Int32Array.of(0, ids.length) });
    t.same([...bent.logprobs], [...logprobs.subarray(3)], 'the log-probabilities are of the distribution before');
  }
  const without = await generateOnce(engine, { ...ask, presencePenalty: 0, repetitionPenalty: 1 });
  t.same([...without.tokens], [...plain.tokens]);
});

t.test('stop strings are found in bytes, wherever tokens begin and end', async (t) => {
  // Token i says one to three bytes out of two, so that stops lie across tokens; every ninth says nothing.
  const words = Array.from({ length: V }, (_, i) =>
    i % 9 === 8 ? [] : Array.from({ length: 1 + (i % 3) }, (_, j) => 0xe0 + ((i >> j) & 1)),
  );
  const offsets = Int32Array.from([0, ...words.map((_, i) => words.slice(0, i + 1).flat().length)]);
  const request = (key: number, o: Partial<GenerateRequest> = {}): GenerateRequest => ({
    tokens: Int32Array.of(1),
    maxNewTokens: 60,
    stopTokens: [],
    temperature: 1.5,
    key: [key, 0, 0, 0],
    ...o,
  });
  const naive = new Engine({ store });
  await t.rejects(generateOnce(naive, request(1, { stopStrings: [Uint8Array.of(1)] })), {
    code: 'SINKFLEX_BAD_ARGUMENT',
    message: /setTokenBytes/,
  });
  await naive.dispose();
  engine.setTokenBytes({ bytes: Uint8Array.from(words.flat()), offsets });
  await t.rejects(generateOnce(engine, request(1, { stopStrings: [new Uint8Array(0)] })), { code: 'SINKFLEX_BAD_ARGUMENT' });
  const stop = fc.array(fc.constantFrom(0xe0, 0xe1), { minLength: 1, maxLength: 9 });
  let [stopped, across] = [0, 0];
  await fc.assert(
    fc.asyncProperty(fc.nat(1000), fc.array(stop, { minLength: 1, maxLength: 3 }), async (key, stops) => {
      const all = await generateOnce(engine, request(key));
      const cut = await generateOnce(engine, request(key, { stopStrings: stops.map((s) => Uint8Array.from(s)) }));
      let said = '';
      let count = 0;
      const texts = stops.map((s) => String.fromCharCode(...s));
      while (count < all.tokens.length && !texts.some((text) => said.includes(text)))
        said += String.fromCharCode(...words[all.tokens[count++]!]!);
      if (cut.tokens.join() !== all.tokens.subarray(0, count).join()) throw new Error(`${cut.tokens.length} tokens, expected ${count}`);
      const ends = texts.map((text) => (said.includes(text) ? said.indexOf(text) + text.length : Number.POSITIVE_INFINITY));
      const first = Math.min(...ends);
      if (first === Number.POSITIVE_INFINITY) {
        if (cut.stopString !== undefined || cut.stopReason !== 'length') throw new Error('stopped without a stop');
        return;
      }
      stopped++;
      if (texts[cut.stopString!]!.length > words[all.tokens[count - 1]!]!.length) across++;
      if (cut.stopReason !== 'stop' || ends[cut.stopString!] !== first) throw new Error('another stop was complete before');
    }),
    { seed: 8, numRuns: 150 },
  );
  t.ok(stopped > 60 && across > 30, `${stopped} stopped, ${across} across tokens`);
});

t.test('mistakes are typed errors', async (t) => {
  const ask: GenerateRequest = { tokens: Int32Array.of(1), maxNewTokens: 1, stopTokens: [], temperature: 1, key: [0, 0, 0, 0] };
  for (const [wrong, message] of [
    [{ minP: 1.5 }, /minP must be from 0 to 1/],
    [{ minP: Number.NaN }, /minP/],
    [{ topLogprobs: V + 1 }, /topLogprobs/],
    [{ minTokens: -1 }, /minTokens/],
    [{ logitBias: new Map([[V, 1]]) }, /logitBias\[0\] = 67/],
    [{ logitBias: new Map([[1, Number.NaN]]) }, /logitBias/],
    [{ repetitionPenalty: 0 }, /repetitionPenalty/],
    [{ presencePenalty: Number.POSITIVE_INFINITY }, /presencePenalty/],
  ] as [Partial<GenerateRequest>, RegExp][])
    await t.rejects(generateOnce(engine, { ...ask, ...wrong }), { code: 'SINKFLEX_BAD_ARGUMENT', message });
});

t.test('expert choices are recorded for all that was read, shared or not', async (t) => {
  const recording = new Engine({
    store,
    maxSequences: 4,
    maxSequenceTokens: 300,
    recordExperts: true,
    maxNumBatchedTokens: 30,
    cacheTokens: 320,
  });
  t.teardown(() => recording.dispose());
  const prompt = Int32Array.from({ length: 90 }, (_, i) => (i * 5) % V);
  const ask: GenerateRequest = { tokens: prompt, maxNewTokens: 20, stopTokens: [], temperature: 1, key: [1, 2, 3, 4] };
  const each = 2 * 2; // layers, experts a token
  const first = await generateOnce(recording, ask);
  t.equal(first.experts!.length, (90 + 19) * each);
  t.ok(first.experts! instanceof Uint8Array && first.experts.every((expert) => expert < 3));
  for (let i = 0; i < first.experts!.length; i += 2) if (first.experts![i] === first.experts![i + 1]) t.fail('an expert twice for a token');
  const others = await Promise.all([1, 2, 3].map((sample) => generateOnce(recording, { ...ask, key: [1, 2, sample, 4] })));
  for (const other of others)
    t.same(other.experts!.subarray(0, 90 * each), first.experts!.subarray(0, 90 * each), 'of tokens that another has read');
  const sequence = await recording.openSequence();
  const one = await recording.generate(sequence, ask);
  const two = await recording.generate(sequence, { ...ask, tokens: Int32Array.of(7, 8), key: [1, 2, 3, 5] });
  recording.closeSequence(sequence);
  t.equal(one.experts!.length + two.experts!.length, (90 + 20 + 2 + 19) * each, 'turn after turn, all tokens but the last');
  const again = await generateOnce(recording, { ...ask, tokens: Int32Array.from([...prompt, ...one.tokens, 7, 8]), key: [1, 2, 3, 5] });
  t.same([...again.experts!], [...one.experts!, ...two.experts!]);
  t.equal((await generateOnce(engine, ask)).experts, undefined);
});

t.test('routing replay: the training pass goes where generation went, and learns from it', async (t) => {
  const recording = new Engine({ store, maxSequences: 2, maxSequenceTokens: 200, recordExperts: true });
  t.teardown(() => recording.dispose());
  const ask: GenerateRequest = {
    tokens: Int32Array.of(3, 1, 4, 1, 5, 9),
    maxNewTokens: 30,
    stopTokens: [],
    temperature: 1,
    key: [4, 3, 2, 1],
  };
  const { tokens, logprobs, experts } = await generateOnce(recording, ask);
  const ids = Int32Array.from([...ask.tokens, ...tokens]);
  const batch = { ids, cuSeqlens: Int32Array.of(0, ids.length) };
  const all = new Uint8Array(ids.length * 4).fill(255);
  all.set(experts!);
  const replayed = await recording.forward(batch, { experts: all });
  t.same([...replayed.logprobs.subarray(6)], [...logprobs], 'bit for bit what was drawn');
  const free = await recording.forward(batch);
  t.same(
    [...(await recording.forward(batch, { experts: new Uint8Array(all.length).fill(255) })).logprobs],
    [...free.logprobs],
    'unknown: the router chooses',
  );

  // Other experts give another function with another gradient.
  const swapped = Uint16Array.from(all, (expert, i) => (expert === 255 ? 65535 : i % 2 === 0 ? (all[i + 1]! === 0 ? 1 : 0) : all[i]!));
  const gradient = async (experts: Uint8Array | Uint16Array, checkpointing: boolean): Promise<Float32Array> => {
    await recording.forward(batch, { experts, keep: true, checkpointing });
    await recording.backward({ dLogprobs: new Float32Array(ids.length).fill(1) });
    const router = recording.gradients().get('model.layers.0.mlp.router.weight')!;
    recording.zeroGradients();
    return router;
  };
  t.notSame([...(await recording.forward(batch, { experts: swapped })).logprobs], [...free.logprobs]);
  t.same(await gradient(all, false), await gradient(new Uint8Array(all.length).fill(255), false), 'the same routes, the same gradient');
  const other = await gradient(swapped, false);
  t.notSame(other, await gradient(all, false));
  t.same(await gradient(swapped, true), other, 'with activation checkpointing too');

  const bad = { code: 'SINKFLEX_BAD_ARGUMENT' };
  await t.rejects(recording.forward(batch, { experts: new Uint8Array(3) }), { ...bad, message: /as long as/ });
  await t.rejects(recording.forward(batch, { experts: new Uint8Array(all.length).fill(3) }), { ...bad, message: /below 3/ });
  await t.rejects(recording.forward(batch, { experts: new Uint8Array(all.length) }), { ...bad, message: /different ids/ });
});
