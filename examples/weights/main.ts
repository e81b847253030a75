// The weight store: an optimiser step writes the next version beside the current one and flips; another process reads it at once.
//   npm run build && node dist/examples/weights/main.js
import { Engine, parseModelConfig, WeightStore } from 'sinkflex/kernels';
import { init, shutdown, spawn } from 'sinkflex/runtime';
import { Reader } from './reader.ts';

const config = parseModelConfig({
  model_type: 'gpt_oss',
  vocab_size: 16,
  hidden_size: 32,
  intermediate_size: 32,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 8,
  num_local_experts: 2,
  num_experts_per_tok: 1,
  sliding_window: 16,
  layer_types: ['sliding_attention', 'full_attention'],
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  swiglu_limit: 7,
  max_position_embeddings: 64,
  tie_word_embeddings: false,
  attention_bias: true,
});
const store = WeightStore.create(config);
store.initialise(1); // version 0

await init();
const reader = spawn(Reader, { args: [store.address] }); // an address is plain data
console.log('reader:', await reader.after(-1));
const next = reader.after(0);

// One step that makes a sequence of tokens more probable.
const engine = new Engine({ store });
const batch = { ids: Int32Array.of(1, 2, 3, 4, 5, 6), cuSeqlens: Int32Array.of(0, 6) };
const before = await engine.forward(batch, { keep: true });
await engine.backward({ dLogprobs: new Float32Array(6).fill(-1) });
await engine.optimizerStep({ lr: 1e-2, lineage: 0, version: 1 }); // writes a free slot, then one atomic store: version 1
console.log('reader:', await next);

const after = await engine.forward(batch);
const sum = (x: Float32Array): string => x.reduce((a, b) => a + b, 0).toFixed(3);
console.log(`log-probability ${sum(before.logprobs)} -> ${sum(after.logprobs)}`);

await engine.dispose();
await shutdown();
store.close();
