// Sink attention: a learned logit beside the keys takes a share of the softmax and gives nothing back. Forward and backward.
//   npm run build && node dist/examples/attention/main.js
import { cpu, sinkAttention, sinkAttentionBackward } from 'sinkflex/kernels';

// Two sequences of 5 and 3 tokens, packed; 2 query heads share 1 key head; a query sees itself and the 2 keys before it.
const [n, heads, kvHeads, headDim] = [8, 2, 1, 4];
const wave = (length: number, step: number): Float32Array => Float32Array.from({ length }, (_, i) => Math.sin(i * step));
const shape = { heads, kvHeads, headDim, cuSeqlens: Int32Array.of(0, 5, 8), window: 2 };
const q = wave(n * heads * headDim, 0.7);
const k = wave(n * kvHeads * headDim, 1.3);
const v = new Float32Array(n * kvHeads * headDim).fill(1); // so that the output is the share that the keys kept
const sink = Float32Array.of(0, 2); // one raw logit a head

const { out, lse } = sinkAttention({ ...shape, q, k, v, sink });

console.log(`instruction set: ${cpu.isa}`);
for (let head = 0; head < heads; head++) {
  const t = 4; // the last token of the first sequence
  const kept = out[(t * heads + head) * headDim]!;
  const lost = Math.exp(sink[head]! - lse[t * heads + head]!);
  console.log(`head ${head}: keys keep ${kept.toFixed(3)}, the sink takes ${lost.toFixed(3)}, together ${(kept + lost).toFixed(3)}`);
}

const { dsink } = sinkAttentionBackward({ ...shape, q, k, v, sink, out, lse, dout: new Float32Array(out.length).fill(1) });
console.log(`d(sum of out)/d(sink): ${[...dsink].map((x) => x.toFixed(3)).join(', ')}`); // below 0: a larger sink leaves less
