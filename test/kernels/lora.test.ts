// LoRA: a fresh adapter changes nothing, gradients against finite differences, generation equal to training bit for bit, PEFT folders and merging.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { Engine, parseLora, WeightStore } from '../../kernels/index.ts';
import { createStore, denseModels, generateOnce, maxDifference, temporaryFolder, tinyConfig } from './engine-support.ts';

const batch = {
  ids: Int32Array.from({ length: 36 }, (_, i) => (i * 31 + 7) % 67),
  cuSeqlens: Int32Array.from([0, 13, 14, 36]),
};
const dLogprobs = Float32Array.from(batch.ids, (_, i) => Math.sin(i + 1));
const lora = { r: 3, lora_alpha: 7, target_modules: 'all-linear' };
const cases: [title: string, over: object, modules: string[]][] = [
  ...Object.entries({ ...denseModels, gpt_oss: {} }).map(([title, over]): [string, object, string[]] => [title, over, ['all-linear']]),
  ['gpt_oss and its experts', {}, ['all-linear', 'experts']],
  ['the first product of the experts', { num_experts_per_tok: 1 }, ['mlp.experts.gate_up_proj']],
  ['the second, with 2 I = h', { intermediate_size: 12, num_experts_per_tok: 3 }, ['mlp.experts.down_proj']],
];

async function change(store: WeightStore, version: number, edit: (name: string, data: Float32Array) => void): Promise<void> {
  const pin = store.pin();
  const image = pin.data.slice();
  pin.release();
  const writing = await store.segment.beginWrite();
  writing.data.set(image);
  for (const x of store.layout.tensors)
    edit(x.name, new Float32Array(writing.data.buffer, writing.data.byteOffset + store.layout.dataStart + x.offset, x.count));
  writing.publish({ lineage: 0, version });
}
/** B is zero in a fresh adapter, so that A would have no gradient. */
const stir = (store: WeightStore, version: number): Promise<void> =>
  change(store, version, (name, data) => {
    if (name.includes('lora_B')) for (let i = 0; i < data.length; i++) data[i] = 0.1 * Math.sin(3 * i + name.length);
  });

const bits = (x: Float32Array): string => Buffer.from(x.buffer, x.byteOffset, x.byteLength).toString('base64');

for (const [title, over, target_modules] of cases) {
  t.test(title, async (t) => {
    const base = createStore(over, 21);
    const store = WeightStore.createAdapter(base, { ...lora, target_modules });
    store.initialise(4);
    const plain = new Engine({ store: base });
    const engine = new Engine({ store, threads: 2 });
    t.teardown(async () => {
      await Promise.all([plain.dispose(), engine.dispose()]);
      store.close();
    });
    t.ok(store.layout.dataBytes < base.layout.dataBytes, 'a version is the adapters alone');
    const without = await plain.forward(batch);
    t.equal(bits((await engine.forward(batch)).logprobs), bits(without.logprobs), 'a fresh adapter is nothing');
    await stir(store, 1);
    const { logprobs } = await engine.forward(batch, { keep: true });
    t.not(bits(logprobs), bits(without.logprobs));
    await engine.backward({ dLogprobs });
    const gradients = engine.gradients();
    t.equal(gradients.size, store.layout.tensors.length, 'nothing of the base has a gradient');
    engine.zeroGradients();
    await engine.forward(batch, { keep: true, checkpointing: true });
    await engine.backward({ dLogprobs });
    for (const [name, g] of engine.gradients()) t.equal(bits(g), bits(gradients.get(name)!), `checkpointed ${name}`);
    const alone = new Engine({ store });
    for (const [from, to] of [
      [0, 1],
      [1, 3],
    ] as const) {
      const [a, b] = [batch.cuSeqlens[from]!, batch.cuSeqlens[to]!];
      await alone.forward({ ids: batch.ids.slice(a, b), cuSeqlens: batch.cuSeqlens.slice(from, to + 1).map((c) => c - a) }, { keep: true });
      await alone.backward({ dLogprobs: dLogprobs.slice(a, b) });
    }
    for (const [name, g] of alone.gradients()) t.equal(bits(g), bits(gradients.get(name)!), `one thread, two passes: ${name}`);
    await alone.dispose();

    let version = 1;
    const loss = async (): Promise<number> => (await engine.forward(batch)).logprobs.reduce((sum, lp, i) => sum + lp * dLogprobs[i]!, 0);
    for (const [name, g] of gradients) {
      const norm = Math.sqrt(g.reduce((sum, x) => sum + x * x, 0));
      t.ok(norm > 0, name);
      const errors: number[] = [];
      for (const step of [4e-3, 1e-3]) {
        const at = async (by: number): Promise<number> => {
          await change(store, ++version, (n, data) => {
            if (n === name) for (let i = 0; i < g.length; i++) data[i]! += (by * g[i]!) / norm;
          });
          return loss();
        };
        const [up, down] = [await at(step), await at(-2 * step)];
        await at(step);
        errors.push(Math.abs((up - down) / (2 * step) - norm));
      }
      t.ok(Math.min(...errors) <= 0.01 * norm + 0.004, `${name}: ${norm}, off by ${errors}`);
    }

    const generated = await generateOnce(engine, {
      tokens: batch.ids.slice(0, 5),
      maxNewTokens: 12,
      stopTokens: [],
      temperature: 0.9,
      key: [1, 2, 3, 4],
    });
    const ids = Int32Array.from([...batch.ids.slice(0, 5), ...generated.tokens]);
    const again = await engine.forward({ ids, cuSeqlens: Int32Array.from([0, ids.length]) }, { temperature: 0.9 });
    t.equal(bits(generated.logprobs), bits(again.logprobs.slice(5)), 'generation and training agree bit for bit');

    const folder = temporaryFolder(t);
    store.saveFolder(join(folder, 'adapter'));
    store.saveMerged(join(folder, 'merged'));
    const json = JSON.parse(readFileSync(join(folder, 'adapter', 'adapter_config.json'), 'utf8')) as Record<string, unknown>;
    t.match(json, { peft_type: 'LORA', task_type: 'CAUSAL_LM', r: 3, lora_alpha: 7, bias: 'none' });
    const now = await engine.forward(batch);
    const opened = WeightStore.open(store.address);
    opened.loadFolder(join(folder, 'adapter'), { lineage: 0, version: ++version });
    t.equal(bits((await engine.forward(batch)).logprobs), bits(now.logprobs), 'saved and loaded, through another handle');
    opened.close();
    const merged = WeightStore.create(tinyConfig(over));
    merged.loadFolder(join(folder, 'merged'));
    const whole = new Engine({ store: merged });
    t.ok(maxDifference((await whole.forward(batch)).logprobs, now.logprobs) < 2e-4, 'the merged model is the same function');
    await whole.dispose();
    merged.close();
  });
}

