// A WeightStore is a versioned segment whose every slot is a whole safetensors image of one model configuration: publishing weights is a
// flip, a checkpoint is a slot written to disk, and every engine of the host reads the same memory.
import { mkdirSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ADAPTER_WEIGHTS, adapterChain, mergeAdapters, readAdapterConfig, readModelConfig } from './adapter-folder.ts';
import { Checkpoint } from './checkpoint.ts';
import { SinkflexError } from './errors.ts';
import { imageParts, writeWhole } from './image-file.ts';
import { adapterConfigJson, type LoraConfig, parseLora } from './lora.ts';
import { mergedImage } from './merged-image.ts';
import { type ModelConfig, mxfp4Quantization, parseModelConfig, toHuggingFace } from './model-config.ts';
import { type MomentDtype, momentLayout, momentSection, readOptimizerInto, slotBytes } from './optimizer-state.ts';
import { checkSeed, initialiseSlice } from './random-weights.ts';
import { type Pin, type Slot, type Version, VersionedSegment, type Writing } from './segment.ts';
import { SlotTensors } from './slot-tensors.ts';
import type { LoadOptions, StoreAddress, StoreOptions, TensorView } from './store-types.ts';
import { type TensorLayout, tensorLayout, type WeightDtype } from './tensor-layout.ts';

/**
 * @example
 * const store = WeightStore.create(parseModelConfig(json));
 * store.initialise(1);
 * const pin = store.pin();
 * store.tensors(pin).get('model.norm.weight')?.data;
 * pin.release();
 */
export class WeightStore {
  readonly config: ModelConfig;
  readonly layout: TensorLayout;
  /** What matrices are stored in. Adapters are float32 always. */
  readonly dtype: WeightDtype;
  /** The segment below, for the engine and for measurements. */
  readonly segment: VersionedSegment;
  /** What AdamW's moments are kept in, in a store whose slots hold them: publishing then commits the whole state of training. */
  readonly moments: MomentDtype | undefined;
  /** Present in a store of LoRA adapters: its slots hold nothing else, and engines compute with the frozen base below. */
  readonly adapter: { config: LoraConfig; base: WeightStore } | undefined;
  #folder: string | undefined;

  private constructor(
    config: ModelConfig,
    segment: VersionedSegment,
    layout: TensorLayout,
    o: { adapter?: { config: LoraConfig; base: WeightStore }; dtype?: WeightDtype; moments?: MomentDtype | undefined },
  ) {
    this.dtype = o.dtype ?? 'float32';
    this.moments = o.moments;
    this.adapter = o.adapter;
    this.config = config;
    this.layout = layout;
    this.segment = segment;
  }

  /**
   * `dtype`: what matrices (not norms, biases and sinks) are stored and read in; engines compute in float32 either way. bfloat16 halves the
   * memory, and an optimiser step rounds stochastically. mxfp4 is for checkpoints of gpt_oss whose experts are in MXFP4: they stay so, at 4.25 bits
   * a weight, and are widened inside the products, bit for bit as in bfloat16; such a store generates and scores, and adapters over it learn
   * (SINKFLEX_STORE_FROZEN for anything else). `moments`: each slot holds those of AdamW and its count of steps too (8 bytes a parameter, or 2),
   * so that whoever opens the store goes on from its newest version to the bit, whenever the trainer before ended.
   */
  static create(config: ModelConfig, { dtype = 'float32', moments, ...o }: StoreOptions & { dtype?: WeightDtype } = {}): WeightStore {
    const checked = parseModelConfig(config);
    const layout = tensorLayout(checked, undefined, dtype);
    const segment = VersionedSegment.create({ slotBytes: slotBytes(layout, moments), ...o });
    return new WeightStore(checked, segment, layout, { dtype, moments });
  }

  /**
   * A store of LoRA adapters over `base`, whose current version must stay as it is: publishing moves the adapters only. Checkpoints are PEFT
   * folders (adapter_config.json, adapter_model.safetensors); `saveMerged` writes the whole model.
   * @example
   * const store = WeightStore.createAdapter(base, { r: 16, lora_alpha: 32, target_modules: 'all-linear' });
   * store.initialise(1);
   */
  static createAdapter(
    base: WeightStore,
    lora: { r: number; lora_alpha: number; target_modules: readonly string[] | string },
    { moments, ...o }: StoreOptions = {},
  ): WeightStore {
    const config = parseLora(lora, base.config);
    const layout = tensorLayout(base.config, config);
    const segment = VersionedSegment.create({ slotBytes: slotBytes(layout, moments), ...o });
    return new WeightStore(base.config, segment, layout, { adapter: { config, base }, moments });
  }

