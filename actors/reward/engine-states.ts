/**
 * Hidden states from our own engine: an episode written in a model's chat format, read once, and the state of its last token after the final
 * norm. Read when first asked, so that settings can be checked without the weights; passes run off the event loop.
 */
import { Engine, readModelConfig, WeightStore } from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';
import { type ModelChat, readModelChat } from '../language/index.ts';
import type { HiddenStates } from './reward-model.ts';
import type { ScoredEpisode } from './types.ts';

export interface EngineStatesOptions {
  /** Threads of a pass. Default 1. */
  threads?: number;
  /** Longest episode in tokens; of a longer one its end is read. Default 8192, or what the model was made for. */
  maxTokens?: number;
}

export class EngineStates implements HiddenStates {
  readonly folder: string;
  readonly width: number;
  readonly #chat: ModelChat;
  readonly #threads: number;
  readonly #maxTokens: number;
  #loaded: Promise<{ store: WeightStore; engine: Engine }> | undefined;
  #closed = false;

  /** A model's folder with its tokenizer and chat template. Reads its configuration alone. */
  constructor(folder: string, o: EngineStatesOptions = {}) {
    this.folder = folder;
    const config = readModelConfig(folder);
    this.width = config.hidden_size;
    this.#threads = o.threads ?? 1;
    this.#maxTokens = Math.min(o.maxTokens ?? 8192, config.max_position_embeddings);
    this.#chat = readModelChat(folder, { now: Date.now });
    if (!this.#chat.template) {
      throw new ActorsError('SINKFLEX_REWARD_OPTION', `a reward model needs a chat template to read episodes, and ${folder} has none`, {
        details: { folder },
      });
    }
  }

  /** Token ids that stand for an episode. */
  ids(episode: Pick<ScoredEpisode, 'messages'>): Int32Array {
    const ids = this.#chat.tokenizer.encode(this.#chat.template!.render(episode.messages, { generationPrompt: false }));
    return ids.length > this.#maxTokens ? ids.slice(-this.#maxTokens) : ids;
  }

  async last(episode: Pick<ScoredEpisode, 'messages'>, signal?: AbortSignal): Promise<Float32Array> {
    const [state] = await this.lastOf([episode], signal);
    return state!;
  }

  /** Of several at once, in one packed pass; the states are those of each alone. */
  async lastOf(episodes: readonly Pick<ScoredEpisode, 'messages'>[], signal?: AbortSignal): Promise<Float32Array[]> {
    if (episodes.length === 0) return [];
    const all = episodes.map((e) => this.ids(e));
    const cuSeqlens = new Int32Array(all.length + 1);
    for (const [i, ids] of all.entries()) {
      if (ids.length === 0) throw new ActorsError('SINKFLEX_REWARD_FAILED', 'a reward model was given an episode without a word');
      cuSeqlens[i + 1] = cuSeqlens[i]! + ids.length;
    }
    const packed = new Int32Array(cuSeqlens.at(-1)!);
    for (const [i, ids] of all.entries()) packed.set(ids, cuSeqlens[i]!);
    signal?.throwIfAborted();
    // Nobody asks for log-probabilities: the head over the vocabulary is left out.
    const { hidden } = await (await this.#engine()).forward(
      { ids: packed, cuSeqlens },
      { mask: new Uint8Array(packed.length), hidden: true },
    );
    return all.map((_, i) => hidden!.slice(i * this.width, (i + 1) * this.width));
  }

  async close(): Promise<void> {
    this.#closed = true;
    const loaded = this.#loaded;
    this.#loaded = undefined;
    const read = await loaded?.catch(() => undefined);
    await read?.engine.dispose();
    read?.store.close();
  }

  async #engine(): Promise<Engine> {
    if (this.#closed) throw new ActorsError('SINKFLEX_REWARD_FAILED', 'the reward model was closed');
    this.#loaded ??= this.#load();
    return (await this.#loaded).engine;
  }

  async #load(): Promise<{ store: WeightStore; engine: Engine }> {
    const store = WeightStore.create(readModelConfig(this.folder), { slots: 1 });
    try {
      await store.loadFolderAsync(this.folder);
      return { store, engine: new Engine({ store, threads: this.#threads, maxSequences: 1, maxSequenceTokens: 64 }) };
    } catch (error) {
      this.#loaded = undefined; // the next call tries again
      store.close();
      throw error;
    }
  }
}
