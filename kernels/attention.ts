// Sink attention as an operator of its own, forward and backward, over packed sequences: for tests, benches and study.
import { callNative } from './errors.ts';
import { addon } from './native.ts';

export interface SinkAttentionOptions {
  /** [n, heads, headDim] */
  q: Float32Array;
  /** [n, kvHeads, headDim]; query head h reads key head floor(h / (heads / kvHeads)) */
  k: Float32Array;
  v: Float32Array;
  heads: number;
  kvHeads: number;
  headDim: number;
  /** [segments + 1], from 0 to n */
  cuSeqlens: Int32Array;
  /** A query sees keys with q - k <= window of its segment; below 0 (default): all before it. Hugging Face's sliding_window is window + 1. */
  window?: number;
  /** Keys at positions below it are always seen; default 0. */
  prefix?: number;
  /** Raw logit for each query head, not scaled; -Infinity or absent: no sink. */
  sink?: Float32Array;
  /** Default 1 / sqrt(headDim). */
  scale?: number;
  threads?: number;
}

export interface SinkAttentionResult {
  /** [n, heads, headDim] */
  out: Float32Array;
  /** [n, heads], natural log of the sum over the visible keys and the sink */
  lse: Float32Array;
}

export interface SinkAttentionGradients {
  dq: Float32Array;
  dk: Float32Array;
  dv: Float32Array;
  dsink: Float32Array;
}

const native = addon as unknown as {
  attentionForward(o: object): SinkAttentionResult;
  attentionBackward(o: object): SinkAttentionGradients;
};

function complete(o: SinkAttentionOptions): Required<Omit<SinkAttentionOptions, 'sink'>> & { sink?: Float32Array } {
  return { ...o, window: o.window ?? -1, prefix: o.prefix ?? 0, scale: o.scale ?? 1 / Math.sqrt(o.headDim), threads: o.threads ?? 1 };
}

/**
 * out = softmax over {scale q k of the visible keys, sink} without the sink's column, times v.
 *
 * @example
 * const { out, lse } = sinkAttention({ q, k, v, heads: 4, kvHeads: 2, headDim: 16, cuSeqlens: Int32Array.of(0, n), window: 127, sink });
 */
export function sinkAttention(o: SinkAttentionOptions): SinkAttentionResult {
  return callNative(() => native.attentionForward(complete(o)));
}

/** Gradients of sum(dout * out), given the forward's out and lse. */
export function sinkAttentionBackward(o: SinkAttentionOptions & SinkAttentionResult & { dout: Float32Array }): SinkAttentionGradients {
  return callNative(() => native.attentionBackward({ ...complete(o), out: o.out, lse: o.lse, dout: o.dout }));
}