  /** Bytes of one image of this configuration, or of adapters to it: of a slot, and of its file. Takes no memory. */
  static imageBytes(config: ModelConfig, o: { lora?: LoraConfig | undefined; dtype?: WeightDtype } = {}): number {
    return tensorLayout(config, o.lora, o.dtype).totalBytes;
  }

  static open(address: StoreAddress): WeightStore {
    const config = parseModelConfig(address.config);
    const base = address.adapter === undefined ? undefined : WeightStore.open(address.adapter.base);
    const layout = tensorLayout(config, address.adapter?.config, address.dtype);
    const segment = VersionedSegment.open(address.segment);
    const needed = slotBytes(layout, address.moments);
    if (segment.slotBytes < needed) {
      segment.close();
      throw new SinkflexError(
        'SINKFLEX_STORE_MISMATCH',
        `the store's slots hold ${segment.slotBytes} bytes, an image of this configuration has ${needed}`,
      );
    }
    const store = new WeightStore(config, segment, layout, {
      ...(base === undefined ? {} : { adapter: { config: address.adapter!.config, base } }),
      ...(address.dtype === undefined ? {} : { dtype: address.dtype }),
      moments: address.moments,
    });
    store.#folder = address.folder;
    return store;
  }

  get address(): StoreAddress {
    return {
      segment: this.segment.address,
      config: this.config,
      ...(this.dtype === 'float32' ? {} : { dtype: this.dtype }),
      ...(this.moments === undefined ? {} : { moments: this.moments }),
      ...(this.adapter === undefined ? {} : { adapter: { config: this.adapter.config, base: this.adapter.base.address } }),
      ...(this.#folder === undefined ? {} : { folder: this.#folder }),
    };
  }

  current(): Version | undefined {
    return this.segment.current();
  }

  pin(): Pin {
    return this.segment.pin();
  }

  waitForVersion(after?: number | { lineage: number; version: number }, o: { timeoutMs?: number } = {}): Promise<Version> {
    return this.segment.waitForVersion(after, o);
  }

  /** Random weights (normal, initializer_range; residual projections / sqrt(2 layers); norms 1, biases and sinks 0): version 0 of `lineage`. */
  initialise(seed: number, lineage = 0): void {
    checkSeed(seed);
    this.#write({ lineage, version: 0 }, (slot) => {
      for (const fill of this.#initialSlices(slot, seed)) fill();
    });
  }

  /** The same weights bit for bit, made in slices between which the event loop turns: for large models. An abort publishes nothing. */
  async initialiseAsync(seed: number, o: { lineage?: number; signal?: AbortSignal } = {}): Promise<void> {
    checkSeed(seed);
    o.signal?.throwIfAborted();
    const writing = await this.segment.beginWrite();
    try {
      for (const fill of this.#initialSlices(this.#beginImage(writing), seed)) {
        fill();
        await nextTurn();
        o.signal?.throwIfAborted();
      }
      writing.publish({ lineage: o.lineage ?? 0, version: 0 });
    } catch (e) {
      writing.abort();
      throw e;
    }
  }

