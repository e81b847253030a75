/**
 * One training run: the weight store, the actors and the record, and the phases on them: warm start, validations, GRPO with checkpoints,
 * and going back to the last checkpoint when the trainer is lost.
 */
import type { WeightStore } from '../../kernels/index.ts';
import { type ActorHandle, ready } from '../../runtime/index.ts';
import { entry } from '../environment/index.ts';
import type { ReferenceActor } from '../reference/index.ts';
import { rewardNames } from '../reward/index.ts';
import type { SamplerState, TaskSource } from '../tasks/index.ts';
import { type CheckpointState, modelFolder, verifyCheckpoint } from '../trainer/index.ts';
import { Ledger, responseTokens } from '../trajectory/index.ts';
import { asynchronousSteps } from './asynchronous.ts';
import { actorRecords, type Cast, rolloutWorkers, spawnReference } from './cast.ts';
import { Checkpoints } from './checkpoints.ts';
import type { TrainingConfig } from './config.ts';
import { Dataflow, openQueue } from './dataflow.ts';
import { growWithHosts } from './extension.ts';
import { initialiseWeights } from './model.ts';
import { isTrainerLoss, PolicySteps, type StepReport } from './policy-steps.ts';
import { RolloutPool } from './pool.ts';
import { hasReference, referenceFolder, writeReference } from './preflight.ts';
import type { AlsoScored, ProgressListener } from './progress.ts';
import type { Recorder, RecorderState } from './recorder.ts';
import { environmentOptions, policySchedule, usesReference } from './settings.ts';
import type { Interval } from './statistics.ts';
import { synchronousSteps } from './synchronous.ts';
import { type Validation, validate } from './validation.ts';
import { type EncodedDemonstration, warmStart, writeDemonstrations } from './warm-start.ts';
import { WarningSigns } from './warning-signs.ts';

export interface RunParts {
  config: TrainingConfig;
  store: WeightStore;
  cast: Cast;
  tasks: TaskSource;
  recorder: Recorder;
  /** What goes beside the weights of every checkpoint, by file name. */
  tokenizerFiles: Record<string, string>;
  progress: ProgressListener;
  signal: AbortSignal;
  /** Called when a checkpoint stands. */
  onCheckpoint?: (() => void) | undefined;
}

/** What a checkpoint keeps beside the trainer's own state. */
type SavedExtra = RecorderState & { tokens: number; trained: number; sampler: SamplerState };

export class Run {
  readonly #p: RunParts;
  readonly #pool: RolloutPool;
  readonly seconds = { warmStart: 0, grpo: 0, validation: 0 };
  trained = 0;
  /** Of the last validation that this process made. */
  passRates: Validation['rates'] = [];
  /** Of the last validation. */
  diagnostics: Validation['diagnostics'] = {};
  tokens = 0;
  #ledger = new Ledger();
  #reference: ActorHandle<typeof ReferenceActor> | undefined;
  readonly #checkpoints: Checkpoints;
  #lineage = 0;
  #step = 0;
  /** First task index of the next batch. */
  #cursor = 0;

  #signs: WarningSigns;

