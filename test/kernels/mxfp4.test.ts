// MXFP4 experts: what is read is what their codes name, in a store that widens them and in one that keeps them as they are; the two compute
// the same bits, alone and below adapters; what cannot be is refused.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { Engine, type LoraConfig, readModelConfig, trainingMemory, WeightStore } from '../../kernels/index.ts';
import { createStore, denseModels, file, generateOnce, type Part, packed, temporaryFolder, tinyConfig } from './engine-support.ts';

type Json = Record<string, unknown>;

const widths = { hidden_size: 64, intermediate_size: 32, num_local_experts: 4, num_experts_per_tok: 2 };

/** A folder with such experts, its parts, and what the experts' codes name by the format's definition. */
function experts(t: Test, over: Json = widths) {
  const dir = temporaryFolder(t);
  const store = createStore(over);
  store.saveFolder(dir);
  const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8')) as Json;
  writeFileSync(join(dir, 'config.json'), JSON.stringify({ ...config, quantization_config: { quant_method: 'mxfp4' } }));
  // E2M1 by its definition: sign, exponent (bias 1), one bit of mantissa; exponent 0 is subnormal.
  const value = (code: number): number => {
    const [sign, exponent, mantissa] = [code & 8 ? -1 : 1, (code >> 1) & 3, code & 1];
    return sign * (exponent === 0 ? mantissa / 2 : (1 + mantissa / 2) * 2 ** (exponent - 1));
  };
  const byte = (i: number, salt: number): number => Math.imul(i + salt, 2654435761) >>> 24;
  const expected = new Map<string, Float32Array>();
  const pin = store.pin();
  const parts: Part[] = [];
  for (const [name, { shape, data }] of store.tensors(pin)) {
    if (shape.length !== 3) {
      parts.push({ name, dtype: 'F32', shape, data: new Uint8Array(data.slice().buffer) });
      continue;
    }
    const [E, into, out] = shape as [number, number, number];
    const salt = name.length + Number(/layers\.(\d+)/.exec(name)![1]) * 1000;
    const blocks = Uint8Array.from({ length: E * out * (into / 2) }, (_, i) => byte(i, salt));
    const scales = Uint8Array.from({ length: E * out * (into / 32) }, (_, i) => 118 + (byte(i, salt + 7) % 8));
    parts.push({ name: `${name}_blocks`, dtype: 'U8', shape: [E, out, into / 32, 16], data: blocks });
    parts.push({ name: `${name}_scales`, dtype: 'U8', shape: [E, out, into / 32], data: scales });
    const wide = new Float32Array(E * into * out);
    for (let at = 0; at < wide.length; at++) {
      const row = Math.floor(at / (into * out)) * out + (at % out);
      const i = Math.floor(at / out) % into;
      const pair = blocks[(row * into + i) >> 1]!;
      wide[at] = value(i % 2 === 0 ? pair & 15 : pair >> 4) * 2 ** (scales[row * (into / 32) + Math.floor(i / 32)]! - 127);
    }
    expected.set(name, wide);
  }
  pin.release();
  store.close();
  const path = join(dir, 'model.safetensors');
  writeFileSync(path, file(parts));
  return { dir, path, parts, expected };
}

const bytesOf = (x: ArrayBufferView): string => Buffer.from(x.buffer, x.byteOffset, x.byteLength).toString('base64');

function open(t: Test, dir: string, dtype: 'bfloat16' | 'mxfp4' | 'float32'): WeightStore {
  const store = WeightStore.create(readModelConfig(dir), { slots: 1, dtype });
  t.teardown(() => store.close());
  store.loadFolder(dir);
  return store;
}

