// What generation takes and gives: requests, results, and the options that govern the cache.
import type { BackendChoice } from './backend-library.ts';
import type { MomentDtype, Shard } from './optimizer-state.ts';
import type { WeightStore } from './weight-store.ts';

/**
 * What becomes of keys and values of older weights once newer ones are taken (between two decode steps). 'kept': sequences go on over them.
 * 'dropped': a turn under way goes on over them; a turn that begins later reads its sequence again. 'recomputed': all tokens are read again
 * before the next one is drawn. In no case does another sequence begin from them.
 */
export type CacheOnUpdate = 'kept' | 'recomputed' | 'dropped';

export interface GenerateRequest {
  /** Appended to the sequence first: the prompt, or what the environment said. At least one token. */
  tokens: Int32Array;
  maxNewTokens: number;
  /** Generation ends after one of these was drawn; it is part of the result. */
  stopTokens: number[];
  /** 0: greedy. */
  temperature: number;
  /** 0 or absent: all. */
  topK?: number;
  /** 1 or absent: all. Of what topK leaves, the most likely tokens that together have this share. */
  topP?: number;
  /** 0 or absent: all. Tokens with at least this part of the largest probability; applied before topK and topP. */
  minP?: number;
  /** Text that ends the turn, as bytes, wherever tokens begin and end; the token that completes it is part of the result. Needs setTokenBytes. */
  stopStrings?: readonly Uint8Array[];
  /** No stop token before so many were drawn. Default 0. */
  minTokens?: number;
  /** Added to the logits of these tokens for the draw. Like the penalties it changes what is drawn and not the log-probabilities. */
  logitBias?: ReadonlyMap<number, number>;
  /** Taken once from the logit of a token that this turn has drawn. Default 0. */
  presencePenalty?: number;
  /** Taken for each time that this turn has drawn the token. Default 0. */
  frequencyPenalty?: number;
  /** Divides a positive logit, and multiplies a negative one, of every token of the sequence. Default 1. */
  repetitionPenalty?: number;
  /** The most likely tokens to report beside each one drawn. Default 0. */
  topLogprobs?: number;
  /** Keys of the counter-based generator, uint32 each: run seed, task, sample, turn. The engine adds the position. */
  key: readonly [number, number, number, number];
}

export interface GenerateResult {
  /** Including the stop token. */
  tokens: Int32Array;
  /** Of the full softmax at the temperature (at 1 for greedy), before topK and topP. */
  logprobs: Float32Array;
  /** Store version that each token was drawn with. */
  versions: Int32Array;
  /** Lineage of the first token. */
  lineage: number;
  /** Of the request's tokens, how many another sequence had read already under the same weights: they cost nothing. */
  cachedTokens: number;
  /** [n, topLogprobs], by decreasing probability, ties to the lower id; of the same distribution as logprobs. */
  topTokens?: Int32Array;
  topLogprobs?: Float32Array;
  /**
   * Where recordExperts is set, [tokens read, layers, experts a token] by decreasing weight: the expert choices for the tokens that this turn
   * read, its own draws too except the last. Turn after turn they make up all tokens of the sequence but the last. The largest value (255 of
   * bytes) stands for unknown. Bytes up to 254 experts.
   */
  experts?: Uint8Array | Uint16Array;
  /** Which of stopStrings ended the turn. */
  stopString?: number;
  /** context: the sequence has reached maxSequenceTokens, or the request did not fit (then no token was read or drawn). */
  stopReason: 'stop' | 'length' | 'context' | 'aborted';
}

/** One token as it is drawn. */
export interface DrawnToken {
  token: number;
  logprob: number;
  version: number;
  /** Where topLogprobs was asked for. */
  topTokens?: Int32Array;
  topLogprobs?: Float32Array;
}

export interface EngineOptions extends BackendChoice {
  store: WeightStore;
  /** Threads of each of the two native workers (generation, passes). Default 1. */
  threads?: number;
  /** Sequences open at a time. Default 64. */
  maxSequences?: number;
  /** Tokens of one sequence, prompt and all turns. Default 1024. */
  maxSequenceTokens?: number;
  /**
   * Token rows of one generation step: first one for each sequence that decodes, then chunks of prompts in order of arrival. Default
   * maxSequences + 256.
   */
  maxNumBatchedTokens?: number;
  /**
   * Tokens whose keys and values are held, over all sequences; at least maxSequenceTokens. Default maxSequences x maxSequenceTokens. With
   * less, sequences lose what was read when there is no room (between turns first, then those that arrived last) and read it again.
   */
  cacheTokens?: number;
  /** Tokens that another sequence has read under the same weights are not read again. Default true. */
  prefixCaching?: boolean;
  /** Results carry the expert choices of what was read, for routing replay (ForwardOptions.experts). Default false. */
  recordExperts?: boolean;
  /** Positions of every sequence that sliding windows always show, in generation and training alike. Default 0. */
  attentionPrefix?: number;
  /** Default 'kept'. */
  cacheOnUpdate?: CacheOnUpdate;
  /**
   * Of optimizerStep. `moments`: what they are kept in, default as in the slots of the store, else float32 (8 bytes a parameter; '8bit' takes 2).
   * `seed`: of the stochastic rounding in a bfloat16 store, default 0; what is drawn depends on it, the count of steps and the parameter alone.
   * `shard`: this engine keeps the moments of its part of the tensors alone (ZeRO-1), and steps by shardStep.
   */
  optimizer?: { moments?: MomentDtype; seed?: number; shard?: Shard };
}

/** A request as the native half reads it: every field there. */
export interface NativeRequest {
  tokens: Int32Array;
  maxNewTokens: number;
  stopTokens: Int32Array;
  stopStrings: readonly Uint8Array[];
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
  minTokens: number;
  biasTokens: Int32Array;
  bias: Float32Array;
  presencePenalty: number;
  frequencyPenalty: number;
  repetitionPenalty: number;
  topLogprobs: number;
  key: Float64Array;
}

const NO_TOKENS = new Int32Array(0);
const NO_BIAS = new Float32Array(0);
const NO_STRINGS: readonly Uint8Array[] = [];

export function nativeRequest(r: GenerateRequest): NativeRequest {
  return {
    tokens: r.tokens,
    maxNewTokens: r.maxNewTokens,
    stopTokens: Int32Array.from(r.stopTokens),
    stopStrings: r.stopStrings ?? NO_STRINGS,
    temperature: r.temperature,
    topK: r.topK ?? 0,
    topP: r.topP ?? 1,
    minP: r.minP ?? 0,
    minTokens: r.minTokens ?? 0,
    biasTokens: r.logitBias === undefined ? NO_TOKENS : Int32Array.from(r.logitBias.keys()),
    bias: r.logitBias === undefined ? NO_BIAS : Float32Array.from(r.logitBias.values()),
    presencePenalty: r.presencePenalty ?? 0,
    frequencyPenalty: r.frequencyPenalty ?? 0,
    repetitionPenalty: r.repetitionPenalty ?? 1,
    topLogprobs: r.topLogprobs ?? 0,
    key: Float64Array.from(r.key),
  };
}
