// The optimiser: AdamW's steps and what they are stored in, gradients that are changed before one, and continuing from files.
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { Engine, readModelConfig, WeightStore } from '../../kernels/index.ts';
import {
  createStore,
  denseModels,
  generateOnce,
  learnStep,
  maxDifference,
  packed,
  relativeError,
  temporaryFolder,
  tinyConfig,
} from './engine-support.ts';

const trainerScript = fileURLToPath(new URL('./fixtures/slot-trainer.ts', import.meta.url)).replace(/\.ts$/, '.js');

t.test('steps: the loss falls, the norm is clipped, decay spares norms and biases, versions are flips', async (t) => {
  const store = createStore({ initializer_range: 0.02 }, 7);
  const engine = new Engine({ store, threads: 2 });
  t.teardown(() => engine.dispose());
  const batch = packed([30, 30]);
  const losses: number[] = [];
  for (let step = 1; step <= 40; step++) {
    const { logprobs, version } = await engine.forward(batch, { keep: true });
    t.equal(version, step - 1);
    losses.push(-logprobs.reduce((a, b) => a + b, 0) / 58);
    await engine.backward({ dLogprobs: new Float32Array(60).fill(-1 / 58) });
    const { gradNorm } = await engine.optimizerStep({ lr: 1e-2, maxGradNorm: 1, weightDecay: 0.01, lineage: 0, version: step });
    t.ok(Number.isFinite(gradNorm) && gradNorm > 0);
  }
  t.ok(losses.at(-1)! < 0.3 * losses[0]!, `${losses[0]} -> ${losses.at(-1)}`);
  // Without gradients only decay moves anything (the moments decay too, so the engine is fresh).
  const still = new Engine({ store });
  t.teardown(() => still.dispose());
  const before = new Map([...withPin(store)].map(([name, x]) => [name, x.slice()]));
  await still.optimizerStep({ lr: 0.1, weightDecay: 0.5, lineage: 0, version: 41 });
  for (const x of store.layout.tensors) {
    const after = withPin(store).get(x.name)!;
    const wanted = before.get(x.name)!.map((p) => (x.decay ? p * (1 - 0.1 * 0.5) : p));
    t.ok(maxDifference(after, wanted) <= 1e-7, `${x.name} ${x.decay ? 'decays' : 'stays'}`);
  }
  await t.rejects(still.optimizerStep({ lr: 0.1, lineage: 0, version: 41 }), { code: 'SINKFLEX_STORE_ORDER' });
  t.equal(store.current()?.version, 41);
});

function withPin(store: WeightStore): Map<string, Float32Array> {
  const pin = store.pin();
  const copies = new Map([...store.tensors(pin)].map(([name, x]) => [name, x.data.slice()]));
  pin.release();
  return copies;
}

t.test('AdamW is the published formula', async (t) => {
  const store = createStore({}, 8);
  const engine = new Engine({ store });
  t.teardown(() => engine.dispose());
  const batch = packed([25]);
  const reference = new Map(
    [...withPin(store)].map(([name, p]) => [
      name,
      { p: Float64Array.from(p), m: new Float64Array(p.length), v: new Float64Array(p.length) },
    ]),
  );
  const o = { lr: 3e-3, beta1: 0.8, beta2: 0.95, eps: 1e-6, weightDecay: 0.1, maxGradNorm: 0.5 };
  for (let step = 1; step <= 3; step++) {
    await engine.forward(batch, { keep: true });
    await engine.backward({ dLogprobs: new Float32Array(25).fill(-1) });
    const gradients = engine.gradients();
    const { gradNorm } = await engine.optimizerStep({ ...o, lineage: 0, version: step });
    const norm = Math.sqrt([...gradients.values()].reduce((sum, g) => sum + g.reduce((s, x) => s + x * x, 0), 0));
    t.ok(Math.abs(gradNorm - norm) <= 1e-6 * norm, 'norm');
    const scale = Math.min(1, o.maxGradNorm / (norm + 1e-6));
    for (const x of store.layout.tensors) {
      const { p, m, v } = reference.get(x.name)!;
      for (let i = 0; i < p.length; i++) {
        const g = gradients.get(x.name)![i]! * scale;
        m[i] = o.beta1 * m[i]! + (1 - o.beta1) * g;
        v[i] = o.beta2 * v[i]! + (1 - o.beta2) * g * g;
        const update = m[i]! / (1 - o.beta1 ** step) / (Math.sqrt(v[i]! / (1 - o.beta2 ** step)) + o.eps);
        p[i] = p[i]! * (1 - (x.decay ? o.lr * o.weightDecay : 0)) - o.lr * update;
      }
    }
  }
  for (const [name, p] of withPin(store)) t.ok(relativeError(p, reference.get(name)!.p) <= 1e-5, name);
});

