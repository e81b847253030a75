// Sink attention as an operator of its own, forward and backward, over plain arrays: packed sequences or equal ones in a batch. What the
// engine runs inside, for people who want only that; docs/attention.md has the formulas.
import { type BackendChoice, libraryOf } from './backend-library.ts';
import { awaitNative, callNative, SinkflexError } from './errors.ts';
import { addon } from './native.ts';

/** float32, or bf16 as the Uint16Array of its bits. */
export type AttentionArray = Float32Array | Uint16Array;

/** Where a tensor lies in its array, in elements; a head's `headDim` elements follow each other. */
export interface AttentionStrides {
  /** From one entry of the batch to the next; needed where batch > 1. */
  batch?: number;
  token: number;
  head: number;
}

export const sinkFunctions = ['sigmoid', 'gate', 'saturation'] as const;
/** sigmoid(lse - s), sigmoid(s), 1 - exp(-exp(lse - s)) */
export type SinkFunction = (typeof sinkFunctions)[number];

export interface SinkAttentionOptions<A extends AttentionArray = AttentionArray> extends BackendChoice {
  /** [batch, length, heads, headDim] */
  q: A;
  /** [batch, length, kvHeads, headDim]; query head h reads key head floor(h / (heads / kvHeads)) */
  k: A;
  v: A;
  heads: number;
  kvHeads: number;
  headDim: number;
  /** Packed sequences: [segments + 1], from 0 to the number of tokens. Without it every entry of the batch is one sequence. */
  cuSeqlens?: Int32Array;
  /** Entries of `length` tokens; default 1. With cuSeqlens each entry is packed alike. */
  batch?: number;
  /** Tokens of an entry; default what q holds. */
  length?: number;
  /** Default: dense, in the order above. */
  strides?: { q?: AttentionStrides; k?: AttentionStrides; v?: AttentionStrides; dout?: AttentionStrides };
  /** A query sees keys with q - k <= window of its segment; below 0 (default): all before it. Hugging Face's sliding_window is window + 1. */
  window?: number;
  /** Keys at positions below it are always seen; default 0. */
  prefix?: number;
  /** [batch, length], equal for the tokens of one document, which follow each other: keys of other documents are seen only in the prefix. */
  documents?: Int32Array;
  /** Above 0: scores become softcap * tanh(score / softcap). */
  softcap?: number;
  /** [heads], ALiBi: scores fall by slope * (q - k). */
  slopes?: Float32Array;
  /** Raw logit for each query head, not scaled; -Infinity or absent: no sink. */
  sink?: Float32Array;
  /** How the sink scales a row; default sigmoid, which is one more key of that score and value 0. */
  sinkFunction?: SinkFunction;
  /** Default 1 / sqrt(headDim). */
  scale?: number;
  threads?: number;
}

export interface SinkAttentionResult<A extends AttentionArray = Float32Array> {
  /** [batch, length, heads, headDim], dense, stored as q is */
  out: A;
  /** [batch, length, heads], natural log of the sum over the visible keys, and the sink where the sink function is sigmoid */
  lse: Float32Array;
}

export interface SinkAttentionGradients<A extends AttentionArray = Float32Array> {
  dq: A;
  dk: A;
  dv: A;
  dsink: Float32Array;
}

export type SinkAttentionBackwardOptions<A extends AttentionArray = AttentionArray> = SinkAttentionOptions<A> &
  SinkAttentionResult<A> & {
    /** Gradient with regard to out. */
    dout: A;
    /** Gradient with regard to lse; default 0. */
    dlse?: Float32Array;
  };

const native = addon as unknown as {
  attentionForward(o: object, async: boolean): unknown;
  attentionBackward(o: object, async: boolean): unknown;
};