  *#initialSlices(slot: SlotTensors, seed: number): Generator<() => void> {
    for (const [stream, t] of this.layout.tensors.entries()) {
      const of = { seed, stream, config: this.config, rank: this.adapter && t.shape[0], count: t.count };
      for (let from = 0; from < t.count; from += INITIALISED_AT_ONCE)
        yield () => slot.edit(t, (data) => initialiseSlice(t.name, data, of, from), from, Math.min(t.count, from + INITIALISED_AT_ONCE));
    }
  }

  /**
   * Copies a Hugging Face folder (config.json and model.safetensors, or shards with their index; F32, BF16, F16, experts also MXFP4) into a slot and
   * publishes it, by default as the next version. The folder's configuration must be the store's. Of a PEFT folder the adapters are merged into
   * the model that it names; a store of adapters takes them as they are. `optimizer`: a file of saveOptimizer that moments in the slots are
   * read from; without it they begin anew.
   */
  loadFolder(dir: string, v?: { lineage: number; version: number }, o: { optimizer?: string } = {}): void {
    const source = this.#openFolder(dir, o.optimizer);
    try {
      this.#write(
        v ?? this.#following(),
        (slot) => {
          for (const _ of this.#copy(source, slot));
        },
        o.optimizer,
      );
    } finally {
      source.checkpoint.close();
    }
    this.#rememberFolder(dir);
  }

  /**
   * The same in slices between which the event loop turns: for large models. `onProgress` hears how many of the image's bytes are there. An
   * abort publishes nothing.
   */
  async loadFolderAsync(dir: string, o: LoadOptions = {}): Promise<void> {
    o.signal?.throwIfAborted();
    const source = this.#openFolder(dir, o.optimizer);
    try {
      const writing = await this.segment.beginWrite();
      try {
        let done = 0;
        for (const bytes of this.#copy(source, this.#beginImage(writing, o.optimizer))) {
          done += bytes;
          o.onProgress?.(done, this.layout.dataBytes);
          await nextTurn();
          o.signal?.throwIfAborted();
        }
        writing.publish(o.as ?? this.#following());
      } catch (e) {
        writing.abort();
        throw e;
      }
    } finally {
      source.checkpoint.close();
    }
    this.#rememberFolder(dir);
  }

  /** Only models are named by adapters that are saved over them. */
  #rememberFolder(dir: string): void {
    if (this.adapter === undefined) this.#folder = resolve(dir);
  }

  #following(): { lineage: number; version: number } {
    const now = this.current();
    return { lineage: now?.lineage ?? 0, version: now ? now.version + 1 : 0 };
  }

  /** What a folder has for this store: its weights, checked, and the adapters to merge into them, lowest first. */
  #openFolder(dir: string, optimizer: string | undefined): { checkpoint: Checkpoint; adapters: string[] } {
    if (optimizer !== undefined && this.moments === undefined)
      throw new SinkflexError(
        'SINKFLEX_BAD_ARGUMENT',
        'the slots of this store hold no moments: create it with moments, or give the file to engine.loadOptimizer',
      );
    if (this.adapter !== undefined) {
      const stored = readAdapterConfig(dir, this.config);
      const { config } = this.adapter;
      if (JSON.stringify(stored) !== JSON.stringify(config))
        throw new SinkflexError(
          'SINKFLEX_STORE_MISMATCH',
          `${join(dir, 'adapter_config.json')} has ${JSON.stringify(stored)}, the store was created with ${JSON.stringify(config)}`,
        );
      return { checkpoint: Checkpoint.open(dir, this.layout.tensors, ADAPTER_WEIGHTS), adapters: [] };
    }
    const config = readModelConfig(dir);
    for (const key of new Set([...Object.keys(config), ...Object.keys(this.config)]) as Set<keyof ModelConfig>) {
      if (harmlessKeys.has(key) || JSON.stringify(config[key]) === JSON.stringify(this.config[key])) continue;
      throw new SinkflexError(
        'SINKFLEX_STORE_MISMATCH',
        `${join(dir, 'config.json')}: ${key} is ${JSON.stringify(config[key])}, the store was created with ${JSON.stringify(this.config[key])}`,
        { details: { key } },
      );
    }
    const { model, adapters } = adapterChain(dir);
    return { checkpoint: Checkpoint.open(model, this.layout.tensors), adapters };
  }

  /** Yields the bytes of the image that each slice has filled. */
  *#copy({ checkpoint, adapters }: { checkpoint: Checkpoint; adapters: string[] }, slot: SlotTensors): Generator<number> {
    for (const t of this.layout.tensors) yield* checkpoint.fill(slot, t);
    for (const each of adapters) {
      mergeAdapters(each, this.config, (name, edit) => slot.editNamed(name, edit));
      yield 0;
    }
  }

  /**
   * The whole model with the adapters merged into the base, as a Hugging Face folder; over experts in MXFP4, in bfloat16. In a store without
   * adapters: saveFolder.
   */
  saveMerged(dir: string): void {
    if (this.adapter === undefined) {
      this.saveFolder(dir);
      return;
    }
    const { config: lora, base } = this.adapter;
    const [pin, under] = [this.pin(), base.pin()];
    try {
      const adapters = this.tensors(pin);
      const { image, dtype } = mergedImage({
        ...{ config: this.config, lora, adapter: (name) => adapters.get(name)!.data },
        base: { layout: base.layout, dtype: base.dtype, slot: under },
      });
      try {
        mkdirSync(dir, { recursive: true });
        writeWhole(dir, 'model.safetensors', imageParts(image, image.bytes));
        writeWhole(dir, 'config.json', [base.#configJson(dtype)]);
      } finally {
        image.release();
      }
    } finally {
      pin.release();
      under.release();
    }
  }

  /**
   * Writes config.json and model.safetensors; transformers opens the folder. A store of adapters writes what PEFT opens instead. Files appear
   * whole and synced.
   */
  saveFolder(dir: string, pin?: Pin): void {
    const held = pin ?? this.pin();
    try {
      mkdirSync(dir, { recursive: true });
      for (const [name, content] of this.#folderFiles(held)) writeWhole(dir, name, content);
    } finally {
      if (!pin) held.release();
    }
  }

  /** The same while the event loop turns: of the version that is current when it is called, whatever is published meanwhile. */
  async saveFolderAsync(dir: string): Promise<void> {
    const pin = this.pin();
    try {
      mkdirSync(dir, { recursive: true });
      for (const [name, content] of this.#folderFiles(pin)) {
        const file = await open(join(dir, name), 'w');
        try {
          for (const part of content) for (let done = 0; done < part.length; ) done += (await file.write(part, done)).bytesWritten;
          await file.sync();
        } finally {
          await file.close();
        }
      }
    } finally {
      pin.release();
    }
  }

  #folderFiles(pin: Pin): [name: string, content: Iterable<Uint8Array>][] {
    const image = imageParts(pin, this.layout.totalBytes);
    const model: [string, Uint8Array[]] = ['config.json', [this.#configJson()]];
    if (this.adapter === undefined) return [['model.safetensors', image], model];
    const adapters = adapterConfigJson(this.adapter.config, this.adapter.base.#folder ?? null);
    return [[ADAPTER_WEIGHTS, image], ['adapter_config.json', [jsonBytes(adapters)]], model];
  }

  /** Tensors of a pinned version: float32 ones are views, which end with the pin, others widened copies. */
  tensors(pin: Pin): Map<string, TensorView> {
    const slot = this.#tensorsOf(pin);
    return new Map(this.layout.tensors.map((t) => [t.name, { shape: [...t.shape], data: slot.read(t) }]));
  }

  close(): void {
    this.segment.close();
    this.adapter?.base.close();
  }

  #configJson(dtype = this.adapter?.base.dtype ?? this.dtype): Uint8Array {
    const stored = dtype === 'mxfp4' ? { torch_dtype: 'bfloat16', quantization_config: mxfp4Quantization } : { torch_dtype: dtype };
    return jsonBytes({ ...toHuggingFace(this.config), ...stored });
  }

  #tensorsOf(slot: Slot): SlotTensors {
    return new SlotTensors(this.layout, (offset, bytes) => slot.view(offset, bytes));
  }

  /** `optimizer`: a file with the moments of the slot; else they are those of a first step. */
  #beginImage(writing: Writing, optimizer?: string): SlotTensors {
    writing.view(0, this.layout.dataStart).set(this.layout.header);
    if (this.moments !== undefined) {
      const moments = momentLayout(this.layout, this.moments);
      const { start, end } = momentSection(this.layout, moments);
      const section = (from: number, bytes: number): Uint8Array => writing.view(start + from, bytes);
      if (optimizer !== undefined) readOptimizerInto(optimizer, moments, section);
      else
        for (let from = 0; from < end - start; from += CLEARED_AT_ONCE)
          section(from, Math.min(CLEARED_AT_ONCE, end - start - from)).fill(0);
    }
    return this.#tensorsOf(writing);
  }

  #write(v: { lineage: number; version: number }, fill: (slot: SlotTensors) => void, optimizer?: string): void {
    const writing = this.segment.beginWriteNow();
    try {
      fill(this.#beginImage(writing, optimizer));
      writing.publish(v);
    } catch (e) {
      writing.abort();
      throw e;
    }
  }
}

const jsonBytes = (value: unknown): Uint8Array => new TextEncoder().encode(`${JSON.stringify(value, null, 2)}\n`);

/** Bytes of moments that are cleared through one view. */
const CLEARED_AT_ONCE = 2 ** 30;

/** Elements filled between two turns of the event loop: some 3 ms. Even, since normal values come in pairs. */
const INITIALISED_AT_ONCE = 1 << 16;

/** Keys that may differ between a folder and the store: they change no number that the engine computes. */
const harmlessKeys = new Set<keyof ModelConfig>(['eos_token_id', 'pad_token_id', 'bos_token_id', 'initializer_range']);