t.test('gradients that are not finite change nothing', async (t) => {
  const store = createStore();
  const engine = new Engine({ store });
  t.teardown(() => engine.dispose());
  await engine.forward(packed([12]), { keep: true });
  await engine.backward({ dLogprobs: new Float32Array(12).fill(Number.NaN) });
  await t.rejects(engine.optimizerStep({ lr: 1, lineage: 0, version: 1 }), { code: 'SINKFLEX_ENGINE_NOT_FINITE' });
  t.equal(store.current()?.version, 0);
  engine.zeroGradients();
  await engine.optimizerStep({ lr: 1, lineage: 0, version: 1 });
  t.equal(store.current()?.version, 1);
});

t.test('weights and moments from files continue bit for bit', async (t) => {
  const folder = temporaryFolder(t);
  const batch = packed([31, 8]);
  const train = async (engine: Engine, from: number, to: number): Promise<void> => {
    for (let step = from; step < to; step++) {
      await engine.forward(batch, { keep: true });
      await engine.backward({ dLogprobs: new Float32Array(39).fill(-0.1) });
      await engine.optimizerStep({ lr: 1e-2, weightDecay: 0.01, lineage: 0, version: step });
    }
  };
  const store = createStore({ vocab_size: 71 }, 9); // sizes that are no multiple of 16
  const engine = new Engine({ store });
  await train(engine, 1, 4);
  store.saveFolder(folder);
  await engine.saveOptimizer(join(folder, 'optimizer.safetensors'));
  await train(engine, 4, 7);

  const again = WeightStore.create(readModelConfig(folder));
  again.loadFolder(folder, { lineage: 0, version: 3 });
  const engine2 = new Engine({ store: again, threads: 2 });
  await engine2.loadOptimizer(join(folder, 'optimizer.safetensors'));
  await train(engine2, 4, 7);
  for (const [name, data] of withPin(store)) {
    t.equal(Buffer.compare(Buffer.from(data.buffer), Buffer.from(withPin(again).get(name)!.buffer)), 0, name);
  }
  const bytes = readFileSync(join(folder, 'optimizer.safetensors'));
  writeFileSync(join(folder, 'short.safetensors'), bytes.subarray(0, bytes.length - 100));
  await t.rejects(engine2.loadOptimizer(join(folder, 'short.safetensors')), { code: 'SINKFLEX_CHECKPOINT_CORRUPT' });
  await t.rejects(engine2.loadOptimizer(join(folder, 'model.safetensors')), { code: 'SINKFLEX_CHECKPOINT_TENSOR' });
  await t.rejects(engine2.loadOptimizer(join(folder, 'none')), { code: 'SINKFLEX_CHECKPOINT_MISSING' });
  await t.rejects(engine2.saveOptimizer(join(folder, 'no', 'where')), { code: 'SINKFLEX_OS_FAILED' });
  await Promise.all([engine.dispose(), engine2.dispose()]);
});

/** Repeats a few sequences that can be learnt by heart; the loss after so many steps, and the weights. */
async function learn(o: {
  dtype?: 'float32' | 'bfloat16';
  moments?: 'float32' | '8bit';
  seed?: number;
  threads?: number;
  steps?: number;
}): Promise<{ loss: number; image: Uint8Array }> {
  const config = tinyConfig({ hidden_size: 64, intermediate_size: 64, vocab_size: 80, initializer_range: 0.1 });
  const store = WeightStore.create(config, { dtype: o.dtype ?? 'float32' });
  store.initialise(3);
  const engine = new Engine({ store, threads: o.threads ?? 1, optimizer: { moments: o.moments ?? 'float32', seed: o.seed ?? 0 } });
  const batch = packed([40, 25, 31], 80);
  let loss = 0;
  for (let step = 1; step <= (o.steps ?? 60); step++) {
    const { logprobs } = await engine.forward(batch, { keep: true });
    loss = -logprobs.reduce((a, b) => a + b, 0) / 93;
    await engine.backward({ dLogprobs: new Float32Array(96).fill(-1 / 93) });
    await engine.optimizerStep({ lr: 3e-3, maxGradNorm: 1, lineage: 0, version: step });
  }
  await engine.dispose();
  const pin = store.pin();
  const image = pin.data.slice();
  pin.release();
  store.close();
  return { loss, image };
}

