// Initial weights from a counter-based generator: element i of tensor s depends on (seed, s, i) only, so that a tensor can be filled in slices.
import { SinkflexError } from './errors.ts';
import type { ModelConfig } from './model-config.ts';

/** murmur3's finaliser: every input bit reaches every output bit. */
function mix(x: number): number {
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

/** Fills `data`, elements `from` on of the tensor, with normal(0, deviation), two values a Box-Muller pair; `from` is even. */
function fillNormal(data: Float32Array, from: number, deviation: number, seed: number, stream: number): void {
  const key = mix(seed ^ Math.imul(stream + 1, 0x9e3779b1));
  const key2 = mix(key ^ 0x7f4a7c15);
  for (let i = 0; i < data.length; i += 2) {
    const a = mix(key ^ mix(from + i + key2));
    const b = mix(key2 ^ mix(a + from + i + 1));
    const radius = deviation * Math.sqrt(-2 * Math.log((a + 1) / 4294967297));
    const angle = (2 * Math.PI * b) / 4294967296;
    data[i] = radius * Math.cos(angle);
    if (i + 1 < data.length) data[i + 1] = radius * Math.sin(angle);
  }
}

/** Elements of one tensor from `from` on, which is even. `count`: of the whole tensor. */
export function initialiseSlice(
  name: string,
  data: Float32Array,
  o: { seed: number; stream: number; config: ModelConfig; rank?: number | undefined; count: number },
  from: number,
): void {
  if (name.endsWith('.lora_B.weight')) {
    data.fill(0); // the adapter begins as nothing
  } else if (name.endsWith('.lora_A.weight')) {
    // The variance of PEFT's uniform in +-1/sqrt(in).
    fillNormal(data, from, Math.sqrt((o.rank ?? 1) / (3 * o.count)), o.seed, o.stream);
  } else if (name.endsWith('norm.weight')) {
    data.fill(1);
  } else if (/(\.bias|_bias|\.sinks)$/.test(name)) {
    data.fill(0);
  } else {
    // The two projections that write into the residual stream, once each a layer.
    const residual = /(o_proj\.weight|\.down_proj(\.weight)?)$/.test(name);
    const deviation = o.config.initializer_range / (residual ? Math.sqrt(2 * o.config.num_hidden_layers) : 1);
    fillNormal(data, from, deviation, o.seed, o.stream);
  }
}

export function checkSeed(seed: number): void {
  if (!Number.isInteger(seed) || seed < 0 || seed > 0xffffffff) {
    throw new SinkflexError('SINKFLEX_BAD_ARGUMENT', `seed must be an integer from 0 to 2^32 - 1, it is ${seed}`);
  }
}