t.test('they are read as the values that their codes name, and refused when a part is not as it must be', (t) => {
  const { dir, path, parts, expected } = experts(t, { hidden_size: 32, intermediate_size: 64, num_local_experts: 2 });
  for (const dtype of ['float32', 'mxfp4'] as const) {
    const store = open(t, dir, dtype);
    const pin = store.pin();
    const read = store.tensors(pin);
    for (const [name, data] of expected) t.equal(bytesOf(read.get(name)!.data), bytesOf(data), `${name} in ${dtype}`);
    pin.release();
    const [blocks, scales] = [
      parts.findIndex(({ name }) => name.endsWith('_blocks')),
      parts.findIndex(({ name }) => name.endsWith('_scales')),
    ];
    const without = (at: number, replacement: Part[] = []): Part[] => [...parts.slice(0, at), ...replacement, ...parts.slice(at + 1)];
    for (const [damaged, message] of [
      [without(scales), /_scales is missing/],
      [without(blocks), /gate_up_proj is missing/],
      [without(scales, [{ ...parts[scales]!, shape: [parts[scales]!.data.length] }]), /_scales has shape/],
      [without(blocks, [{ ...parts[blocks]!, dtype: 'I8' }]), /_blocks is I8; U8 are read/],
    ] as const) {
      writeFileSync(path, file(damaged));
      t.throws(() => store.loadFolder(dir), { code: 'SINKFLEX_CHECKPOINT_TENSOR', message });
    }
    writeFileSync(path, file(parts));
    t.match(store.current(), { version: 0 }, 'what was refused published nothing');
  }
  t.end();
});

t.test('kept as they are they take a quarter and give the bits of bfloat16: scores, generation, what is saved', async (t) => {
  const { dir } = experts(t);
  const [kept, widened] = [open(t, dir, 'mxfp4'), open(t, dir, 'bfloat16')];
  const inExperts = (store: WeightStore): number => {
    const other = store.layout.tensors.filter(({ shape }) => shape.length !== 3);
    return store.layout.dataBytes - other.reduce((sum, { count, dtype }) => sum + count * (dtype === 'BF16' ? 2 : 4), 0);
  };
  t.equal(inExperts(kept) / inExperts(widened), 4.25 / 16, '4.25 bits a weight');
  const saved = temporaryFolder(t);
  kept.saveFolder(saved);
  const again = open(t, saved, 'mxfp4');
  const results = await Promise.all(
    [kept, widened, again, open(t, saved, 'float32')].map(async (store) => {
      const engine = new Engine({ store, threads: 2 });
      t.teardown(() => engine.dispose());
      const { logprobs, entropy } = await engine.forward(packed([40, 1, 70]));
      const request = { tokens: Int32Array.of(3, 5, 8), maxNewTokens: 20, stopTokens: [], temperature: 1, key: [1, 2, 3, 4] } as const;
      const drawn = await generateOnce(engine, { ...request, stopTokens: [] });
      return [logprobs, entropy, drawn.tokens, drawn.logprobs].map(bytesOf);
    }),
  );
  t.same(results[0], results[1], 'as in bfloat16');
  t.same(results[2], results[0], 'saved and read again');
  t.same(results[3], results[0], 'and so widened: nothing else was left to round');
});

