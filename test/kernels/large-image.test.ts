// Weights beyond 4 GiB, which no ArrayBuffer of Node's shows whole: where their tensors lie, and a model whose layers lie behind them. And
// how large folders are read: in slices.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { Checkpoint } from '../../kernels/checkpoint.ts';
import { Engine, type ModelConfig, os, parseModelConfig, WeightStore } from '../../kernels/index.ts';
import { toHuggingFace } from '../../kernels/model-config.ts';
import { encodeHeader, type StoredTensor } from '../../kernels/safetensors.ts';
import { SlotTensors } from '../../kernels/slot-tensors.ts';
import { tensorLayout } from '../../kernels/tensor-layout.ts';

t.setTimeout(600_000);
const GIB = 2 ** 30;

/** The public shape of gpt-oss-20b. */
const gptOss20b = parseModelConfig({
  model_type: 'gpt_oss',
  vocab_size: 201_088,
  hidden_size: 2880,
  intermediate_size: 2880,
  num_hidden_layers: 24,
  num_attention_heads: 64,
  num_key_value_heads: 8,
  head_dim: 64,
  num_local_experts: 32,
  num_experts_per_tok: 4,
  sliding_window: 128,
  rms_norm_eps: 1e-5,
  rope_theta: 150_000,
});

t.test('tensors of a large image lie one after another, and each is seen through views of its own', async (t) => {
  for (const dtype of ['float32', 'bfloat16'] as const) {
    const layout = tensorLayout(gptOss20b, undefined, dtype);
    t.ok(layout.totalBytes > 38 * GIB, `${(layout.totalBytes / GIB).toFixed(1)} GiB`);
    let end = 0;
    for (const tensor of layout.tensors) {
      if (tensor.offset !== end || !Number.isSafeInteger(end)) t.fail(`${tensor.name} begins at ${tensor.offset}, not ${end}`);
      end += tensor.count * (tensor.dtype === 'F32' ? 4 : 2);
    }
    t.equal(end, layout.dataBytes);

    // Memory that is not there: what is asked for is noted, and answered by a little.
    const asked: [offset: number, bytes: number][] = [];
    const memory = new Uint8Array(1 << 16);
    const slot = new SlotTensors(layout, (offset, bytes) => {
      asked.push([offset, bytes]);
      return memory;
    });
    fc.assert(
      fc.property(fc.nat(layout.tensors.length - 1), fc.nat(1000), fc.integer({ min: 1, max: 1000 }), (index, from, length) => {
        const tensor = layout.tensors[index]!;
        const first = Math.min(from, tensor.count - 1);
        const last = Math.min(tensor.count, first + length);
        if (slot.read(tensor, first, last).length !== last - first) throw new Error('another length');
        const [offset, bytes] = asked.at(-1)!;
        if (offset !== layout.dataStart + tensor.offset || bytes !== tensor.count * (tensor.dtype === 'F32' ? 4 : 2))
          throw new Error(`${tensor.name} was sought at ${offset}`);
      }),
      { seed: 4, numRuns: 300 },
    );
  }
});

t.test('of a tensor beyond 4 GiB what is asked for is seen', async (t) => {
  const layout = tensorLayout(parseModelConfig({ ...gptOss20b, num_local_experts: 128 }));
  const experts = layout.tensors.find((tensor) => tensor.name.endsWith('gate_up_proj'))!;
  t.ok(4 * experts.count > 4 * GIB);
  const asked: number[][] = [];
  const slot = new SlotTensors(layout, (offset, bytes) => {
    asked.push([offset, bytes]);
    return new Uint8Array(bytes);
  });
  slot.edit(experts, (data) => t.equal(data.length, 3), experts.count - 3, experts.count);
  t.same(asked, [[layout.dataStart + experts.offset + 4 * (experts.count - 3), 12]]);
});

/** Random experts in MXFP4, everything else in bfloat16. */
function writeFolder(dir: string, config: ModelConfig): void {
  let state = 1;
  const noise = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state >>> 24;
  };
  const stored: StoredTensor[] = [];
  const data: Uint8Array[] = [];
  const add = (name: string, dtype: string, shape: number[], bytes: Uint8Array): void => {
    const begin = stored.at(-1)?.end ?? 0;
    stored.push({ name, dtype, shape, begin, end: begin + bytes.length });
    data.push(bytes);
  };
  for (const { name, shape, count } of tensorLayout(config).tensors) {
    if (shape.length === 3) {
      const [experts, into, out] = shape as [number, number, number];
      add(`${name}_blocks`, 'U8', [experts, out, into / 32, 16], Uint8Array.from({ length: count / 2 }, noise));
      add(
        `${name}_scales`,
        'U8',
        [experts, out, into / 32],
        Uint8Array.from({ length: count / 32 }, () => 110 + (noise() >> 4)),
      );
    } else
      add(
        name,
        'BF16',
        shape,
        Uint8Array.from({ length: 2 * count }, (_, i) => (i % 2 === 1 ? 0x3c + (noise() & 0x83) : noise())),
      );
  }
  writeFileSync(join(dir, 'model.safetensors'), Buffer.concat([encodeHeader(stored, {}), ...data]));
  writeFileSync(join(dir, 'config.json'), JSON.stringify(toHuggingFace(config)));
}