function complete(o: SinkAttentionOptions): object {
  const batch = o.batch ?? 1;
  const function_ = sinkFunctions.indexOf(o.sinkFunction ?? 'sigmoid');
  if (function_ < 0) {
    throw new SinkflexError('SINKFLEX_BAD_ARGUMENT', `sinkFunction must be one of ${sinkFunctions.join(', ')}, it is ${o.sinkFunction}`);
  }
  let cuSeqlens = o.cuSeqlens;
  if (cuSeqlens === undefined) {
    const length = o.length ?? o.q.length / (o.heads * o.headDim * batch);
    if (!Number.isInteger(length) || length < 0 || length > 0x7fffffff) {
      throw new SinkflexError('SINKFLEX_BAD_ARGUMENT', `q must hold batch x length x heads x headDim elements, it has ${o.q.length}`);
    }
    cuSeqlens = Int32Array.of(0, length);
  } else if (o.length !== undefined && o.length !== cuSeqlens.at(-1)) {
    throw new SinkflexError('SINKFLEX_BAD_ARGUMENT', `length is ${o.length}, cuSeqlens ends at ${cuSeqlens.at(-1)}`);
  }
  return {
    ...o,
    ...libraryOf(o),
    batch,
    cuSeqlens,
    strides: o.strides ?? {},
    window: o.window ?? -1,
    prefix: o.prefix ?? 0,
    softcap: o.softcap ?? 0,
    sinkFunction: function_,
    documentStart: o.documents === undefined ? undefined : documentStarts(o.documents, cuSeqlens, batch),
    scale: o.scale ?? 1 / Math.sqrt(o.headDim),
    threads: o.threads ?? 1,
  };
}

/** For every token the position, inside its segment, of the first token of its document. */
function documentStarts(documents: Int32Array, cuSeqlens: Int32Array, batch: number): Int32Array {
  const length = cuSeqlens.at(-1) ?? 0;
  const starts = new Int32Array(documents.length);
  if (documents.length !== batch * length) return starts; // the addon says what is wrong
  for (let entry = 0; entry < batch; entry++) {
    for (let s = 0; s + 1 < cuSeqlens.length; s++) {
      const begin = entry * length + cuSeqlens[s]!;
      let first = begin;
      for (let t = begin; t < entry * length + cuSeqlens[s + 1]!; t++) {
        if (documents[t] !== documents[first]) first = t;
        starts[t] = first - begin;
      }
    }
  }
  return starts;
}

/**
 * out = f(lse, sink) softmax(scores of the visible keys) v; with the sigmoid the softmax over {scores, sink} without the sink's column.
 * Computes on the caller (and `threads` - 1 more) until it is done.
 *
 * @example
 * const { out, lse } = sinkAttention({ q, k, v, heads: 4, kvHeads: 2, headDim: 16, window: 127, sink });
 */
export function sinkAttention<A extends AttentionArray>(o: SinkAttentionOptions<A>): SinkAttentionResult<A> {
  return callNative(() => native.attentionForward(complete(o), false) as SinkAttentionResult<A>);
}

/** Gradients of sum(dout * out) + sum(dlse * lse), given the forward's out and lse. */
export function sinkAttentionBackward<A extends AttentionArray>(o: SinkAttentionBackwardOptions<A>): SinkAttentionGradients<A> {
  return callNative(() => native.attentionBackward(complete(o), false) as SinkAttentionGradients<A>);
}

/** sinkAttention off the event loop. The arrays must not change until it is done. */
export async function sinkAttentionAsync<A extends AttentionArray>(o: SinkAttentionOptions<A>): Promise<SinkAttentionResult<A>> {
  return await awaitNative(callNative(() => native.attentionForward(complete(o), true) as Promise<SinkAttentionResult<A>>));
}

/** sinkAttentionBackward off the event loop. The arrays must not change until it is done. */
export async function sinkAttentionBackwardAsync<A extends AttentionArray>(
  o: SinkAttentionBackwardOptions<A>,
): Promise<SinkAttentionGradients<A>> {
  return await awaitNative(callNative(() => native.attentionBackward(complete(o), true) as Promise<SinkAttentionGradients<A>>));
}
