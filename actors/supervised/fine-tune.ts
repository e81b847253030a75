/**
 * Supervised fine-tuning of a model folder on files of examples: epochs in seeded orders, AdamW with a schedule, validation, checkpoints
 * that go on bit for bit, and at the end a folder that transformers (and the rest of this package) opens.
 */
import { cpSync, existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import {
  deviceChoice,
  Engine,
  type MomentDtype,
  parseLora,
  probeDevice,
  readModelConfig,
  type WeightDtype,
  WeightStore,
} from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';
import { readModelChat, tokenizerFilesOf } from '../language/index.ts';
import { type MetricSink, openMetrics } from '../pipeline/metric-files.ts';
import type { ProgressListener } from '../pipeline/progress.ts';
import { checkOutput } from '../pipeline/run-folder.ts';
import {
  checkpointName,
  crossEntropy,
  DemonstrationOrder,
  learningRate,
  type MaskedSequence,
  modelFolder,
  newestWhole,
  packDemonstrations,
  readCheckpoint,
  refuseRouterLoss,
  type Schedule,
  sweepCheckpoints,
  writeCheckpoint,
} from '../trainer/index.ts';
import { Ledger } from '../trajectory/index.ts';
import { type ExampleReader, readExamples } from './examples.ts';
import { checkTrainingMemory } from './memory.ts';

export interface FineTuneOptions {
  /** Hugging Face folder with its tokenizer. */
  model: string;
  train: string;
  val?: string;
  /** A folder that is new or empty, unless `resume`. */
  output: string;
  /** Go on from the last checkpoint in `output`. */
  resume: boolean;
  epochs: number;
  /** Examples of one optimiser step. */
  batchSize: number;
  lr: number;
  warmupRatio: number;
  schedule: Schedule['kind'];
  /** Share of lr that is left at the end (linear, cosine). */
  minLrRatio: number;
  weightDecay: number;
  betas: readonly [number, number];
  /** 0: no clipping. */
  gradClip: number;
  maxLength: number;
  truncation: ExampleReader['truncation'];
  /** Tokens of one pass forward and backward. */
  microBatchTokens: number;
  /** Activation checkpointing. */
  gradientCheckpointing?: boolean;
  /** Learn LoRA adapters of this rank over the frozen model; 0 or absent: all weights. */
  loraRank?: number;
  loraAlpha?: number;
  /** PEFT's names, or all-linear. */
  targetModules?: readonly string[];
  /** Weight of the router's load-balancing loss, for models with experts; 0 or absent: none. */
  routerAuxLossCoef?: number;
  /** What matrices are stored in (with adapters, those of the frozen model); absent: float32. */
  dtype?: WeightDtype;
  /** adamw_8bit keeps the moments in 2 bytes a parameter instead of 8. */
  optim?: 'adamw' | 'adamw_8bit';
  /** Steps between checkpoints; 0: none but the last. */
  saveSteps: number;
  /** Steps between validations; 0: at the end of each epoch. */
  valSteps: number;
  seed: number;
  threads: number;
  /** Where the engine computes: cpu (default), cuda or cuda:1. */
  device?: string;
  signal?: AbortSignal;
  onProgress?: ProgressListener;
}

export interface FineTuneResult {
  /** The model that came out. */
  model: string;
  steps: number;
  examples: number;
  /** Tokens learnt from, over all steps. */
  tokens: number;
  loss: number;
  val: { before: number; after: number } | undefined;
  seconds: number;
}

export async function fineTune(o: FineTuneOptions): Promise<FineTuneResult> {
  const started = performance.now();
  const device = deviceChoice(o.device ?? 'cpu');
  probeDevice(device);
  const config = readModelConfig(o.model);
  refuseRouterLoss(o.routerAuxLossCoef ?? 0, config, 'router_aux_loss_coef');
  const { tokenizer, template, stopIds } = readModelChat(o.model, { now: Date.now });
  const reader = { tokenizer, template, stopIds, maxLength: o.maxLength, truncation: o.truncation };
  const train = readExamples(o.train, reader);
  const val = o.val === undefined ? undefined : readExamples(o.val, reader).sequences;
  const note = (text: string): void => o.onProgress?.({ kind: 'note', level: 'info', text });
  for (const [count, what] of [
    [train.truncated, 'cut'],
    [train.dropped, 'left out'],
  ] as const)
    if (count > 0) note(`${count} examples are longer than ${o.maxLength} tokens and were ${what}`);

  const { sequences } = train;
  const rank = o.loraRank ?? 0;
  const lora =
    rank > 0 ? parseLora({ r: rank, lora_alpha: o.loraAlpha ?? 16, target_modules: o.targetModules ?? 'all-linear' }, config) : undefined;
  const longest = sequences.reduce((most, { ids }) => Math.max(most, ids.length), 1);
  const [dtype, moments] = [o.dtype ?? 'float32', momentsOf(o)];
  if (device.backend === undefined)
    checkTrainingMemory(config, { longest, checkpointing: o.gradientCheckpointing ?? false, threads: o.threads, lora, dtype, moments });
  const perEpoch = Math.ceil(sequences.length / o.batchSize);
  const steps = perEpoch * o.epochs;
  const schedule: Schedule = {
    lr: o.lr,
    warmupSteps: Math.round(steps * o.warmupRatio),
    kind: o.schedule,
    minRatio: o.minLrRatio,
    totalSteps: steps,
  };
  const checkpoints = join(o.output, 'checkpoints');
  const onDamaged = ({ message }: Error): void =>
    o.onProgress?.({ kind: 'note', level: 'warning', text: `${message}; an older one is used` });
  const last = o.resume ? (await newestWhole(checkpoints, { setAside: true, onDamaged }))?.dir : undefined;
  if (!o.resume) checkOutput(o.output, '--resume');
  else if (!existsSync(o.output))
    throw new ActorsError('SINKFLEX_CHECKPOINT_INVALID', `there is no folder ${o.output} to go on in: leave --resume out for a new run`);
  mkdirSync(checkpoints, { recursive: true });
  sweepCheckpoints(checkpoints);

  let store: WeightStore;
  if (lora !== undefined) {
    const base = WeightStore.create(config, { slots: 1, dtype });
    await base.loadFolderAsync(o.model);
    store = WeightStore.createAdapter(base, lora, { slots: 2 });
  } else store = WeightStore.create(config, { slots: 2, dtype });
  const optimizer = { moments, seed: o.seed };
  const engine = new Engine({ store, ...device, threads: o.threads, maxSequences: 1, maxSequenceTokens: 64, optimizer });
  const metrics = openMetrics(o.output);
  const run = new Run(o, { store, engine, sequences, val, metrics });
  try {
    if (last === undefined) {
      // Also a run that was stopped before its first checkpoint: it begins again, and so does its record.
      metrics.clear();
      if (rank > 0) store.initialise(o.seed);
      else await store.loadFolderAsync(o.model, { as: { lineage: 0, version: 0 }, ...(o.signal && { signal: o.signal }) });
    } else await run.restore(last, { steps, examples: sequences.length });
    o.onProgress?.({ kind: 'begin', phase: 'fine-tuning', total: steps });
    if (run.step === 0) await run.validate();
    const order = new DemonstrationOrder(sequences.length, o.seed);
    for (let s = 0; s < run.step; s++) order.next(sizeOf(s, perEpoch, sequences.length, o.batchSize));
    while (run.step < steps) {
      o.signal?.throwIfAborted();
      const chosen = order.next(sizeOf(run.step, perEpoch, sequences.length, o.batchSize));
      await run.learn(
        chosen.map((i) => sequences[i]!),
        learningRate(schedule, run.step),
        perEpoch,
      );
      const epochEnds = run.step % perEpoch === 0;
      if (o.valSteps > 0 ? run.step % o.valSteps === 0 || run.step === steps : epochEnds) await run.validate();
      if (run.step === steps || (o.saveSteps > 0 && run.step % o.saveSteps === 0)) await run.save(checkpoints);
    }
    const model = join(o.output, 'model');
    store.saveMerged(model);
    if (rank > 0) store.saveFolder(join(o.output, 'adapter'));
    for (const name of tokenizerFilesOf(o.model)) cpSync(join(o.model, name), join(model, name));
    o.onProgress?.({ kind: 'end', phase: 'fine-tuning', seconds: (performance.now() - started) / 1000, numbers: { loss: run.loss } });
    return {
      model,
      steps,
      examples: sequences.length,
      tokens: run.tokens,
      loss: run.loss,
      val: run.firstVal === undefined ? undefined : { before: run.firstVal, after: run.lastVal! },
      seconds: (performance.now() - started) / 1000,
    };
  } finally {
    metrics.close();
    await engine.dispose();
    store.close();
  }
}

const momentsOf = (o: FineTuneOptions): MomentDtype => (o.optim === 'adamw_8bit' ? '8bit' : 'float32');

/** Examples of a step: the last of an epoch takes what is left of it. */
function sizeOf(step: number, perEpoch: number, examples: number, batchSize: number): number {
  return step % perEpoch === perEpoch - 1 ? examples - (perEpoch - 1) * batchSize : batchSize;
}

interface Parts {
  store: WeightStore;
  engine: Engine;
  sequences: readonly MaskedSequence[];
  val: readonly MaskedSequence[] | undefined;
  metrics: MetricSink;
}

class Run {
  step = 0;
  tokens = 0;
  loss = Number.NaN;
  firstVal: number | undefined;
  lastVal: number | undefined;
  readonly #o: FineTuneOptions;
  readonly #parts: Parts;

  constructor(o: FineTuneOptions, parts: Parts) {
    this.#o = o;
    this.#parts = parts;
  }

  async restore(dir: string, expected: { steps: number; examples: number }): Promise<void> {
    const { store, engine, metrics } = this.#parts;
    const state = readCheckpoint(dir);
    const { steps, examples, tokens, firstVal } = state.extra as { steps: number; examples: number; tokens: number; firstVal?: number };
    if (steps !== expected.steps || examples !== expected.examples)
      throw new ActorsError(
        'SINKFLEX_CHECKPOINT_INVALID',
        `${dir} is of a run of ${steps} steps over ${examples} examples, this one has ${expected.steps} over ${expected.examples}: resume with the same data and settings`,
      );
    await store.loadFolderAsync(modelFolder(dir), { as: { lineage: 0, version: state.version } });
    await engine.loadOptimizer(join(dir, 'optimizer.safetensors'));
    this.step = state.step;
    this.tokens = tokens;
    this.firstVal = firstVal;
    metrics.rewind(state.step);
  }

  async learn(chosen: readonly MaskedSequence[], lr: number, perEpoch: number): Promise<void> {
    const { engine, metrics } = this.#parts;
    const { microBatchTokens, betas, weightDecay, gradClip } = this.#o;
    const began = performance.now();
    const batch = packDemonstrations(chosen);
    engine.zeroGradients();
    const { loss, tokens, entropy, routerAuxLoss } = await crossEntropy(engine, batch, {
      microBatchTokens,
      checkpointing: this.#o.gradientCheckpointing ?? false,
      routerAuxLossCoefficient: this.#o.routerAuxLossCoef ?? 0,
      learn: true,
    });
    const { gradNorm } = await engine.optimizerStep({
      lr,
      beta1: betas[0],
      beta2: betas[1],
      weightDecay,
      ...(gradClip > 0 ? { maxGradNorm: gradClip } : {}),
      lineage: 0,
      version: this.step + 1,
    });
    this.step++;
    this.tokens += tokens;
    this.loss = loss;
    const seconds = (performance.now() - began) / 1000;
    metrics.write({
      'training/global_step': this.step,
      'training/epoch': this.step / perEpoch,
      'train/loss': loss,
      'train/entropy': entropy,
      ...(this.#parts.store.config.num_local_experts > 0 ? { 'train/router_aux_loss': routerAuxLoss } : {}),
      'train/grad_norm': gradNorm,
      'train/lr': lr,
      'train/tokens': tokens,
      'timing_s/step': seconds,
      'perf/throughput': batch.ids.length / seconds,
    });
    const numbers = {
      loss,
      tokensPerSecond: batch.ids.length / seconds,
      ...(this.lastVal === undefined ? {} : { 'val loss': this.lastVal }),
    };
    this.#o.onProgress?.({ kind: 'advance', phase: 'fine-tuning', done: this.step, numbers });
  }

  async validate(): Promise<void> {
    const { engine, val, metrics } = this.#parts;
    if (val === undefined) return;
    const { microBatchTokens, signal } = this.#o;
    let [sum, tokens] = [0, 0];
    for (let i = 0; i < val.length; i += 64) {
      signal?.throwIfAborted();
      const part = await crossEntropy(engine, packDemonstrations(val.slice(i, i + 64)), { microBatchTokens, learn: false });
      sum += part.loss * part.tokens;
      tokens += part.tokens;
    }
    this.lastVal = sum / tokens;
    this.firstVal ??= this.lastVal;
    metrics.write({ 'training/global_step': this.step, 'val/loss': this.lastVal });
  }

  async save(folder: string): Promise<void> {
    const { store, engine, sequences } = this.#parts;
    const o = this.#o;
    const perEpoch = Math.ceil(sequences.length / o.batchSize);
    const extra = {
      steps: perEpoch * o.epochs,
      examples: sequences.length,
      tokens: this.tokens,
      ...(this.firstVal === undefined ? {} : { firstVal: this.firstVal }),
    };
    const state = {
      format: 1 as const,
      step: this.step,
      lineage: 0,
      version: this.step,
      cursor: 0,
      ledger: new Ledger().snapshot(),
      extra,
    };
    await writeCheckpoint(join(folder, checkpointName(this.step)), state, {}, async (temporary) => {
      store.saveFolder(modelFolder(temporary));
      await engine.saveOptimizer(join(temporary, 'optimizer.safetensors'));
    });
  }
}
