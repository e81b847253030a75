/** A model folder ready to answer: weights, engine, tokenizer, chat template, and what its generation_config.json says. */
import { basename, resolve } from 'node:path';
import {
  deviceChoice,
  Engine,
  type EngineOptions,
  type GenerateRequest,
  probeDevice,
  readModelConfig,
  type WeightDtype,
  WeightStore,
} from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';
import {
  type ConversationTemplate,
  readModelChat,
  readsSpecialTokens,
  TextStream,
  type Tokenizer,
  type TurnFormat,
} from '../language/index.ts';
import { SequencePool } from './sequences.ts';

/** What goes to the engine as it is. */
const PASSED = ['minP', 'minTokens', 'logitBias', 'presencePenalty', 'frequencyPenalty', 'repetitionPenalty', 'topLogprobs'] as const;

export interface ServedModelOptions {
  /** Default: the folder's name. */
  name?: string;
  threads?: number;
  /** Where the engine computes: cpu (default), cuda or cuda:1. */
  device?: string;
  /** What the weights are held in; the engine computes in float32 either way. Default float32. */
  dtype?: WeightDtype;
  /** Sequences that generate at a time. Default 16. */
  maxSequences?: number;
  /** Tokens of a sequence, prompt and answer. Default: what the model was made for, at most 4096. */
  maxModelLength?: number;
  /** Options of the engine's cache. */
  engine?: Pick<EngineOptions, 'maxNumBatchedTokens' | 'cacheTokens' | 'prefixCaching'>;
  /** Milliseconds since 1970, for templates that name the day. */
  now?: () => number;
  /** How long a request waits for a sequence. Default 10 minutes. */
  waitMs?: number;
}

export interface Sampling extends Pick<GenerateRequest, (typeof PASSED)[number]> {
  maxNewTokens: number;
  temperature: number;
  topK: number;
  topP: number;
  /** Ids that end the answer besides the model's own. */
  stopTokens?: readonly number[];
  /** Text that ends the answer and is not part of it. */
  stop: readonly string[];
  /** Draw on after the model's own end of turn. */
  ignoreEos: boolean;
  key: readonly [number, number, number, number];
}

export interface Answer {
  text: string;
  tokens: Int32Array;
  logprobs: Float32Array;
  /** Version of the weights that drew each token. */
  versions: Int32Array;
  /** [n, topLogprobs], where they were asked for. */
  topTokens?: Int32Array;
  topLogprobs?: Float32Array;
  finish: 'stop' | 'length';
  /** Ids of the prompt that the engine had read already, for another request. */
  cachedTokens: number;
}

/** What a part of an answer says, as it comes. */
export interface Piece {
  text: string;
  token: number;
  logprob: number;
  topTokens?: Int32Array;
  topLogprobs?: Float32Array;
}

/** Sampling that generation_config.json recommends. */
export interface GenerationDefaults {
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
  repetitionPenalty: number;
}

/** A device that cannot be had is told before the weights are read. */
function storeFor(folder: string, o: ServedModelOptions): WeightStore {
  probeDevice(deviceChoice(o.device ?? 'cpu'));
  return WeightStore.create(readModelConfig(folder), { slots: 1, dtype: o.dtype ?? 'float32' });
}

export class ServedModel {
  readonly name: string;
  readonly folder: string;
  readonly tokenizer: Tokenizer;
  /** Undefined: the folder has none, so chats cannot be written. */
  readonly template: ConversationTemplate | undefined;
  readonly turnFormat: TurnFormat;
  readonly maxLength: number;
  readonly stopIds: readonly number[];
  readonly defaults: GenerationDefaults;
  readonly engine: Engine;
  readonly sequences: SequencePool;
  readonly #store: WeightStore;
  readonly #tokenBytes: ReturnType<Tokenizer['tokenBytes']>;

  /**
   * Reads a large model while the event loop turns; `onProgress` hears how many bytes of the weights are there.
   * @example
   * const model = await ServedModel.open('./gpt-oss-20b', { dtype: 'mxfp4', threads: 16 });
   */
  static async open(
    folder: string,
    { signal, onProgress, ...o }: ServedModelOptions & Parameters<WeightStore['loadFolderAsync']>[1] = {},
  ): Promise<ServedModel> {
    const store = storeFor(folder, o);
    try {
      await store.loadFolderAsync(folder, { ...(signal && { signal }), ...(onProgress && { onProgress }) });
    } catch (error) {
      store.close();
      throw error;
    }
    return new ServedModel(folder, o, store);
  }

