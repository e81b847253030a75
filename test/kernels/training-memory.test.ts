// Activation checkpointing gives the same bits in less memory, and the memory of training is known before it is taken.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';
import { Engine, longestSequence, trainingMemory, type WeightStore } from '../../kernels/index.ts';
import { createStore, denseModels, tinyConfig } from './engine-support.ts';
import type { MemoryCase, MemoryReport } from './fixtures/memory-process.ts';

async function gradientsOf(store: WeightStore, checkpointing: boolean, threads: number): Promise<Map<string, Float32Array>> {
  const engine = new Engine({ store, threads });
  for (const [salt, lengths] of [
    [1, [40, 1, 70]],
    [2, [5]],
  ] as const) {
    const n = lengths.reduce((a, b) => a + b, 0);
    const ids = Int32Array.from({ length: n }, (_, i) => (i * 31 + salt * 7) % 67);
    const cuSeqlens = Int32Array.from([0, ...lengths.map((_, i) => lengths.slice(0, i + 1).reduce((a: number, b) => a + b, 0))]);
    await engine.forward({ ids, cuSeqlens }, { keep: true, checkpointing });
    const dLogprobs = Float32Array.from(ids, (_, i) => Math.sin(i * salt));
    await engine.backward({ dLogprobs, dEntropy: dLogprobs.map((x) => x / 5) });
  }
  const gradients = engine.gradients();
  await engine.dispose();
  return gradients;
}

t.test('checkpointing changes no bit of a gradient, on any architecture', async (t) => {
  for (const over of [{ num_hidden_layers: 4 }, { num_hidden_layers: 1, tie_word_embeddings: true }, ...Object.values(denseModels)]) {
    const store = createStore(over, 11);
    const plain = await gradientsOf(store, false, 1);
    for (const threads of [1, 2]) {
      const again = await gradientsOf(store, true, threads);
      for (const [name, g] of plain) t.equal(Buffer.compare(Buffer.from(g.buffer), Buffer.from(again.get(name)!.buffer)), 0, name);
    }
    store.close();
  }
});

const run = promisify(execFile);
const script = fileURLToPath(new URL('./fixtures/memory-process.ts', import.meta.url)).replace(/\.ts$/, '.js');

const dense = {
  model_type: 'qwen2',
  hidden_size: 256,
  intermediate_size: 1024,
  num_attention_heads: 8,
  num_key_value_heads: 2,
  head_dim: 32,
};
const experts = { hidden_size: 192, intermediate_size: 192, num_attention_heads: 6, num_key_value_heads: 2, head_dim: 32 };
const cases: Record<string, MemoryCase> = {
  'dense, one sequence': {
    config: tinyConfig({ ...dense, vocab_size: 4000, num_hidden_layers: 4, num_local_experts: 0 }),
    shape: { lengths: [1500] },
  },
  'dense, checkpointed, packed': {
    config: tinyConfig({ ...dense, vocab_size: 4000, num_hidden_layers: 6, num_local_experts: 0 }),
    shape: { lengths: [900, 1, 300, 700, 119], checkpointing: true, threads: 2 },
  },
  'a large vocabulary, tied': {
    config: tinyConfig({ ...dense, vocab_size: 20_000, num_hidden_layers: 1, tie_word_embeddings: true, num_local_experts: 0 }),
    shape: { lengths: [500, 300] },
  },
  'LoRA, dense': {
    config: tinyConfig({ ...dense, vocab_size: 4000, num_hidden_layers: 4, num_local_experts: 0, tie_word_embeddings: true }),
    shape: { lengths: [2500, 500], lora: { r: 64, lora_alpha: 16, target_modules: ['q_proj', 'v_proj', 'gate_proj', 'down_proj'] } },
  },
  'LoRA, experts': {
    config: tinyConfig({ ...experts, vocab_size: 6000, num_hidden_layers: 2, num_local_experts: 8, num_experts_per_tok: 4 }),
    shape: {
      lengths: [3000],
      lora: { r: 32, lora_alpha: 16, target_modules: ['q_proj', 'mlp.experts.gate_up_proj', 'mlp.experts.down_proj'] },
    },
  },
  'LoRA over experts in MXFP4': {
    config: tinyConfig({ ...experts, vocab_size: 6000, num_hidden_layers: 4, num_local_experts: 32, num_experts_per_tok: 2 }),
    shape: { lengths: [1200], dtype: 'mxfp4', lora: { r: 8, lora_alpha: 16, target_modules: ['mlp.experts.gate_up_proj'] } },
  },
  experts: {
    config: tinyConfig({ ...experts, vocab_size: 6000, num_hidden_layers: 2, num_local_experts: 8, num_experts_per_tok: 4 }),
    shape: { lengths: [1024] },
  },
  'bfloat16 and 8-bit moments': {
    config: tinyConfig({ ...dense, vocab_size: 12_000, num_hidden_layers: 8, num_local_experts: 0 }),
    shape: { lengths: [1000], checkpointing: true, dtype: 'bfloat16', moments: '8bit' },
  },
  'moments in the slots': {
    config: tinyConfig({ ...dense, vocab_size: 8000, num_hidden_layers: 3, num_local_experts: 0 }),
    shape: { lengths: [1000], moments: 'float32', momentsInSlots: true },
  },
  'experts, checkpointed': {
    config: tinyConfig({ ...experts, vocab_size: 6000, num_hidden_layers: 4, num_local_experts: 8, num_experts_per_tok: 2 }),
    shape: { lengths: [1600], checkpointing: true },
  },
};

for (const [title, c] of Object.entries(cases)) {
  t.test(`the peak is predicted within 5%: ${title}`, async (t) => {
    const predicted = trainingMemory(c.config, c.shape);
    const { stdout } = await run(process.execPath, [script, JSON.stringify(c)]);
    const { categories, peak } = JSON.parse(stdout) as MemoryReport;
    for (const key of ['weights', 'gradients', 'optimizer', 'activations', 'logits'] as const)
      t.equal(categories[key], predicted[key], key);
    t.ok(categories.workspace <= predicted.workspace, `the scratch stays within its reservation: ${categories.workspace}`);
    const counted = Object.values(categories).reduce((a, b) => a + b, 0);
    t.ok(Math.abs(counted - predicted.total) <= 0.05 * predicted.total, `counted ${counted} of ${predicted.total}`);
    t.ok(Math.abs(peak - predicted.total) <= 0.05 * predicted.total, `VmHWM rose by ${peak}, predicted ${predicted.total}`);
    const rows = c.shape.lengths.reduce((a, b) => a + b, 0);
    t.ok(predicted.logits <= 0.5 * rows * c.config.vocab_size * 4, 'never [n, V]');
  });
}

t.test('the longest sequence is the last that fits, and checkpointing makes it longer', async (t) => {
  const { config } = cases['dense, one sequence']!;
  const budget = 600 * 2 ** 20;
  for (const checkpointing of [false, true]) {
    const n = longestSequence(config, budget, { checkpointing });
    t.ok(n > 0 && trainingMemory(config, { lengths: [n], checkpointing }).total <= budget);
    t.ok(trainingMemory(config, { lengths: [n + 1], checkpointing }).total > budget);
  }
  t.ok(longestSequence(config, budget, { checkpointing: true }) > 1.5 * longestSequence(config, budget));
  t.equal(longestSequence(config, 1000), 0);
  t.throws(() => trainingMemory(config, { lengths: [] }), { code: 'SINKFLEX_BAD_ARGUMENT' });
});