t.test('learning moves the adapters only, the optimiser goes on from its file, and other adapters are refused', async (t) => {
  const base = createStore(denseModels.qwen3, 5);
  const pin = base.pin();
  const before = bits(new Float32Array(pin.data.slice().buffer));
  pin.release();
  const store = WeightStore.createAdapter(base, { ...lora, target_modules: ['q_proj', 'down_proj'] });
  store.initialise(1);
  const folder = temporaryFolder(t);
  const train = async (engine: Engine, from: number, to: number): Promise<number> => {
    let last = 0;
    for (let version = from; version < to; version++) {
      const { logprobs } = await engine.forward(batch, { keep: true });
      last = -logprobs.reduce((a, b) => a + b, 0);
      await engine.backward({ dLogprobs: new Float32Array(36).fill(-1 / 33) });
      await engine.optimizerStep({ lr: 2e-2, maxGradNorm: 1, lineage: 0, version });
    }
    return last;
  };
  const engine = new Engine({ store });
  const first = await train(engine, 1, 2);
  await train(engine, 2, 10);
  store.saveFolder(folder);
  await engine.saveOptimizer(join(folder, 'optimizer.safetensors'));
  const end = await train(engine, 10, 30);
  t.ok(end < 0.9 * first, `${first} -> ${end}`);
  const again = WeightStore.createAdapter(base, { ...lora, target_modules: ['q_proj', 'down_proj'] });
  again.loadFolder(folder, { lineage: 0, version: 9 });
  const engine2 = new Engine({ store: again, threads: 2 });
  await engine2.loadOptimizer(join(folder, 'optimizer.safetensors'));
  await train(engine2, 10, 30);
  const [a, b] = [store.pin(), again.pin()];
  t.equal(Buffer.compare(a.data, b.data), 0, 'the same bits after going on');
  a.release();
  b.release();
  const after = base.pin();
  t.equal(bits(new Float32Array(after.data.slice().buffer)), before, 'the base is as it was');
  after.release();
  const other = WeightStore.createAdapter(base, { ...lora, r: 2 });
  t.throws(() => other.loadFolder(folder), { code: 'SINKFLEX_STORE_MISMATCH' });
  t.throws(() => parseLora({ ...lora, target_modules: ['gate_proj'] }, tinyConfig()), { code: 'SINKFLEX_CONFIG_INVALID' });
  t.throws(() => parseLora({ ...lora, r: 0 }, tinyConfig()), { code: 'SINKFLEX_CONFIG_INVALID' });
  await Promise.all([engine.dispose(), engine2.dispose()]);
});
