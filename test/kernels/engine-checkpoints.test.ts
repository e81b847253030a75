// Configurations and checkpoint files: both dialects, round trips, and files that lie.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import t from 'tap';
import { Engine, isSinkflexError, parseModelConfig, readModelConfig, WeightStore } from '../../kernels/index.ts';
import { createStore, denseModels, file, maxDifference, raw, temporaryFolder, tinyConfig } from './engine-support.ts';

type Json = Record<string, unknown>;

const view = new DataView(new ArrayBuffer(4));

t.test('both dialects of the rotary settings mean the same', (t) => {
  const hub = tinyConfig({
    rope_scaling: {
      rope_type: 'yarn',
      factor: 32,
      beta_fast: 32,
      beta_slow: 1,
      truncate: false,
      original_max_position_embeddings: 4096,
    } as never,
  });
  const raw: Json = { ...hub };
  delete raw.rope_theta;
  delete raw.rope_scaling;
  raw.rope_parameters = { ...hub.rope_scaling, rope_theta: 10000 };
  t.same(parseModelConfig(raw), hub);
  t.same(parseModelConfig({ ...raw, rope_parameters: { rope_type: 'default', rope_theta: 10000 } }), tinyConfig());
  t.equal(tinyConfig().rope_scaling, undefined);
  t.same(tinyConfig({ num_hidden_layers: 3 }).layer_types, ['sliding_attention', 'full_attention', 'sliding_attention']);
  t.end();
});

t.test('settings that would be computed otherwise are refused by name', (t) => {
  const cases: [Json, string, RegExp][] = [
    [{ model_type: 'mamba' }, 'UNSUPPORTED', /model_type = "mamba" is not supported \(gpt_oss, llama, qwen2, qwen3 are\)/],
    [{ quantization_config: { quant_method: 'gptq' } }, 'UNSUPPORTED', /quant_method = "gptq"/],
    [{ model_type: 'llama', quantization_config: { quant_method: 'mxfp4' } }, 'UNSUPPORTED', /quant_method = "mxfp4"/],
    [{ rope_scaling: { rope_type: 'dynamic', factor: 8 } }, 'UNSUPPORTED', /rope_scaling.rope_type = "dynamic"/],
    [{ rope_scaling: { rope_type: 'llama3', factor: 8 } }, 'INVALID', /low_freq_factor/],
    [{ rope_scaling: { rope_type: 'llama3', factor: 8, beta_fast: 32 } }, 'UNSUPPORTED', /rope_scaling.beta_fast/],
    [
      {
        rope_scaling: { rope_type: 'llama3', factor: 8, low_freq_factor: 4, high_freq_factor: 1, original_max_position_embeddings: 64 },
      },
      'INVALID',
      /high_freq_factor must be above low_freq_factor/,
    ],
    [{ model_type: 'qwen2', layer_types: ['sliding_attention', 'full_attention'] }, 'INVALID', /use_sliding_window/],
    [{ model_type: 'llama', head_dim: undefined, hidden_size: 25 }, 'INVALID', /hidden_size must be a multiple of num_attention_heads/],
    [{ rope_scaling: { rope_type: 'yarn', factor: 8, mscale: 1 } }, 'UNSUPPORTED', /rope_scaling.mscale/],
    [{ rope_scaling: { rope_type: 'yarn' } }, 'INVALID', /factor/],
    [{ hidden_act: 'gelu' }, 'UNSUPPORTED', /hidden_act/],
    [{ layer_types: ['sliding_attention', 'chunked_attention'] }, 'UNSUPPORTED', /layer_types\[1\]/],
    [{ layer_types: ['full_attention'] }, 'INVALID', /layer_types/],
    [{ hidden_size: undefined }, 'INVALID', /hidden_size must be an integer from 1 up, it is missing/],
    [{ vocab_size: 1e12 }, 'INVALID', /vocab_size/],
    [{ rms_norm_eps: '1e-5' }, 'INVALID', /rms_norm_eps/],
    [{ rope_theta: undefined }, 'INVALID', /rope_theta/],
    [{ num_key_value_heads: 3 }, 'INVALID', /num_attention_heads must be a multiple/],
    [{ head_dim: 7 }, 'INVALID', /head_dim/],
    [{ num_experts_per_tok: 4 }, 'INVALID', /num_experts_per_tok/],
    [{ eos_token_id: 'end' }, 'INVALID', /eos_token_id/],
  ];
  for (const [over, code, message] of cases) {
    t.throws(() => parseModelConfig({ ...tinyConfig(), ...over }), { code: `SINKFLEX_CONFIG_${code}`, message });
  }
  for (const json of [null, 3, 'x', []]) t.throws(() => parseModelConfig(json), { code: 'SINKFLEX_CONFIG_INVALID' });
  t.end();
});

