// Initial weights from a counter-based generator: element i of tensor s depends on (seed, s, i) only, so that a tensor can be filled in slices.
import type { ModelConfig } from './model-config.ts';

/** murmur3's finaliser: every input bit reaches every output bit. */
function mix(x: number): number {
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

/** Fills [from, to) of `data` with normal(0, deviation), two values a Box-Muller pair; `from` is even. */
function fillNormal(data: Float32Array, from: number, to: number, deviation: number, seed: number, stream: number): void {
  const key = mix(seed ^ Math.imul(stream + 1, 0x9e3779b1));
  const key2 = mix(key ^ 0x7f4a7c15);
  for (let i = from; i < to; i += 2) {
    const a = mix(key ^ mix(i + key2));
    const b = mix(key2 ^ mix(a + i + 1));
    const radius = deviation * Math.sqrt(-2 * Math.log((a + 1) / 4294967297));
    const angle = (2 * Math.PI * b) / 4294967296;
    data[i] = radius * Math.cos(angle);
    if (i + 1 < to) data[i + 1] = radius * Math.sin(angle);
  }
}

/** Elements [from, to) of one tensor, all of it by default; `from` is even. */
export function initialiseTensor(
  name: string,
  data: Float32Array,
  o: { seed: number; stream: number; config: ModelConfig; rank?: number | undefined },
  from = 0,
  to = data.length,
): void {
  if (name.endsWith('.lora_B.weight')) {
    data.fill(0, from, to); // the adapter begins as nothing
  } else if (name.endsWith('.lora_A.weight')) {
    // The variance of PEFT's uniform in +-1/sqrt(in).
    fillNormal(data, from, to, Math.sqrt((o.rank ?? 1) / (3 * data.length)), o.seed, o.stream);
  } else if (name.endsWith('norm.weight')) {
    data.fill(1, from, to);
  } else if (/(\.bias|_bias|\.sinks)$/.test(name)) {
    data.fill(0, from, to);
  } else {
    // The two projections that write into the residual stream, once each a layer.
    const residual = /(o_proj\.weight|\.down_proj(\.weight)?)$/.test(name);
    const deviation = o.config.initializer_range / (residual ? Math.sqrt(2 * o.config.num_hidden_layers) : 1);
    fillNormal(data, from, to, deviation, o.seed, o.stream);
  }
}
