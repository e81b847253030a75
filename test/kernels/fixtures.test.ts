// The golden checkpoints: whatever folders there are under expected/, each against its float64 numbers (rounded to float32; checked against
// transformers when they were made), within the tolerances that the files' README states, and bit for bit against itself.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { Engine, readModelConfig, WeightStore } from '../../kernels/index.ts';
import {
  fingerprint,
  fixtures,
  generateOnce,
  integers,
  maxDifference,
  readTensors,
  relativeError,
  type Tensors,
  temporaryFolder,
} from './engine-support.ts';

type Prints = Record<string, [norm: number, sum: number]>;
interface ModelCase {
  /** The checkpoint, from the fixtures' folder. */
  model?: string;
  prefix?: number;
  single?: { loss_ce: number };
  packed?: { loss: number; grad_fingerprint: Prints };
  /** transformers' load-balancing loss of the single case; fingerprints of d(cross entropy + 0.5 of it). */
  aux?: { load_balancing_loss: number; grad_fingerprint: Prints };
}

const root = fixtures ?? '';
const folders = (path: string): string[] =>
  existsSync(path)
    ? readdirSync(path, { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map((entry) => entry.name)
        .sort()
    : [];
const cases = fixtures === undefined ? [] : folders(join(root, 'expected'));

t.test('there are golden models', { skip: fixtures ? false : 'golden files are not here: set SINKFLEX_FIXTURES' }, (t) => {
  t.ok(cases.length > 0 || readdirSync(root).length > 0, `something to hold ourselves against in ${root}`);
  const expected = new Set(cases.map((name) => basename(modelCase(name).model ?? name)));
  for (const model of folders(join(root, 'models'))) t.ok(expected.has(model), `there are numbers for the checkpoint ${model}`);
  t.end();
});

function modelCase(name: string): ModelCase {
  const path = join(root, 'expected', name, 'case.json');
  return existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as ModelCase) : {};
}

/** Sequences in one batch. */
function packed(sequences: readonly (readonly number[] | Int32Array)[]): { ids: Int32Array; cuSeqlens: Int32Array } {
  const cuSeqlens = new Int32Array(sequences.length + 1);
  for (const [i, s] of sequences.entries()) cuSeqlens[i + 1] = cuSeqlens[i]! + s.length;
  return { ids: Int32Array.from(sequences.flatMap((s) => [...s])), cuSeqlens };
}

for (const name of cases) {
  t.test(`the checkpoint ${name} gives the golden numbers`, async (t) => {
    const golden = modelCase(name);
    const folder = join(root, golden.model ?? join('models', name));
    const io = readTensors(join(root, 'expected', name, 'io.safetensors'));
    const get = (key: string): Float32Array => io.get(key)!.data;
    const has = (...keys: string[]): boolean => keys.every((key) => io.has(key));
    const store = WeightStore.create(readModelConfig(folder));
    t.teardown(() => store.close());
    store.loadFolder(folder);
    const attentionPrefix = golden.prefix ?? 0;
    const longest = [...io].reduce((most, [key, { data }]) => (/ids$/.test(key) ? Math.max(most, data.length) : most), 32);
    const engine = new Engine({ store, threads: 2, maxSequences: 4, maxSequenceTokens: 2 * longest + 64, attentionPrefix });
    t.teardown(() => engine.dispose());

    await t.test('log-probabilities and entropies of one sequence', { skip: !has('input_ids', 'logprobs') }, async (t) => {
      const ids = integers(get('input_ids'));
      const { logprobs, entropy } = await engine.forward({ ids, cuSeqlens: Int32Array.of(0, ids.length) });
      t.equal(logprobs[0], 0);
      t.ok(maxDifference(logprobs.subarray(1), get('logprobs')) <= 2e-4, 'log-probabilities');
      if (has('entropy')) t.ok(maxDifference(entropy.subarray(1), get('entropy').subarray(0, ids.length - 1)) <= 2e-4, 'entropies');
      if (golden.single) {
        const loss = -logprobs.reduce((sum, x) => sum + x, 0) / (ids.length - 1);
        t.ok(Math.abs(loss - golden.single.loss_ce) <= 2e-4, `loss ${loss}`);
      }
    });

    await t.test('logits of every token, over the whole vocabulary', { skip: !has('input_ids', 'logits') }, async (t) => {
      const pin = store.pin();
      const tensors = store.tensors(pin);
      const head = tensors.get('lm_head.weight') ?? tensors.get('model.embed_tokens.weight')!;
      const states = await statesOf(store, integers(get('input_ids')), attentionPrefix);
      const logits = products(states, head.data, store.config.hidden_size);
      pin.release();
      t.ok(maxDifference(logits, get('logits')) <= 2e-4);
      if (!has('entropy')) return;
      const last = logits.slice(-store.config.vocab_size);
      const sum = last.reduce((total, x) => total + Math.exp(x), 0);
      const entropy = Math.log(sum) - last.reduce((total, x) => total + x * Math.exp(x), 0) / sum;
      t.ok(Math.abs(entropy - get('entropy').at(-1)!) <= 2e-4, 'entropy after the last token');
    });

    await t.test('logits of the routers of every layer', { skip: !has('input_ids', 'router_logits') }, async (t) => {
      const { num_hidden_layers, num_local_experts: experts, hidden_size } = store.config;
      const ids = integers(get('input_ids'));
      for (let layer = 0; layer < num_hidden_layers; layer++) {
        const cut = cutBeforeRouter(store, layer);
        const states = await statesOf(cut.store, ids, attentionPrefix);
        const expected = get('router_logits').subarray(layer * ids.length * experts, (layer + 1) * ids.length * experts);
        t.ok(maxDifference(products(states, cut.router, hidden_size, cut.bias), expected) <= 2e-4, `layer ${layer}`);
        cut.store.close();
      }
    });

    const gradientFile = join(root, 'expected', name, 'grads.safetensors');
    await t.test('gradients of the mean cross entropy', { skip: !existsSync(gradientFile) }, async (t) => {
      const ids = integers(get('input_ids'));
      engine.zeroGradients();
      await engine.forward({ ids, cuSeqlens: Int32Array.of(0, ids.length) }, { keep: true });
      await engine.backward({ dLogprobs: new Float32Array(ids.length).fill(-1 / (ids.length - 1)) });
      const gradients = engine.gradients();
      const expected = readTensors(gradientFile);
      t.same([...gradients.keys()].sort(), [...expected.keys()].sort(), 'the same parameters');
      for (const [tensor, { data }] of expected) {
        const error = relativeError(gradients.get(tensor) ?? [], data);
        t.ok(error <= 2e-4, `${tensor} (${error.toExponential(1)})`);
      }
    });

    await t.test("the router's load-balancing loss and its gradients", { skip: !golden.aux || !has('input_ids') }, async (t) => {
      const ids = integers(get('input_ids'));
      for (const checkpointing of [false, true]) {
        engine.zeroGradients();
        const { routerAuxLoss } = await engine.forward({ ids, cuSeqlens: Int32Array.of(0, ids.length) }, { keep: true, checkpointing });
        const expected = golden.aux!.load_balancing_loss;
        t.ok(Math.abs(routerAuxLoss - expected) <= 1e-5 * expected, `${routerAuxLoss}, golden ${expected}`);
        await engine.backward({ dLogprobs: new Float32Array(ids.length).fill(-1 / (ids.length - 1)), dRouterAuxLoss: 0.5 });
        const gradients = engine.gradients();
        for (const [tensor, [norm, sum]] of Object.entries(golden.aux!.grad_fingerprint)) {
          const [ourNorm, ourSum] = fingerprint(gradients.get(tensor) ?? []);
          t.ok(Math.abs(ourNorm - norm) <= 2e-4 * norm + 1e-6 && Math.abs(ourSum - sum) <= 1e-3 * norm + 1e-5, tensor);
        }
      }
    });

    await t.test('packed sequences with weights', { skip: !has('packed_ids', 'packed_cu_seqlens', 'packed_weights') }, async (t) => {
      const [ids, cuSeqlens, weights] = [integers(get('packed_ids')), integers(get('packed_cu_seqlens')), get('packed_weights')];
      engine.zeroGradients();
      const { logprobs, entropy } = await engine.forward({ ids, cuSeqlens }, { keep: true });
      t.ok(maxDifference(logprobs, get('packed_logprobs')) <= 2e-4, 'log-probabilities');
      await engine.backward({ dLogprobs: weights.map((w) => -w) });
      const gradients = engine.gradients();
      if (golden.packed) {
        const loss = -logprobs.reduce((sum, lp, i) => sum + lp * weights[i]!, 0);
        t.ok(Math.abs(loss - golden.packed.loss) <= 2e-4 * weights.reduce((sum, w) => sum + Math.abs(w), 1), `loss ${loss}`);
        for (const [tensor, [norm, sum]] of Object.entries(golden.packed.grad_fingerprint)) {
          const [ourNorm, ourSum] = fingerprint(gradients.get(tensor) ?? []);
          t.ok(Math.abs(ourNorm - norm) <= 2e-4 * norm + 1e-6 && Math.abs(ourSum - sum) <= 1e-3 * norm + 1e-5, tensor);
        }
      }
      // The same segments, one pass each: packed is unpacked, bit for bit, and so are the gradients that add up over passes.
      engine.zeroGradients();
      for (let s = 0; s + 1 < cuSeqlens.length; s++) {
        const [from, to] = [cuSeqlens[s]!, cuSeqlens[s + 1]!];
        if (from === to) continue;
        const alone = await engine.forward({ ids: ids.subarray(from, to), cuSeqlens: Int32Array.of(0, to - from) }, { keep: true });
        t.same(alone.logprobs, logprobs.slice(from, to), `segment ${s} alone`);
        t.same(alone.entropy, entropy.slice(from, to), `entropies of segment ${s} alone`);
        await engine.backward({ dLogprobs: weights.slice(from, to).map((w) => -w) });
      }
      for (const [tensor, data] of engine.gradients()) t.same(data, gradients.get(tensor), `${tensor}, one segment at a time`);
    });

    await t.test('greedy decoding with the cache', { skip: !has('prompt_ids', 'greedy_ids') }, async (t) => {
      const [prompt, wanted] = [integers(get('prompt_ids')), integers(get('greedy_ids'))];
      const request = { tokens: prompt, maxNewTokens: wanted.length, stopTokens: [], temperature: 0, key: [0, 0, 0, 0] } as const;
      const result = await generateOnce(engine, { ...request, stopTokens: [] });
      t.same([...result.tokens], [...wanted]);
      if (has('greedy_logprobs')) t.ok(maxDifference(result.logprobs, get('greedy_logprobs')) <= 2e-4, 'log-probabilities');
      t.equal(result.stopReason, 'length');
    });

    await t.test('generation and training agree bit for bit, in any company and chunks', (t) => agreement(t, store, io, attentionPrefix));

    const stored = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as { quantization_config?: { quant_method: string } };
    const inMxfp4 = stored.quantization_config?.quant_method === 'mxfp4' && has('input_ids');
    await t.test('experts kept in MXFP4 give the bits of bfloat16', { skip: !inMxfp4 }, async (t) => {
      const ids = integers(get('input_ids'));
      const results = [];
      for (const dtype of ['mxfp4', 'bfloat16'] as const) {
        const frozen = WeightStore.create(readModelConfig(folder), { slots: 1, dtype });
        frozen.loadFolder(folder);
        const scorer = new Engine({ store: frozen, attentionPrefix });
        results.push((await scorer.forward({ ids, cuSeqlens: Int32Array.of(0, ids.length) })).logprobs);
        await scorer.dispose();
        frozen.close();
      }
      t.same(results[0], results[1]);
    });

    await t.test('saved and read again, it is the same model', (t) => {
      const saved = temporaryFolder(t);
      store.saveFolder(saved);
      const again = WeightStore.create(readModelConfig(saved));
      t.teardown(() => again.close());
      again.loadFolder(saved);
      t.same(again.config, { ...store.config });
      const [ours, theirs] = [store.pin(), again.pin()];
      const copies = again.tensors(theirs);
      for (const [tensor, { data }] of store.tensors(ours)) t.same(copies.get(tensor)!.data, data, tensor);
      ours.release();
      theirs.release();
      t.end();
    });
  });
}

/** Each token's state after the final norm: that of the last token of every beginning of the sequence, all in one batch. */
async function statesOf(store: WeightStore, ids: Int32Array, attentionPrefix: number): Promise<Float32Array> {
  const engine = new Engine({ store, threads: 2, attentionPrefix });
  try {
    const beginnings = packed(Array.from(ids, (_, i) => ids.subarray(0, i + 1)));
    return (await engine.forward(beginnings, { mask: new Uint8Array(beginnings.ids.length), hidden: true })).hidden!;
  } finally {
    await engine.dispose();
  }
}

/** states w^T + bias, sums in float64. */
function products(states: Float32Array, w: Float32Array, width: number, bias?: Float32Array): Float64Array {
  const outputs = w.length / width;
  return Float64Array.from({ length: (states.length / width) * outputs }, (_, at) => {
    const [row, output] = [Math.floor(at / outputs), at % outputs];
    let sum = bias?.[output] ?? 0;
    for (let i = 0; i < width; i++) sum += states[row * width + i]! * w[output * width + i]!;
    return sum;
  });
}

/** The model up to a layer's router, as a model whose final state is what that router reads: the layer's experts say nothing. */
function cutBeforeRouter(from: WeightStore, layer: number): { store: WeightStore; router: Float32Array; bias: Float32Array } {
  const layers = layer + 1;
  const store = WeightStore.create({ ...from.config, num_hidden_layers: layers, layer_types: from.config.layer_types.slice(0, layers) });
  const own = `model.layers.${layer}`;
  const pin = from.pin();
  const tensors = from.tensors(pin);
  const writing = store.segment.beginWriteNow();
  writing.data.set(store.layout.header);
  for (const { name, offset, count } of store.layout.tensors) {
    const to = new Float32Array(writing.data.buffer, writing.data.byteOffset + store.layout.dataStart + offset, count);
    if (name.startsWith(`${own}.mlp.experts.down_proj`)) to.fill(0);
    else to.set(tensors.get(name === 'model.norm.weight' ? `${own}.post_attention_layernorm.weight` : name)!.data);
  }
  writing.publish({ lineage: 0, version: 0 });
  const [router, bias] = [`${own}.mlp.router.weight`, `${own}.mlp.router.bias`].map((name) => tensors.get(name)!.data.slice());
  pin.release();
  return { store, router: router!, bias: bias! };
}

/** Prompts cut from the golden ids, generated in random company and chunks, and read again in batches of another make-up. */
async function agreement(t: Test, store: WeightStore, io: Tensors, attentionPrefix: number): Promise<void> {
  const pool = [...io].filter(([key]) => /(^|_)ids$/.test(key)).flatMap(([, { data }]) => [...integers(data)]);
  let compared = 0;
  const prompt = fc.record({
    from: fc.nat(pool.length - 1),
    length: fc.integer({ min: 1, max: 60 }),
    temperature: fc.constantFrom(0, 0.6, 1),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.record({
        prompts: fc.array(prompt, { minLength: 1, maxLength: 7 }),
        threads: fc.constantFrom(1, 2, 3),
        maxSequences: fc.constantFrom(1, 2, 8),
        rows: fc.constantFrom(0, 1, 6, 63, 256),
        prefixCaching: fc.boolean(),
        batch: fc.array(fc.nat(2), { minLength: 7, maxLength: 7 }),
      }),
      async (s) => {
        const { threads, maxSequences, prefixCaching } = s;
        const maxNumBatchedTokens = maxSequences + s.rows;
        const engine = new Engine({
          store,
          threads,
          maxSequences,
          maxSequenceTokens: 128,
          maxNumBatchedTokens,
          prefixCaching,
          attentionPrefix,
        });
        try {
          const texts = await Promise.all(
            s.prompts.map(async ({ from, length, temperature }, i) => {
              const tokens = Int32Array.from({ length }, (_, j) => pool[(from + j) % pool.length]!);
              const key = [3, i, from, 0] as const;
              const drawn = await generateOnce(engine, { tokens, maxNewTokens: 12, stopTokens: [], temperature, key });
              return { temperature, start: length, logprobs: drawn.logprobs, ids: [...tokens, ...drawn.tokens] };
            }),
          );
          for (const temperature of [0.6, 1])
            for (let batch = 0; batch < 3; batch++) {
              const chosen = texts.filter((text, i) => s.batch[i] === batch && (text.temperature || 1) === temperature);
              if (chosen.length === 0) continue;
              const input = packed(chosen.map(({ ids }) => ids));
              const { logprobs } = await engine.forward(input, { temperature });
              for (const [i, text] of chosen.entries()) {
                const ours = logprobs.subarray(input.cuSeqlens[i]! + text.start, input.cuSeqlens[i + 1]!);
                if (ours.some((x, j) => !Object.is(x, text.logprobs[j])) || ours.length !== text.logprobs.length)
                  throw new Error(`training read ${ours}, generation drew ${text.logprobs}`);
                compared += ours.length;
              }
            }
        } finally {
          await engine.dispose();
        }
      },
    ),
    { numRuns: Number(process.env.SINKFLEX_TEST_RUNS ?? 12), seed: 6 },
  );
  t.ok(compared > 100, `${compared} log-probabilities`);
}
