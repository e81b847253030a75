// The engine: generation with continuous batching, packed forward and backward, and the optimiser, over one WeightStore. All work runs on
// native threads; promises settle on the loop.
import { libraryOf } from './backend-library.ts';
import type { EngineStats } from './engine-stats.ts';
import { awaitNative, callNative, SinkflexError } from './errors.ts';
import {
  type DrawnToken,
  type EngineOptions,
  type GenerateRequest,
  type GenerateResult,
  type NativeRequest,
  nativeRequest,
} from './generation.ts';
import { toNative } from './model-config.ts';
import { frozen } from './mxfp4.ts';
import { addon } from './native.ts';
import { engineMoments, joinOptimizerShards, type MomentLayout, optimizerHeader, readOptimizerPieces } from './optimizer-state.ts';
import { keepOf } from './training-memory.ts';
import type { WeightStore } from './weight-store.ts';

export interface PackedBatch {
  /** [n] token ids of all segments, one after another. */
  ids: Int32Array;
  /** [segments + 1], from 0 to n. */
  cuSeqlens: Int32Array;
}

export interface ForwardOptions {
  /** Default 1. */
  temperature?: number;
  /** Keep what the backward needs (default false). One forward is kept at a time. */
  keep?: boolean;
  /** Activation checkpointing: keep each layer's input only and run the layer again in the backward. Less memory, a third more work, the same bits. */
  checkpointing?: boolean;
  /** [n], 1 where the log-probability and entropy of a token are wanted; the others are 0 and cost nothing in the head. */
  mask?: Uint8Array;
  /** Give the last token's state of each segment as well (default false). */
  hidden?: boolean;
  /**
   * Routing replay: [n, layers, experts a token], the experts that each token goes to, as generation recorded them (recordExperts); the largest
   * value (255 of bytes, 65535) lets the router choose. The router's weights of the experts, and their gradients, are computed as ever.
   */
  experts?: Uint8Array | Uint16Array;
}

export interface ForwardResult {
  /** [n], log p(ids[t] | the segment before t); 0 at a segment's first token and outside the mask. */
  logprobs: Float32Array;
  /** [n], nats, of the distribution that predicted token t. */
  entropy: Float32Array;
  /**
   * The router's load-balancing loss over all tokens of the batch and all layers, as transformers computes it: the number of experts times
   * sum f P. The number of experts a token where the load is even, more where it is not; 0 in a dense model.
   */
  routerAuxLoss: number;
  /** [segments, hidden size], with `hidden`: each segment's last token after the final norm; what a head for values or rewards stands on. */
  hidden?: Float32Array;
  lineage: number;
  version: number;
}

export interface OptimizerStep {
  lr: number;
  beta1?: number;
  beta2?: number;
  eps?: number;
  /** Decoupled; not applied to norms, biases and sinks. Default 0. */
  weightDecay?: number;
  /** Clips the gradients to this global norm; absent: no clipping. */
  maxGradNorm?: number;
  /** The version that is published, greater than the current one. */
  lineage: number;
  version: number;
}

interface NativeEngine {
  generate(slot: number, request: NativeRequest, streamed: boolean): Promise<GenerateResult>;
  onTokens(
    listener: (
      slots: Int32Array,
      tokens: Int32Array,
      logprobs: Float32Array,
      versions: Int32Array,
      counts?: Int32Array,
      topTokens?: Int32Array,
      topLogprobs?: Float32Array,
    ) => void,
  ): void;
  tokenBytes(bytes: Uint8Array, offsets: Int32Array): void;
  resetSequence(slot: number): void;
  abortSequence(slot: number): void;
  freeze(frozen: boolean): void;
  forward(
    ids: Int32Array,
    cuSeqlens: Int32Array,
    mask: Uint8Array | undefined,
    temperature: number,
    keep: number,
    experts: Uint8Array | Uint16Array | undefined,
    hidden: boolean,
  ): Promise<ForwardResult>;
  backward(dLogprobs: Float32Array, dEntropy: Float32Array | undefined, dRouterAuxLoss: number): Promise<void>;
  zeroGradients(): void;
  forgetMoments(): void;
  gradients(): Float32Array;
  optimizerStep(o: Required<OptimizerStep>, out?: Uint8Array): Promise<{ gradNorm: number }>;
  saveMoments(path: string, header: Uint8Array): Promise<void>;
  loadMoments(path: string, from: Float64Array, to: Float64Array, bytes: Float64Array, step: number): Promise<void>;
  stats(): Omit<EngineStats, 'openSequences' | 'waitingSequences'>;
  dispose(): Promise<void>;
}