  constructor(p: RunParts) {
    this.#p = p;
    this.#signs = new WarningSigns(p.config);
    this.#pool = new RolloutPool(rolloutWorkers(p.cast), p.cast.placement.sequences);
    growWithHosts(p.cast, this.#pool, (text) => this.#warn(text));
    this.#checkpoints = new Checkpoints({
      folder: p.recorder.folder,
      keep: p.config.trainer.max_ckpt_to_keep,
      onSaved: (oldest) => {
        this.#ledger.finalise(oldest);
        p.onCheckpoint?.();
      },
      onWarning: (text) => this.#warn(text),
    });
  }

  #warn(text: string): void {
    this.#p.progress({ kind: 'note', level: 'warning', text });
  }

  get step(): number {
    return this.#step;
  }

  /** Fresh weights, or those of model.path; then the supervised steps. A trainer that dies meanwhile begins again. */
  async warmStart(): Promise<void> {
    const { config, store, cast, recorder, progress, signal } = this.#p;
    const { sft } = config;
    const supervised = sft.total_steps > 0;
    if (supervised) {
      const budget = sft.time_budget_s === null ? {} : { budgetSeconds: sft.time_budget_s };
      progress({ kind: 'begin', phase: 'warm start', total: sft.total_steps, ...budget });
    }
    const demonstrations = supervised ? await writeDemonstrations(cast.rollouts, sft.demonstrations) : [];
    for (;;) {
      try {
        await cast.trainer.begin();
        if (supervised) await this.#supervisedSteps(demonstrations);
        await cast.trainer.resetOptimizer();
        await this.#save();
        await this.#checkpoints.settled();
        break;
      } catch (e) {
        if (!isTrainerLoss(e)) throw e;
        this.#warn('the trainer was lost in the warm start, which begins again');
        recorder.restartWarmStart();
        await initialiseWeights(config, store, { lineage: ++this.#lineage, signal });
      }
    }
    if (supervised) progress({ kind: 'end', phase: 'warm start', seconds: this.seconds.warmStart });
    // The reference is the policy as GRPO finds it.
    writeReference(recorder.folder, modelFolder(recorder.folder.checkpoint(0)));
  }

  async #supervisedSteps(demonstrations: readonly EncodedDemonstration[]): Promise<void> {
    const { config, cast, recorder, progress, signal } = this.#p;
    const { seconds } = await warmStart({
      config,
      demonstrations,
      trainer: cast.trainer,
      signal,
      onStep: ({ step, metrics }) => {
        recorder.warmStartStep(metrics);
        progress({ kind: 'advance', phase: 'warm start', done: step, numbers: { loss: metrics['sft/loss'] } });
      },
    });
    this.seconds.warmStart = seconds;
  }

  /** Goes on from a checkpoint of an earlier process. */
  async resume(dir: string): Promise<void> {
    const state = await this.#p.cast.trainer.rewind(dir, 0);
    this.#ledger = Ledger.restore(state.ledger, 'restart');
    await this.#adopt(state);
  }

  /** The process before this one ended between a checkpoint and the validation of the same step: it is made up for. */
  async makeUp(): Promise<void> {
    const { trainer, data } = this.#p.config;
    const step = this.#step;
    if (step === 0 || step >= trainer.total_training_steps || trainer.test_freq <= 0 || step % trainer.test_freq !== 0) return;
    if (this.validationAt(step) === undefined) await this.validate(`step ${step}`, data.val_interim_size);
  }

  validationAt(step: number): Interval | undefined {
    return this.#p.recorder.validations.find((v) => v.step === step)?.score;
  }

  async startReference(): Promise<void> {
    const { config, cast, recorder, store } = this.#p;
    const { folder } = recorder;
    // The process before this one ended right after its first checkpoint, or somebody took the folder away.
    if (usesReference(config) && !hasReference(folder)) {
      await verifyCheckpoint(folder.checkpoint(0));
      writeReference(folder, modelFolder(folder.checkpoint(0)));
    }
    this.#reference = spawnReference(
      { config, placement: cast.placement, store: store.address, hosts: cast.hosts },
      referenceFolder(folder),
    );
    if (this.#reference) await ready(this.#reference, { timeoutMs: 60_000 });
  }

  async validate(label: string, tasks: number): Promise<Validation> {
    const { config, progress, signal, recorder } = this.#p;
    progress({ kind: 'begin', phase: 'validation', total: tasks, label });
    const v = await validate({
      pool: this.#pool,
      config,
      source: this.#p.tasks,
      tasks,
      signal,
      onProgress: (done) => progress({ kind: 'advance', phase: 'validation', done }),
    });
    this.seconds.validation += v.seconds;
    this.passRates = v.rates;
    this.diagnostics = v.diagnostics;
    this.#signs.validation(v.interval.mean, (v.interval.high - v.interval.low) / 2);
    await recorder.validation(this.#step, v);
    progress({ kind: 'end', phase: 'validation', seconds: v.seconds, numbers: { val: v.interval.mean } });
    return v;
  }

  /** Scores on tasks that the environment names beside its held-out ones. */
  async validateAlso(): Promise<AlsoScored[]> {
    const { config, progress, signal } = this.#p;
    const scored: AlsoScored[] = [];
    for (const instead of entry(config.env.name).alsoScored?.(environmentOptions(config)) ?? []) {
      const tasks = instead.seeds.length;
      progress({ kind: 'begin', phase: 'validation', total: tasks, label: instead.name });
      const v = await validate({ pool: this.#pool, config, source: this.#p.tasks, tasks, instead, signal });
      this.seconds.validation += v.seconds;
      scored.push({ name: instead.name, tasks, score: v.interval });
      progress({ kind: 'end', phase: 'validation', seconds: v.seconds, numbers: { val: v.interval.mean } });
    }
    return scored;
  }

  /** GRPO until the last step or the end of the time budget; a lost trainer is put back to its last checkpoint. */
  async learn(): Promise<void> {
    const { config, cast, recorder, progress, signal, tasks } = this.#p;
    const { trainer } = config;
    if (this.#step >= trainer.total_training_steps) return;
    progress({
      kind: 'begin',
      phase: 'grpo',
      total: trainer.total_training_steps,
      ...(trainer.time_budget_s === null ? {} : { budgetSeconds: trainer.time_budget_s }),
    });
    const queue = openQueue(config, { tasks, ledger: this.#ledger, pool: this.#pool });
    const dataflow = new Dataflow({
      queue,
      ledger: this.#ledger,
      pool: this.#pool,
      temperature: config.rollout.temperature,
      taskOf: (index) => tasks.draw(index),
      onGroup: (group) => {
        for (const t of group) this.tokens += responseTokens(t);
      },
    });
    const steps = new PolicySteps({
      dataflow,
      queue,
      ledger: this.#ledger,
      tasks,
      trainer: cast.trainer,
      reference: this.#reference,
      schedule: policySchedule(config),
      proxies: recorder.proxies,
      maxTokens: config.rollout.max_model_len,
      rewardComponents: rewardNames(config.reward),
    });
    queue.restore(this.#step, this.#cursor);
    const began = performance.now();
    const pausedBefore = this.seconds.validation;
    const spent = () => this.seconds.grpo + (performance.now() - began) / 1000 - (this.seconds.validation - pausedBefore);
    const loop = config.mode === 'sync' ? synchronousSteps : asynchronousSteps;
    const stop = () => dataflow.stop('end');
    signal.addEventListener('abort', stop, { once: true });
    try {
      for (;;) {
        try {
          await loop(steps, (report) => this.#afterStep(report, dataflow, spent));
          await this.#checkpoints.settled();
          break;
        } catch (e) {
          if (!isTrainerLoss(e) || signal.aborted) throw e;
          await this.#recover(dataflow);
        }
      }
    } finally {
      signal.removeEventListener('abort', stop);
      stop();
      this.seconds.grpo = spent();
      recorder.ledger(this.#ledger.check());
    }
    progress({ kind: 'end', phase: 'grpo', seconds: this.seconds.grpo });
  }

  async #afterStep(report: StepReport, dataflow: Dataflow, spent: () => number): Promise<boolean> {
    const { config, cast, recorder, progress, signal, store } = this.#p;
    const { trainer } = config;
    signal.throwIfAborted();
    this.#step = report.step;
    this.#cursor = report.batch.cursor;
    this.trained += report.trajectories.length;
    const signs = this.#signs.step(report.metrics);
    for (const { text } of signs.reports) this.#warn(`step ${report.step}: ${text}`);
    recorder.step(report.step, { ...report.metrics, ...signs.metrics }, this.#ledger.check());
    await recorder.trajectories({ ...report, lineage: this.#lineage });
    recorder.actors(actorRecords(cast.hosts, store.current()?.version));
    progress({
      kind: 'advance',
      phase: 'grpo',
      done: report.step,
      numbers: {
        score: report.metrics['training/trajectory_reward_rolling'],
        loss: report.metrics['actor/pg_loss'],
        tokensPerSecond: report.metrics['perf/throughput'],
        staleness: report.metrics['training/off_policy/trajectory_staleness/mean'],
        entropy: report.metrics['actor/entropy'],
      },
    });
    const last = report.step >= trainer.total_training_steps || (trainer.time_budget_s !== null && spent() >= trainer.time_budget_s);
    if (last || (trainer.save_freq > 0 && report.step % trainer.save_freq === 0)) await this.#save();
    if (!last && trainer.test_freq > 0 && report.step % trainer.test_freq === 0) {
      // What runs goes on; nothing new is begun, and the trainer waits, so that the score is of one version.
      dataflow.pause();
      await this.validate(`step ${report.step}`, config.data.val_interim_size);
      dataflow.resume();
    }
    return !last;
  }

  /** Begins to write a checkpoint of the run as it is now; training goes on meanwhile. */
  async #save(): Promise<void> {
    const { cast, recorder, tokenizerFiles } = this.#p;
    await this.#checkpoints.settled();
    const extra: SavedExtra & { seconds: Run['seconds'] } = {
      ...recorder.state(),
      sampler: this.#p.tasks.state(),
      tokens: this.tokens,
      trained: this.trained,
      seconds: { ...this.seconds },
    };
    const state = { step: this.#step, cursor: this.#cursor, ledger: this.#ledger.check(), extra: { ...extra } };
    await recorder.flush();
    const shards = await cast.trainer.saveShards(recorder.folder.checkpoint(this.#step));
    await this.#checkpoints.begin(this.#step, (dir) => cast.trainer.save(dir, state, tokenizerFiles, shards));
  }

  /** The trainer's process died: its successor takes the newest whole checkpoint as a new lineage, and what came after it did not happen. */
  async #recover(dataflow: Dataflow): Promise<void> {
    const { cast, signal } = this.#p;
    const { dir, state: saved } = await this.#checkpoints.newest();
    this.#warn(`the trainer was lost; the run goes back to step ${saved.step}`);
    dataflow.rollback(saved.step, saved.cursor);
    for (;;) {
      signal.throwIfAborted();
      try {
        const state = await cast.trainer.rewind(dir, ++this.#lineage);
        await this.#adopt(state);
        return;
      } catch (e) {
        if (!isTrainerLoss(e)) throw e;
      }
    }
  }

  async #adopt(state: CheckpointState): Promise<void> {
    const extra = state.extra as unknown as SavedExtra;
    this.#step = state.step;
    this.#cursor = state.cursor;
    this.#lineage = Math.max(this.#lineage, state.lineage);
    this.tokens = extra.tokens;
    this.trained = extra.trained;
    this.#p.tasks.restore(extra.sampler);
    await this.#p.recorder.rewind(state.step, extra);
    this.#signs = WarningSigns.after(this.#p.recorder.records, this.#p.config);
  }
}