t.test('a large folder is read in slices between which the event loop turns, and an abort publishes nothing', async (t) => {
  // An expert and the embedding are more than one slice each.
  const config = parseModelConfig({
    ...toHuggingFace(gptOss20b),
    vocab_size: 5000,
    hidden_size: 256,
    intermediate_size: 2304,
    num_hidden_layers: 1,
    layer_types: ['full_attention'],
    num_attention_heads: 4,
    num_key_value_heads: 2,
    num_local_experts: 2,
    num_experts_per_tok: 1,
  });
  const dir = t.testdir();
  writeFolder(dir, config);
  for (const dtype of ['float32', 'bfloat16'] as const) {
    const store = WeightStore.create(config, { slots: 2, dtype });
    t.teardown(() => store.close());
    const stop = new AbortController();
    await t.rejects(store.loadFolderAsync(dir, { signal: stop.signal, onProgress: () => stop.abort() }), { name: 'AbortError' });
    t.equal(store.current(), undefined);

    const heard: number[] = [];
    let turns = 0;
    const timer = setInterval(() => turns++, 0);
    await store.loadFolderAsync(dir, { onProgress: (done, total) => heard.push(done / total) });
    clearInterval(timer);
    t.ok(turns > 3, `${turns} turns`);
    t.ok(heard.length > store.layout.tensors.length && heard.every((part, i) => i === 0 || part > heard[i - 1]!));
    t.equal(heard.at(-1), 1);
    // Beside every tensor read in one piece (the values of the folder are bfloat16's, so both stores hold them exactly).
    const pin = store.pin();
    const checkpoint = Checkpoint.open(dir, store.layout.tensors);
    const tensors = store.tensors(pin);
    for (const tensor of store.layout.tensors) {
      const whole = new Float32Array(tensor.count);
      checkpoint.read(tensor, whole);
      const { data } = tensors.get(tensor.name)!;
      t.ok(Buffer.from(data.buffer, data.byteOffset, data.byteLength).equals(Buffer.from(whole.buffer)), tensor.name);
    }
    checkpoint.close();
    pin.release();
  }
});

const needed = 4.5 * GIB;
const skip = os.availableMemory() < needed + 2 * GIB && `${needed / GIB} GiB of memory, and 2 to spare, are not available`;
t.test('an engine computes with layers that lie beyond 4 GiB', { skip }, async (t) => {
  const config = (vocabulary: number) =>
    parseModelConfig({
      model_type: 'qwen2',
      vocab_size: vocabulary,
      hidden_size: 512,
      intermediate_size: 64,
      num_hidden_layers: 1,
      num_attention_heads: 8,
      num_key_value_heads: 2,
      rms_norm_eps: 1e-6,
      rope_theta: 1e6,
      tie_word_embeddings: true,
    });
  const small = WeightStore.create(config(64), { slots: 1 });
  small.initialise(1);
  const large = WeightStore.create(config(2_200_000), { slots: 1 });
  t.teardown(() => {
    small.close();
    large.close();
  });
  t.ok(large.layout.totalBytes > 4 * GIB);
  t.ok(large.layout.tensors.some((tensor) => tensor.name.includes('mlp') && tensor.offset > 4 * GIB));

  // The same layers; of the embedding the first rows, and zeros.
  const writing = await large.segment.beginWrite();
  t.throws(() => writing.data, { code: 'SINKFLEX_BAD_ARGUMENT' });
  writing.view(0, large.layout.dataStart).set(large.layout.header);
  const pin = small.pin();
  for (const [name, { data }] of small.tensors(pin)) {
    const tensor = large.layout.tensors.find((each) => each.name === name)!;
    const to = writing.view(large.layout.dataStart + tensor.offset, 4 * data.length);
    new Float32Array(to.buffer, to.byteOffset, data.length).set(data);
  }
  pin.release();
  writing.publish({ lineage: 0, version: 0 });

  const batch = { ids: Int32Array.of(5, 11, 3, 60, 1), cuSeqlens: Int32Array.of(0, 5) };
  const hidden = async (store: WeightStore) => {
    const engine = new Engine({ store, threads: 2, maxSequences: 1, maxSequenceTokens: 64 });
    try {
      return (await engine.forward(batch, { hidden: true })).hidden;
    } finally {
      await engine.dispose();
    }
  };
  const [few, many] = [await hidden(small), await hidden(large)];
  t.ok(few!.some((x) => x !== 0));
  t.same(Buffer.from(many!.buffer), Buffer.from(few!.buffer), 'bit for bit');
});