t.test('adapters over them learn the bits that they learn over bfloat16', async (t) => {
  const { dir } = experts(t);
  const lora: LoraConfig = { r: 4, lora_alpha: 8, target_modules: ['q_proj', 'mlp.experts.gate_up_proj', 'mlp.experts.down_proj'] };
  const batch = packed([50, 3, 30]);
  const dLogprobs = Float32Array.from(batch.ids, (_, i) => Math.sin(i));
  const learn = async (dtype: 'bfloat16' | 'mxfp4', threads: number, checkpointing: boolean): Promise<string[]> => {
    const store = WeightStore.createAdapter(open(t, dir, dtype), lora);
    store.initialise(7);
    const engine = new Engine({ store, threads });
    const seen: string[] = [];
    for (let version = 1; version <= 3; version++) {
      const { logprobs } = await engine.forward(batch, { keep: true, checkpointing });
      await engine.backward({ dLogprobs });
      seen.push(bytesOf(logprobs), ...[...engine.gradients().values()].map(bytesOf));
      await engine.optimizerStep({ lr: 1e-2, maxGradNorm: 1, lineage: 0, version });
    }
    const prompt = { tokens: batch.ids.slice(0, 5), maxNewTokens: 12, stopTokens: [], temperature: 1, key: [1, 2, 3, 4] } as const;
    const drawn = await generateOnce(engine, { ...prompt, stopTokens: [] });
    const ids = Int32Array.from([...prompt.tokens, ...drawn.tokens]);
    const { logprobs } = await engine.forward({ ids, cuSeqlens: Int32Array.of(0, ids.length) });
    t.equal(bytesOf(drawn.logprobs), bytesOf(logprobs.slice(5)), 'generation and training agree bit for bit');
    const opened = WeightStore.open(structuredClone(store.address));
    const other = new Engine({ store: opened });
    t.equal(bytesOf((await other.forward({ ids, cuSeqlens: Int32Array.of(0, ids.length) })).logprobs), bytesOf(logprobs), 'opened again');
    await other.dispose();
    opened.close();
    const merged = temporaryFolder(t);
    store.saveMerged(merged);
    seen.push(readFileSync(join(merged, 'model.safetensors')).toString('base64'));
    t.equal((JSON.parse(readFileSync(join(merged, 'config.json'), 'utf8')) as Json).quantization_config, undefined);
    await engine.dispose();
    return seen;
  };
  const expected = await learn('bfloat16', 2, false);
  t.same(await learn('mxfp4', 2, false), expected);
  t.same(await learn('mxfp4', 1, true), expected, 'checkpointed, one thread');
});

t.test('what would change them, and what cannot hold them, is refused', async (t) => {
  const { dir, path, parts } = experts(t);
  const store = open(t, dir, 'mxfp4');
  const engine = new Engine({ store });
  t.teardown(() => engine.dispose());
  const frozen = { code: 'SINKFLEX_STORE_FROZEN' };
  await t.rejects(engine.forward(packed([5]), { keep: true }), frozen);
  await t.rejects(engine.optimizerStep({ lr: 1, lineage: 0, version: 1 }), frozen);
  t.throws(() => trainingMemory(store.config, { lengths: [5], dtype: 'mxfp4' }), frozen);
  t.throws(() => store.initialise(1), frozen);
  const adapter = WeightStore.createAdapter(store, { r: 2, lora_alpha: 2, target_modules: 'experts' });
  adapter.initialise(1);
  const folder = temporaryFolder(t);
  adapter.saveFolder(folder);
  t.throws(() => store.loadFolder(folder), frozen, 'adapters are not merged into four bits');
  t.match(store.current(), { version: 0 });
  const plain = parts.map((part) => (part.name.endsWith('down_proj_blocks') ? { ...part, name: part.name.replace('_blocks', '') } : part));
  const fits = plain.map((part) =>
    part.name.endsWith('down_proj') ? { ...part, dtype: 'F32', shape: [4, 32, 64], data: new Uint8Array(4 * 4 * 32 * 64) } : part,
  );
  writeFileSync(path, file(fits.filter(({ name }) => !name.endsWith('down_proj_scales'))));
  t.throws(() => store.loadFolder(dir), { code: 'SINKFLEX_CHECKPOINT_TENSOR', message: /down_proj is not stored in MXFP4/ });
  const unsupported = { code: 'SINKFLEX_CONFIG_UNSUPPORTED' };
  t.throws(() => WeightStore.create(tinyConfig(denseModels.llama), { dtype: 'mxfp4' }), { ...unsupported, message: /no experts/ });
  t.throws(() => WeightStore.create(tinyConfig(), { dtype: 'mxfp4' }), { ...unsupported, message: /hidden_size is 24/ });
});