t.test('a seed fixes the initial weights', (t) => {
  const [a, b, c] = [createStore({}, 1), createStore({}, 1), createStore({}, 2)].map((store) => {
    const pin = store.pin();
    const bytes = pin.data.slice();
    const tensors = store.tensors(pin);
    t.ok(tensors.get('model.norm.weight')!.data.every((x) => x === 1));
    t.ok(tensors.get('model.layers.0.self_attn.sinks')!.data.every((x) => x === 0));
    const q = tensors.get('model.embed_tokens.weight')!.data;
    const deviation = Math.sqrt(q.reduce((s, x) => s + x * x, 0) / q.length);
    t.ok(Math.abs(deviation - 0.3) < 0.02, `deviation ${deviation}`);
    pin.release();
    store.close();
    return bytes;
  });
  t.equal(Buffer.compare(a!, b!), 0);
  t.not(Buffer.compare(a!, c!), 0);
  t.end();
});

t.test('a folder written is the store read back, also from shards and half precision', async (t) => {
  const folder = temporaryFolder(t);
  for (const over of [{}, { tie_word_embeddings: true, attention_bias: false }, ...Object.values(denseModels)]) {
    const store = createStore(over, 3);
    store.saveFolder(folder);
    const again = WeightStore.create(readModelConfig(folder));
    again.loadFolder(folder);
    const [p, q] = [store.pin(), again.pin()];
    t.equal(Buffer.compare(p.data, q.data), 0);
    t.same(q.version, { lineage: 0, version: 0, slot: q.version.slot });
    again.loadFolder(folder, { lineage: 4, version: 9 });
    t.match(again.current(), { lineage: 4, version: 9 });
    p.release();
    q.release();
    again.loadFolder(folder);
    t.match(again.current(), { lineage: 4, version: 10 });
    const other = WeightStore.create(tinyConfig({ ...over, rope_theta: 9999 }));
    t.throws(() => other.loadFolder(folder), {
      code: 'SINKFLEX_STORE_MISMATCH',
      message: /rope_theta is 10000, the store was created with 9999/,
    });
    for (const s of [store, again, other]) s.close();
  }

  // Two shards, one BF16 and one F16, against the values they round to.
  const store = createStore({}, 4);
  const pin = store.pin();
  const names = [...store.tensors(pin).keys()];
  mkdirSync(join(folder, 'shards'));
  store.saveFolder(join(folder, 'shards'), pin);
  rmSync(join(folder, 'shards', 'model.safetensors'));
  const rounded = new Map<string, number[]>();
  const shard = (part: string[], dtype: 'BF16' | 'F16'): Uint8Array =>
    file(
      part.map((name) => {
        const { shape, data } = store.tensors(pin).get(name)!;
        const half = Uint16Array.from(data, dtype === 'BF16' ? toBfloat16 : toFloat16);
        rounded.set(name, [...half].map(dtype === 'BF16' ? (x) => bits(x << 16) : fromFloat16));
        return { name, dtype, shape, data: new Uint8Array(half.buffer) };
      }),
    );
  writeFileSync(join(folder, 'shards', 'a.safetensors'), shard(names.slice(0, 20), 'BF16'));
  writeFileSync(join(folder, 'shards', 'b.safetensors'), shard(names.slice(20), 'F16'));
  const index = (map: Json): void =>
    writeFileSync(join(folder, 'shards', 'model.safetensors.index.json'), JSON.stringify({ weight_map: map }));
  index(Object.fromEntries(names.map((name, i) => [name, i < 20 ? 'a.safetensors' : 'b.safetensors'])));
  const again = WeightStore.create(readModelConfig(join(folder, 'shards')));
  again.loadFolder(join(folder, 'shards'));
  const held = again.pin();
  for (const [name, { data }] of again.tensors(held)) t.equal(maxDifference(data, rounded.get(name)!), 0, name);
  held.release();
  for (const name of ['../a.safetensors', '/etc/passwd', '..', '', 7]) {
    index({ x: name });
    t.throws(() => again.loadFolder(join(folder, 'shards')), { code: 'SINKFLEX_CHECKPOINT_CORRUPT', message: /is not a file name/ });
  }
  index({ x: 'a.safetensors', y: 'a.safetensors' });
  t.throws(() => again.loadFolder(join(folder, 'shards')), { code: 'SINKFLEX_CHECKPOINT_TENSOR', message: /is missing/ });
  pin.release();
});