t.test('bfloat16 weights with stochastic rounding and 8-bit moments learn as float32 does, by seed alone', async (t) => {
  const plain = await learn({});
  t.ok(plain.loss < 0.5, `float32 learns: ${plain.loss}`);
  for (const o of [{ moments: '8bit' }, { dtype: 'bfloat16' }, { dtype: 'bfloat16', moments: '8bit' }] as const) {
    const { loss } = await learn(o);
    t.ok(loss < 1.25 * plain.loss + 0.05, `${JSON.stringify(o)}: ${loss} against ${plain.loss}`);
  }
  const o = { dtype: 'bfloat16', moments: '8bit', seed: 5, steps: 6 } as const;
  const one = await learn(o);
  t.equal(Buffer.compare((await learn({ ...o, threads: 3 })).image, one.image), 0, 'the threads change no bit');
  t.not(Buffer.compare((await learn({ ...o, seed: 6 })).image, one.image), 0, 'the seed does');
});

t.test('a bfloat16 store: generation is training, files are bfloat16, and 8-bit moments go on from theirs', async (t) => {
  const folder = temporaryFolder(t);
  const config = tinyConfig({ hidden_size: 64, intermediate_size: 64, vocab_size: 81 });
  const store = WeightStore.create(config, { dtype: 'bfloat16' });
  store.initialise(4);
  const optimizer = { moments: '8bit', seed: 2 } as const;
  const engine = new Engine({ store, threads: 2, optimizer });
  t.teardown(() => engine.dispose());
  const sampling = { maxNewTokens: 20, stopTokens: [], temperature: 1, key: [1, 2, 3, 4] } as const;
  const prompt = Int32Array.of(5, 7, 11);
  const drawn = await generateOnce(engine, { tokens: prompt, ...sampling, stopTokens: [] });
  const ids = Int32Array.of(...prompt, ...drawn.tokens);
  const { logprobs } = await engine.forward({ ids, cuSeqlens: Int32Array.of(0, ids.length) });
  t.same(logprobs.slice(3), drawn.logprobs, 'bit for bit');
  const batch = packed([31, 8], 81);
  const train = async (e: Engine, from: number, to: number): Promise<void> => {
    for (let step = from; step < to; step++) {
      await e.forward(batch, { keep: true });
      await e.backward({ dLogprobs: new Float32Array(39).fill(-0.1) });
      await e.optimizerStep({ lr: 1e-2, weightDecay: 0.01, lineage: 0, version: step });
    }
  };
  await train(engine, 1, 4);
  store.saveFolder(folder);
  t.match(JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')), { torch_dtype: 'bfloat16' });
  await engine.saveOptimizer(join(folder, 'optimizer.safetensors'));
  await train(engine, 4, 7);
  const again = WeightStore.create(readModelConfig(folder), { dtype: 'bfloat16' });
  again.loadFolder(folder, { lineage: 0, version: 3 });
  const resumed = new Engine({ store: again, optimizer });
  t.teardown(() => resumed.dispose());
  await resumed.loadOptimizer(join(folder, 'optimizer.safetensors'));
  await train(resumed, 4, 7);
  const [ours, theirs] = [store.pin(), again.pin()];
  t.equal(Buffer.compare(ours.data, theirs.data), 0, 'the same bits after going on');
  ours.release();
  theirs.release();
  const other = new Engine({ store: again });
  t.teardown(() => other.dispose());
  await t.rejects(other.loadOptimizer(join(folder, 'optimizer.safetensors')), {
    code: 'SINKFLEX_CHECKPOINT_TENSOR',
    message: /is U8 .*needed is F32/,
  });
  // What a bfloat16 store computes is what a float32 store of the same numbers does.
  const wide = WeightStore.create(config);
  wide.loadFolder(folder, { lineage: 0, version: 0 });
  const same = WeightStore.open({ ...again.address });
  same.loadFolder(folder, { lineage: 1, version: 0 });
  const [a, b] = [new Engine({ store: wide }), new Engine({ store: same })];
  t.same((await a.forward(batch)).logprobs, (await b.forward(batch)).logprobs);
  await Promise.all([a.dispose(), b.dispose()]);
});

t.test('gradients are changed in place before a step: trainers that share theirs stay the same to the bit', async (t) => {
  for (const over of [{ tie_word_embeddings: true }, ...Object.values(denseModels)]) {
    const [alone, one, other] = [0, 1, 2].map(() => {
      const store = createStore(over, 9);
      const engine = new Engine({ store });
      t.teardown(() => engine.dispose());
      return { store, engine };
    }) as [Held, Held, Held];
    const learn = async ({ engine }: Held, lengths: number[]): Promise<void> => {
      const batch = packed(lengths);
      await engine.forward(batch, { keep: true });
      await engine.backward({ dLogprobs: new Float32Array(batch.ids.length).fill(-0.1) });
    };
    for (let step = 1; step <= 3; step++) {
      await Promise.all([learn(one, [23]), learn(other, [40, 7])]);
      const [a, b] = [one.engine.flatGradients(), other.engine.flatGradients()];
      for (let i = 0; i < a.length; i++) a[i] = b[i] = a[i]! + b[i]!;
      if (step === 1) {
        await learn(alone, [23]);
        await learn(alone, [40, 7]);
        const summed = one.engine.gradients();
        for (const [name, g] of alone.engine.gradients()) t.ok(relativeError(summed.get(name)!, g) < 1e-5, name);
      }
      const norms = await Promise.all(
        [one, other].map(({ engine }) => engine.optimizerStep({ lr: 1e-3, maxGradNorm: 1, lineage: 0, version: step })),
      );
      t.same(norms[0], norms[1]);
      t.ok(
        a.every((x) => x === 0),
        'a step takes them',
      );
    }
    const [mine, theirs] = [one.store.pin(), other.store.pin()];
    t.equal(Buffer.compare(mine.data, theirs.data), 0);
    mine.release();
    theirs.release();
    const waiting = one.engine.forward(packed([50]));
    t.throws(() => one.engine.flatGradients(), { code: 'SINKFLEX_ENGINE_BUSY' });
    await waiting;
  }
});

for (const o of [{ moments: 'float32' }, { moments: '8bit', dtype: 'bfloat16' }] as const)
  t.test(`${o.moments} moments in the slots: a flip commits the whole state`, async (t) => {
    const config = tinyConfig({ hidden_size: 64, intermediate_size: 64 });
    const made = (options: Parameters<typeof WeightStore.create>[1]): WeightStore => {
      const store = WeightStore.create(config, options);
      store.initialise(4);
      t.teardown(() => store.close());
      return store;
    };
    /** Of the weights, after an engine has taken the steps up to `version`, and goes away without a word. */
    const weightsAt = async (store: WeightStore, version: number, optimizer: { moments?: 'float32' | '8bit' } = {}): Promise<Buffer> => {
      const engine = new Engine({ store, optimizer });
      for (let v = store.current()!.version + 1; v <= version; v++) await learnStep(engine, v);
      await engine.dispose();
      const pin = store.pin();
      const weights = Buffer.from(pin.data.slice(0, store.layout.totalBytes));
      pin.release();
      return weights;
    };
    const expected = async (version: number): Promise<Buffer> =>
      weightsAt(made(o.moments === '8bit' ? { dtype: o.dtype } : {}), version, { moments: o.moments });
    const store = made(o);

    const child = spawn(process.execPath, [trainerScript, JSON.stringify(store.address)], { stdio: ['ignore', 'pipe', 'inherit'] });
    for await (const line of createInterface({ input: child.stdout })) if (Number(line) >= 3) child.kill('SIGKILL');
    const { version } = store.current()!;
    t.ok(version >= 3, `killed at ${version}`);
    t.equal(Buffer.compare(await weightsAt(store, version + 2), await expected(version + 2)), 0, 'as if nothing had happened');

    const folder = temporaryFolder(t);
    const path = join(folder, 'optimizer.safetensors');
    const engine = new Engine({ store });
    t.teardown(() => engine.dispose());
    t.equal(engine.stats().optimizerBytes, 0);
    await engine.saveOptimizer(path);
    store.saveFolder(folder);
    const again = made(o);
    again.loadFolder(folder, { lineage: 0, version: version + 2 }, { optimizer: path });
    t.equal(Buffer.compare(await weightsAt(again, version + 4), await expected(version + 4)), 0, 'from files, too');
    again.loadFolder(folder, { lineage: 1, version: 0 });
    t.not(
      again
        .pin()
        .data.subarray(again.layout.totalBytes)
        .some((x) => x !== 0),
      'without a file moments begin anew',
    );

    await t.rejects(engine.loadOptimizer(path), { code: 'SINKFLEX_BAD_ARGUMENT', message: /loadFolder/ });
    t.throws(() => made({}).loadFolder(folder, undefined, { optimizer: path }), { code: 'SINKFLEX_BAD_ARGUMENT' });
    const other = o.moments === '8bit' ? 'float32' : '8bit';
    t.throws(() => new Engine({ store, optimizer: { moments: other } }), { code: 'SINKFLEX_BAD_ARGUMENT' });
  });

interface Held {
  store: WeightStore;
  engine: Engine;
}