const native = addon as unknown as {
  Engine: new (segment: object, config: object, layout: object, options: object, base?: object) => NativeEngine;
};

interface OpenSequence {
  slot: number;
  busy: boolean;
  closing: boolean;
}

/**
 * @example
 * const engine = new Engine({ store, threads: 2 });
 * const sequence = await engine.openSequence();
 * const turn = await engine.generate(sequence, { tokens, maxNewTokens: 64, stopTokens: [2], temperature: 1, key: [1, 0, 0, 0] });
 * engine.closeSequence(sequence);
 * await engine.dispose();
 */
export class Engine {
  readonly store: WeightStore;
  readonly maxSequences: number;
  readonly maxSequenceTokens: number;
  readonly #native: NativeEngine;
  readonly #moments: MomentLayout;
  /** Of all shards. */
  readonly #wholeMoments: MomentLayout;
  readonly #sequences = new Map<number, OpenSequence>();
  readonly #free: number[] = [];
  #waiting: { resolve(sequence: number): void; reject(e: unknown): void }[] = [];
  #next = 0;
  #disposed = false;
  /** Slot -> who hears the tokens that are drawn in it. */
  #listening = false;
  readonly #listeners = new Map<number, (drawn: DrawnToken) => void>();

  constructor(o: EngineOptions) {
    const { threads = 1, maxSequences = 64, maxSequenceTokens = 1024, prefixCaching = true, cacheOnUpdate = 'kept' } = o;
    this.store = o.store;
    this.maxSequences = maxSequences;
    this.maxSequenceTokens = maxSequenceTokens;
    const { whole, own, ...moments } = engineMoments(o.store, o.optimizer);
    this.#wholeMoments = whole;
    this.#moments = own;
    this.#native = callNative(
      () =>
        new native.Engine(
          o.store.segment.handle,
          { ...toNative(o.store.config, o.store.adapter?.config), prefix: o.attentionPrefix ?? 0 },
          o.store.layout,
          {
            ...libraryOf(o),
            threads,
            maxSequences,
            maxSequenceTokens,
            maxNumBatchedTokens: o.maxNumBatchedTokens ?? maxSequences + 256,
            cacheTokens: o.cacheTokens ?? maxSequences * Math.ceil(maxSequenceTokens / 64) * 64,
            prefixCaching,
            recordExperts: o.recordExperts ?? false,
            cacheOnUpdate,
            moments: { ...own, ...moments },
          },
          o.store.adapter === undefined ? undefined : { segment: o.store.adapter.base.segment.handle, layout: o.store.adapter.base.layout },
        ),
    );
    for (let slot = maxSequences - 1; slot >= 0; slot--) this.#free.push(slot);
  }

  /** Reserves a key/value cache; waits in order of arrival while all maxSequences are taken. */
  openSequence(): Promise<number> {
    if (this.#disposed) return Promise.reject(disposed());
    const slot = this.#free.pop();
    if (slot !== undefined) return Promise.resolve(this.#open(slot));
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
    });
  }

  #open(slot: number): number {
    const sequence = this.#next++;
    this.#sequences.set(sequence, { slot, busy: false, closing: false });
    return sequence;
  }

  /**
   * Reads `tokens` and draws up to maxNewTokens. One request a sequence at a time; other sequences are batched with it. `onToken` hears
   * every token as soon as its step is done (tokens of one step, whatever their sequence, in one turn of the loop); what it throws rejects.
   */
  async generate(sequence: number, r: GenerateRequest, onToken?: (drawn: DrawnToken) => void): Promise<GenerateResult> {
    const open = this.#sequences.get(sequence);
    if (this.#disposed) throw disposed();
    if (!open || open.closing)
      throw new SinkflexError('SINKFLEX_SEQUENCE_CLOSED', `sequence ${sequence} is not open`, { details: { sequence } });
    if (open.busy) {
      throw new SinkflexError('SINKFLEX_SEQUENCE_BUSY', `sequence ${sequence} is generating already`, { details: { sequence } });
    }
    const result = callNative(() => this.#native.generate(open.slot, nativeRequest(r), onToken !== undefined));
    open.busy = true;
    let failure: { error: unknown } | undefined;
    if (onToken !== undefined) {
      this.#listen();
      this.#listeners.set(open.slot, (drawn) => {
        if (failure !== undefined) return;
        try {
          onToken(drawn);
        } catch (error) {
          failure = { error };
          this.#native.abortSequence(open.slot);
        }
      });
    }
    try {
      const generated = await awaitNative(result);
      if (failure !== undefined) throw failure.error;
      return generated;
    } finally {
      this.#listeners.delete(open.slot);
      open.busy = false;
      if (open.closing) this.#release(sequence, open);
    }
  }

  /** What each token says, for stopStrings: token i is bytes [offsets[i], offsets[i + 1]); tokens that say nothing have none. Copied. */
  setTokenBytes(table: { bytes: Uint8Array; offsets: Int32Array }): void {
    if (this.#disposed) throw disposed();
    callNative(() => this.#native.tokenBytes(table.bytes, table.offsets));
  }

  #listen(): void {
    if (this.#listening) return;
    this.#listening = true;
    // Not `this`: the engine's native half holds the function, and would keep an engine that nobody refers to.
    const listeners = this.#listeners;
    this.#native.onTokens((slots, tokens, logprobs, versions, counts, topTokens, topLogprobs) => {
      let from = 0;
      for (let i = 0; i < slots.length; i++) {
        const drawn: DrawnToken = { token: tokens[i]!, logprob: logprobs[i]!, version: versions[i]! };
        if (counts !== undefined && counts[i]! > 0) {
          const end = from + counts[i]!;
          drawn.topTokens = topTokens!.subarray(from, end);
          drawn.topLogprobs = topLogprobs!.subarray(from, end);
          from = end;
        }
        listeners.get(slots[i]!)?.(drawn);
      }
    });
  }

  /** Ends the request under way as 'aborted', with the tokens drawn so far; the sequence stays open and goes on from there. */
  abort(sequence: number): void {
    const open = this.#sequences.get(sequence);
    if (open?.busy) this.#native.abortSequence(open.slot);
  }

  /** Gives the cache back. What generates in it ends as 'aborted' with the tokens drawn so far. Closing twice does nothing. */
  closeSequence(sequence: number): void {
    const open = this.#sequences.get(sequence);
    if (!open || open.closing) return;
    open.closing = true;
    if (open.busy) this.#native.abortSequence(open.slot);
    else this.#release(sequence, open);
  }

  #release(sequence: number, open: OpenSequence): void {
    this.#sequences.delete(sequence);
    if (this.#disposed) return;
    this.#native.resetSequence(open.slot);
    const next = this.#waiting.shift();
    if (next) next.resolve(this.#open(open.slot));
    else this.#free.push(open.slot);
  }

  /** While frozen, generation keeps the version it holds instead of taking newer ones. */
  freeze(frozen: boolean): void {
    callNative(() => this.#native.freeze(frozen));
  }

  /** Log-probabilities and entropies of a packed batch under the newest version. Passes run in the order of the calls. */
  async forward(b: PackedBatch, o: ForwardOptions = {}): Promise<ForwardResult> {
    if (o.keep) this.#requireLearning();
    const keep = keepOf(o.keep ?? false, o.checkpointing ?? false);
    return this.#call(() => this.#native.forward(b.ids, b.cuSeqlens, o.mask, o.temperature ?? 1, keep, o.experts, o.hidden ?? false));
  }

  /**
   * Adds the gradients of sum(dLogprobs logprobs + dEntropy entropy) + dRouterAuxLoss routerAuxLoss of the last kept forward. Without the
   * router's loss, which is one of a whole batch, they do not depend on how a batch is split.
   */
  backward(g: { dLogprobs: Float32Array; dEntropy?: Float32Array; dRouterAuxLoss?: number }): Promise<void> {
    return this.#call(() => this.#native.backward(g.dLogprobs, g.dEntropy, g.dRouterAuxLoss ?? 0));
  }

  zeroGradients(): void {
    callNative(() => this.#native.zeroGradients());
  }

  /**
   * The accumulated gradients themselves, not a copy, so that they can be changed before optimizerStep: each tensor at its gradientOffset / 4 of
   * store.layout. Ask anew after the last backward of each step (a tied head is folded in then), and leave the array alone while a pass is
   * under way. SINKFLEX_ENGINE_BUSY where one is.
   * @example
   * await engine.backward({ dLogprobs });
   * await collective.allReduce(engine.flatGradients(), 'sum'); // over the trainers of a host: see joinCollective
   * await engine.optimizerStep({ lr, lineage, version }); // the same bits on each of them
   */
  flatGradients(): Float32Array {
    return callNative(() => this.#native.gradients());
  }

  /** Copies of the gradients, by tensor. SINKFLEX_ENGINE_BUSY while passes are under way. */
  gradients(): Map<string, Float32Array> {
    const all = this.flatGradients();
    return new Map(this.store.layout.tensors.map((t) => [t.name, all.slice(t.gradientOffset / 4, t.gradientOffset / 4 + t.count)]));
  }

  /** AdamW from the accumulated gradients straight into the next slot, which is published; then the gradients are zeroed. */
  async optimizerStep(o: OptimizerStep): Promise<{ gradNorm: number }> {
    this.#requireLearning();
    return this.#call(() => this.#native.optimizerStep(whole(o)));
  }

  /**
   * The part of optimizerStep that falls to this engine's shard, after the gradients of the group were added up: the new bytes of its tensors go
   * to `out`, which is as long as shardRange says, and nothing is published. The norm, and so the clipping, is that of all gradients.
   */
  async shardStep(o: OptimizerStep, out: Uint8Array): Promise<{ gradNorm: number }> {
    this.#requireLearning();
    return this.#call(() => this.#native.optimizerStep(whole(o), out));
  }

  /** The next step is a first one: moments of zero, and a count that begins anew. */
  forgetMoments(): void {
    callNative(() => this.#native.forgetMoments());
  }

  /** Moments and step count, as safetensors; of a shard, its own. */
  saveOptimizer(path: string): Promise<void> {
    return this.#call(() => this.#native.saveMoments(path, optimizerHeader(this.#moments)));
  }

  /** Joins what the engines of all shards saved into the file that one engine would have saved. */
  joinOptimizer(shards: readonly string[], path: string): Promise<void> {
    return joinOptimizerShards(shards, path, this.#wholeMoments);
  }

  /** A file of all moments; a shard takes its own from it. Where the slots of the store hold them, WeightStore.loadFolder reads it. */
  loadOptimizer(path: string): Promise<void> {
    return this.#call(() => {
      if (this.store.moments !== undefined)
        throw new SinkflexError('SINKFLEX_BAD_ARGUMENT', 'the slots of this store hold the moments: give the file to loadFolder');
      const { from, to, bytes, step } = readOptimizerPieces(path, this.#wholeMoments, this.#moments);
      return this.#native.loadMoments(path, from, to, bytes, step);
    });
  }

  stats(): EngineStats {
    return { ...this.#native.stats(), openSequences: this.#sequences.size, waitingSequences: this.#waiting.length };
  }

  /** Stops both threads after the step under way; open promises reject with SINKFLEX_ENGINE_DISPOSED. */
  async dispose(): Promise<void> {
    this.#disposed = true;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const w of waiting) w.reject(disposed());
    await awaitNative(this.#native.dispose());
    this.#sequences.clear();
  }

  #requireLearning(): void {
    if (this.store.dtype === 'mxfp4') throw frozen('training a store of dtype mxfp4');
  }

  async #call<T>(call: () => Promise<T>): Promise<T> {
    return awaitNative(callNative(call));
  }
}

function whole(o: OptimizerStep): Required<OptimizerStep> {
  const { lr, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weightDecay = 0, maxGradNorm = 0, lineage, version } = o;
  return { lr, beta1, beta2, eps, weightDecay, maxGradNorm, lineage, version };
}

function disposed(): SinkflexError {
  return new SinkflexError('SINKFLEX_ENGINE_DISPOSED', 'the engine was disposed');
}