function bits(x: number): number {
  view.setUint32(0, x >>> 0);
  return view.getFloat32(0);
}
function toBfloat16(x: number): number {
  view.setFloat32(0, x);
  return view.getUint16(0); // towards zero: any value will do
}
function toFloat16(x: number): number {
  const a = Math.abs(x);
  const sign = x < 0 ? 0x8000 : 0;
  if (a < 2 ** -14) return sign | Math.round(a * 2 ** 24);
  const e = Math.floor(Math.log2(a));
  return sign | ((e + 15) << 10) | Math.floor((a / 2 ** e - 1) * 1024);
}
function fromFloat16(h: number): number {
  const sign = h & 0x8000 ? -1 : 1;
  const e = (h >> 10) & 31;
  return e === 0 ? sign * (h & 1023) * 2 ** -24 : sign * (1 + (h & 1023) / 1024) * 2 ** (e - 15);
}

t.test('a folder written without rotary settings goes back into a store made in any of their spellings', (t) => {
  const dir = temporaryFolder(t);
  const plain = createStore();
  plain.saveFolder(dir);
  for (const over of [
    {},
    { rope_scaling: null },
    { rope_scaling: { rope_type: 'default' } },
    { rope_parameters: { rope_type: 'default', rope_theta: 10000 } },
  ]) {
    const store = WeightStore.create({ ...tinyConfig(), ...over } as never);
    store.loadFolder(dir);
    t.same(store.config, plain.config);
    store.close();
  }
  plain.close();
  t.end();
});