  /** `store`: one that has the folder's weights, and is closed with the model; by default they are read here. */
  constructor(folder: string, o: ServedModelOptions = {}, store?: WeightStore) {
    this.folder = resolve(folder);
    this.name = o.name ?? basename(this.folder);
    const config = readModelConfig(this.folder);
    const { generation, ...chat } = readModelChat(this.folder, { now: o.now ?? Date.now });
    this.tokenizer = chat.tokenizer;
    this.template = chat.template;
    this.turnFormat = chat.turnFormat;
    this.stopIds = chat.stopIds;
    const number = (value: unknown, fallback: number): number => (typeof value === 'number' && value >= 0 ? value : fallback);
    const greedy = generation.do_sample === false;
    this.defaults = {
      temperature: greedy ? 0 : number(generation.temperature, 1),
      topK: number(generation.top_k, 0),
      topP: number(generation.top_p, 1) || 1,
      minP: Math.min(number(generation.min_p, 0), 1),
      repetitionPenalty: number(generation.repetition_penalty, 1) || 1,
    };
    this.maxLength = o.maxModelLength ?? Math.min(config.max_position_embeddings, 4096);
    this.#store = store ?? storeFor(this.folder, o);
    try {
      if (store === undefined) this.#store.loadFolder(this.folder);
      this.engine = new Engine({
        store: this.#store,
        ...deviceChoice(o.device ?? 'cpu'),
        threads: o.threads ?? 1,
        maxSequences: o.maxSequences ?? 16,
        maxSequenceTokens: this.maxLength,
        ...(o.engine ?? {}),
      });
      this.#tokenBytes = this.tokenizer.tokenBytes();
      if (this.#tokenBytes !== undefined) this.engine.setTokenBytes(this.#tokenBytes);
    } catch (error) {
      this.#store.close();
      throw error;
    }
    this.sequences = new SequencePool(this.engine, { waitMs: o.waitMs ?? 600_000 });
  }

  /** Whether a chat's text must keep special tokens, since its format is written in them. */
  get chatSpecials(): boolean {
    return readsSpecialTokens(this.turnFormat);
  }

  /** What a token says, also where it is part of a character; special tokens say their names. */
  bytesOf(token: number): Uint8Array {
    const { bytes, offsets } = this.#tokenBytes ?? {};
    if (bytes === undefined || this.tokenizer.isSpecial(token)) return Buffer.from(this.tokenizer.decode([token]));
    return bytes.subarray(offsets![token], offsets![token + 1]);
  }

  /** Draws one answer to `prompt`. `onPiece` hears its text as it comes; an abort ends it with SINKFLEX_ABORTED and frees its sequence. */
  async answer(
    prompt: Int32Array,
    sampling: Sampling,
    o: { onPiece?: (piece: Piece) => void; signal?: AbortSignal; specials?: boolean } = {},
  ): Promise<Answer> {
    const room = this.maxLength - prompt.length;
    if (prompt.length === 0) throw new ActorsError('SINKFLEX_REQUEST_INVALID', 'the prompt is empty');
    if (room < 1)
      throw new ActorsError(
        'SINKFLEX_REQUEST_INVALID',
        `the prompt has ${prompt.length} tokens and the model's length is ${this.maxLength}: nothing could be drawn`,
        { details: { param: 'messages', code: 'context_length_exceeded' } },
      );
    const sequence = await this.sequences.take(o.signal);
    const stream = new TextStream(this.tokenizer, sampling.stop, { specials: o.specials ?? false });
    const drawn: number[] = [];
    const abort = (): void => this.engine.abort(sequence);
    o.signal?.addEventListener('abort', abort, { once: true });
    try {
      const result = await this.engine.generate(
        sequence,
        {
          tokens: prompt,
          maxNewTokens: Math.min(sampling.maxNewTokens, room),
          stopTokens: [...(sampling.ignoreEos ? [] : this.stopIds), ...(sampling.stopTokens ?? [])],
          // The engine stops at the very token; where it does not know what tokens say, the text does, a few tokens later.
          ...(this.#tokenBytes !== undefined
            ? { stopStrings: sampling.stop.map((stop) => Buffer.from(stop)).filter((stop) => stop.length > 0) }
            : {}),
          ...Object.fromEntries(PASSED.flatMap((key) => (sampling[key] === undefined ? [] : [[key, sampling[key]]]))),
          temperature: sampling.temperature,
          topK: sampling.topK,
          topP: sampling.topP,
          key: sampling.key,
        },
        ({ token, logprob, topTokens, topLogprobs }) => {
          if (stream.stopped !== undefined || o.signal?.aborted) return;
          drawn.push(token);
          const text = stream.push(token);
          o.onPiece?.({ text, token, logprob, ...(topTokens === undefined ? {} : { topTokens, topLogprobs: topLogprobs! }) });
          if (stream.stopped !== undefined) this.engine.abort(sequence);
        },
      );
      if (o.signal?.aborted) throw new ActorsError('SINKFLEX_ABORTED', 'the caller has gone');
      const rest = stream.end();
      if (rest !== '') o.onPiece?.({ text: rest, token: -1, logprob: 0 });
      const count = drawn.length; // what was drawn before the stop string was noticed and not after
      return {
        text: stream.text,
        tokens: result.tokens.slice(0, count),
        logprobs: result.logprobs.slice(0, count),
        versions: result.versions.slice(0, count),
        ...(result.topTokens === undefined ? {} : { topTokens: result.topTokens, topLogprobs: result.topLogprobs! }),
        finish: stream.stopped !== undefined || result.stopReason === 'stop' ? 'stop' : 'length',
        cachedTokens: result.cachedTokens,
      };
    } finally {
      o.signal?.removeEventListener('abort', abort);
      this.sequences.give(sequence);
    }
  }

  async close(): Promise<void> {
    await this.engine.dispose();
    this.#store.close();
  }
}
