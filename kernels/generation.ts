// What generation takes and gives: requests, results, and the options that govern the cache.
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
  /** 1 or absent: all. */
  topP?: number;
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
  /** context: the sequence has reached maxSequenceTokens, or the request did not fit (then no token was read or drawn). */
  stopReason: 'stop' | 'length' | 'context' | 'aborted';
}

/** One token as it is drawn. */
export interface DrawnToken {
  token: number;
  logprob: number;
  version: number;
}

export interface EngineOptions {
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
  /** Default 'kept'. */
  cacheOnUpdate?: CacheOnUpdate;
}