t.test('files that lie are refused, and leave the store as it was', async (t) => {
  const folder = temporaryFolder(t);
  const store = createStore();
  store.saveFolder(folder);
  const path = join(folder, 'model.safetensors');
  const good = readFileSync(path);
  const headerBytes = Number(good.readBigUInt64LE(0));
  const header = JSON.parse(good.subarray(8, 8 + headerBytes).toString()) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: number[] }
  >;
  const data = good.subarray(8 + headerBytes);
  const refuse = (bytes: Uint8Array, code: string, message: RegExp): void => {
    writeFileSync(path, bytes);
    t.throws(() => store.loadFolder(folder), { code: `SINKFLEX_CHECKPOINT_${code}`, message });
    t.equal(store.current()?.version, 0);
  };
  const changed = (change: (h: typeof header) => void): Uint8Array => {
    const copy = structuredClone(header);
    change(copy);
    return raw(JSON.stringify(copy), data);
  };
  const length = (n: bigint): Uint8Array => {
    const bytes = Buffer.from(good);
    bytes.writeBigUInt64LE(n);
    return bytes;
  };
  const [norm, sinks] = ['model.norm.weight', 'model.layers.0.self_attn.sinks'] as const;
  refuse(good.subarray(0, 5), 'CORRUPT', /too short/);
  refuse(good.subarray(0, good.length - 4), 'CORRUPT', /outside|take/);
  refuse(Buffer.concat([good, Buffer.alloc(4)]), 'CORRUPT', /the data section has/);
  refuse(length(2n ** 63n), 'CORRUPT', /a header of/);
  refuse(length(BigInt(good.length)), 'CORRUPT', /a header of/);
  refuse(length(10n), 'CORRUPT', /not JSON/);
  refuse(raw('[]', data), 'CORRUPT', /not an object/);
  refuse(raw('{"x":1}', new Uint8Array(0)), 'CORRUPT', /tensor "x" is not described/);
  refuse(raw(`{"x":${'['.repeat(50_000)}`, new Uint8Array(0)), 'CORRUPT', /not JSON/);
  refuse(Buffer.concat([good.subarray(0, 8), Buffer.alloc(headerBytes, 0xff), data]), 'CORRUPT', /not JSON/);
  refuse(
    changed((h) => (h[norm]!.data_offsets = [0, 96])),
    'CORRUPT',
    /overlaps|hole/,
  );
  refuse(
    changed((h) => (h[norm]!.data_offsets = [-96, 0])),
    'CORRUPT',
    /malformed data_offsets/,
  );
  refuse(
    changed((h) => (h[norm]!.data_offsets = [2 ** 60, 2 ** 60 + 96])),
    'CORRUPT',
    /malformed data_offsets|outside/,
  );
  refuse(
    changed((h) => (h[norm]!.shape = [2 ** 52, 2 ** 52])),
    'CORRUPT',
    /its shape and dtype need/,
  );
  refuse(
    changed((h) => (h[norm]!.shape = [-24])),
    'CORRUPT',
    /malformed shape/,
  );
  refuse(
    changed((h) => (h[norm]!.dtype = 'F12')),
    'CORRUPT',
    /unknown dtype/,
  );
  refuse(
    changed((h) => (h[norm]!.dtype = 'I32')),
    'TENSOR',
    /model\.norm\.weight is I32/,
  );
  refuse(
    changed((h) => (h[norm]!.shape = [4, 6])),
    'TENSOR',
    /model\.norm\.weight has shape \[4,6\], the configuration needs \[24\]/,
  );
  refuse(
    changed((h) => {
      h.intruder = h[norm]!;
      delete h[norm];
    }),
    'TENSOR',
    /model\.norm\.weight is missing/,
  );
  refuse(
    file([
      ...Object.entries(header)
        .filter(([name]) => name !== '__metadata__')
        .map(([name, x]) => ({ name, dtype: x.dtype, shape: x.shape, data: data.subarray(x.data_offsets[0], x.data_offsets[1]) })),
      { name: 'intruder', dtype: 'F32', shape: [1], data: new Uint8Array(4) },
    ]),
    'TENSOR',
    /intruder is left over/,
  );
  writeFileSync(path, good);
  writeFileSync(join(folder, 'config.json'), '{');
  t.throws(() => store.loadFolder(folder), { code: 'SINKFLEX_CHECKPOINT_CORRUPT' });
  t.throws(() => store.loadFolder(join(folder, 'none')), { code: 'SINKFLEX_CHECKPOINT_MISSING' });

  // Whatever bytes the header holds: a typed error or the good weights, never anything else.
  store.saveFolder(folder);
  fc.assert(
    fc.property(fc.nat(8 + headerBytes - 1), fc.nat(255), (at, value) => {
      const bytes = Buffer.from(good);
      bytes[at] = value;
      writeFileSync(path, bytes);
      try {
        store.loadFolder(folder);
      } catch (e) {
        return isSinkflexError(e);
      }
      return true;
    }),
    { numRuns: 200, seed: 1 },
  );
  writeFileSync(path, good);
  store.loadFolder(folder);
  const engine = new Engine({ store });
  t.ok((await engine.forward({ ids: Int32Array.of(1, 2), cuSeqlens: Int32Array.of(0, 2) })).logprobs[1]! < 0);
  t.ok(sinks in header);
  await engine.dispose();
});

t.test('a checkpoint is read without a second copy of it: the peak is the weights and a few pieces', (t) => {
  const script = fileURLToPath(new URL('./fixtures/load-process.ts', import.meta.url)).replace(/\.ts$/, '.js');
  const config = tinyConfig({
    ...denseModels.qwen2,
    vocab_size: 24_000,
    hidden_size: 512,
    intermediate_size: 512,
    tie_word_embeddings: true,
  });
  for (const stored of ['float32', 'bfloat16'] as const) {
    const folder = temporaryFolder(t);
    const store = WeightStore.create(config, { slots: 1, dtype: stored });
    store.initialise(1);
    store.saveFolder(folder);
    store.close();
    for (const dtype of ['float32', 'bfloat16']) {
      const { weights, beyond } = JSON.parse(execFileSync(process.execPath, [script, folder, dtype], { encoding: 'utf8' })) as {
        weights: number;
        beyond: number;
      };
      t.ok(weights > 24e6 && beyond < 16 * 2 ** 20, `${stored} as ${dtype}: ${beyond} bytes beyond ${weights}`);
    }
  }
  t.end();
});
