/** Writes a run down as it happens: metrics, trajectories, ledger, actors, curve and transcripts in the run folder. Keeps what a checkpoint needs of it. */
import type { FaultReport } from '../../runtime/index.ts';
import type { Chat } from '../language/index.ts';
import type { Metrics } from '../trainer/index.ts';
import { type LedgerSnapshot, type Trajectory, type TrajectoryStore, toRecord } from '../trajectory/index.ts';
import type { TrainingConfig } from './config.ts';
import { drawCurve, PALETTE } from './curve.ts';
import { type MetricFile, type MetricSink, openMetrics } from './metric-files.ts';
import { type MetricRecord, readMetrics, SFT_STEP, TRAINING_STEP, type ValidationPoint, validationPoints } from './metrics.ts';
import { type Baseline, bestFixedScript, type TrainingResult } from './progress.ts';
import type { ActorRecord, RunFolder, ValidationScores } from './run-folder.ts';
import { environmentOptions } from './settings.ts';
import { Rolling } from './statistics.ts';
import type { Proxies } from './step-metrics.ts';
import { pickEpisodes, transcript } from './transcripts.ts';
import type { Validation } from './validation.ts';

/** What a checkpoint keeps of the record: where to cut back to. */
export interface RecorderState {
  score: number[];
  reward: number[];
}

/** By task in order; episodes that infrastructure lost for good are left out. */
function scoresOf(trajectories: readonly Trajectory[], config: TrainingConfig): ValidationScores {
  const tasks = new Map<number, { seed: number; rewards: number[] }>();
  for (const t of trajectories) {
    if (t.stopReason === 'error' || !Number.isFinite(t.reward)) continue;
    const task = tasks.get(t.task);
    if (task) task.rewards.push(t.reward);
    else tasks.set(t.task, { seed: t.seed, rewards: [t.reward] });
  }
  return {
    environment: config.env.name,
    options: environmentOptions(config),
    temperature: config.val.temperature,
    tasks: [...tasks.values()],
  };
}

const ledgerIntervalMs = 1000;

export class Recorder {
  readonly folder: RunFolder;
  readonly proxies: Proxies;
  readonly #config: TrainingConfig;
  readonly #chat: Chat;
  readonly #metrics: MetricSink;
  readonly #trajectories: TrajectoryStore;
  #ledgerWritten = -Infinity;

  private constructor(folder: RunFolder, config: TrainingConfig, chat: Chat, trajectories: TrajectoryStore) {
    this.folder = folder;
    this.#config = config;
    this.#chat = chat;
    this.#metrics = openMetrics(folder.path, { files: config.trainer.logger.filter((name): name is MetricFile => name !== 'console') });
    const window = config.trainer.rolling_window;
    this.proxies = { score: new Rolling(window), reward: new Rolling(window) };
    this.#trajectories = trajectories;
  }

  static async open(folder: RunFolder, config: TrainingConfig, chat: Chat): Promise<Recorder> {
    return new Recorder(folder, config, chat, await folder.openTrajectories(config.trajectory.store));
  }

  /** What metrics.jsonl holds of them: the one record that is cut back with the run. */
  get validations(): ValidationPoint[] {
    return validationPoints(this.records);
  }

  warmStartStep(metrics: Metrics): void {
    this.#metrics.write({ [SFT_STEP]: metrics[SFT_STEP]!, ...metrics });
  }

  /** The warm start begins again: what it had recorded did not happen. Nothing else is recorded before it ends. */
  restartWarmStart(): void {
    this.#metrics.clear();
  }

  step(step: number, metrics: Metrics, ledger: LedgerSnapshot): void {
    this.#metrics.write({ [TRAINING_STEP]: step, ...metrics });
    // Durable writes hold the loop for milliseconds: once a second is enough, and the end of the run writes the last state.
    if (performance.now() - this.#ledgerWritten >= ledgerIntervalMs) this.ledger(ledger);
  }

  ledger(ledger: LedgerSnapshot): void {
    this.#ledgerWritten = performance.now();
    this.folder.writeJson('ledger.json', ledger);
  }

  /** The trajectories of a step: all are marked as trained, as many as wanted are recorded. One transaction. */
  async trajectories(o: { step: number; lineage: number; trajectories: readonly Trajectory[]; advantages: Float64Array }): Promise<void> {
    const { step, lineage, trajectories, advantages } = o;
    const limit = this.#config.trainer.max_trajectories_per_step ?? trajectories.length;
    await this.#trajectories.step({
      step,
      lineage,
      records: trajectories
        .slice(0, limit)
        .map((t, i) => toRecord(t, { step, phase: 'train', text: this.#chat.tokenizer.decode(t.ids), advantage: advantages[i]! })),
      consumed: trajectories.map(({ task, sample }) => ({ task, sample })),
    });
  }

  /** Trajectories that were sampled and not trained. */
  async sampled(step: number, trajectories: readonly Trajectory[]): Promise<void> {
    const records = trajectories.map((t) => toRecord(t, { step, phase: 'train', text: this.#chat.tokenizer.decode(t.ids) }));
    await this.#trajectories.step({ step, lineage: 0, records, consumed: [] });
  }

  async validation(step: number, v: Validation): Promise<void> {
    this.#metrics.write({ [TRAINING_STEP]: step, ...v.metrics });
    const limit = this.#config.trainer.max_trajectories_per_step ?? v.trajectories.length;
    const records = v.trajectories
      .slice(0, limit)
      .map((t) => toRecord(t, { step, phase: 'validation', text: this.#chat.tokenizer.decode(t.ids) }));
    await this.#trajectories.validation(step, records);
    this.folder.writeScores(step, scoresOf(v.trajectories, this.#config));
    const picked = pickEpisodes(v.trajectories);
    const origin = step === 0 ? 'validation before the first step' : `validation after step ${step}`;
    for (const kind of ['failed', 'solved'] as const) {
      const t = picked[kind];
      if (t) this.folder.writeTranscript(kind, transcript(t, { decode: (ids) => this.#chat.tokenizer.decode(ids), origin }));
    }
    this.curve([]);
  }

  actors(records: readonly ActorRecord[]): void {
    this.folder.writeActors(records);
  }

  curve(baselines: readonly Baseline[]): void {
    const records = this.records;
    const line = records
      .filter((r) => r['training/score_rolling'] !== undefined)
      .map((r) => ({ x: r[TRAINING_STEP]!, y: r['training/score_rolling']! }));
    const best = bestFixedScript(baselines);
    this.folder.writeCurve(
      drawCurve({
        title: `Learning curve: ${this.#config.env.name}`,
        subtitle: `seed ${this.#config.seed}, mode ${this.#config.mode}; mean@${this.#config.val.n} with 95% intervals on held-out tasks`,
        xLabel: 'GRPO step',
        yLabel: 'score (1 = solved)',
        series: [
          { label: 'training tasks, rolling', color: PALETTE[1], line, faint: true },
          {
            label: 'held-out tasks',
            color: PALETTE[0],
            points: validationPoints(records).map((v) => ({ x: v.step, score: v.score })),
          },
        ],
        references: [...(best ? [{ label: `best fixed script (${best.name})`, y: best.score }] : []), { label: 'expert', y: 1 }],
      }),
    );
  }

  state(): RecorderState {
    return {
      score: this.proxies.score.snapshot(),
      reward: this.proxies.reward.snapshot(),
    };
  }

  /** What is recorded outlives a loss of power, as the checkpoint does that refers to it. */
  flush(): Promise<void> {
    return this.#trajectories.flush();
  }

  /** Forgets what came after the checkpoint of `step`. */
  async rewind(step: number, state: RecorderState): Promise<void> {
    this.#metrics.rewind(step);
    await this.#trajectories.rewind(step);
    this.proxies.score.restore(state.score);
    this.proxies.reward.restore(state.reward);
  }

  result(result: TrainingResult): void {
    this.curve(result.baselines.filter((b) => b.name !== 'do-nothing').slice(0, 2));
    this.folder.writeJson('result.json', result);
  }

  faults(report: FaultReport): void {
    this.folder.writeJson('faults.json', report);
  }

  async close(): Promise<void> {
    this.folder.flushActors();
    this.#metrics.close();
    await this.#trajectories.close();
    this.folder.sweep();
  }

  /** metrics.jsonl as it stands. */
  get records(): MetricRecord[] {
    return readMetrics(this.folder.file('metrics.jsonl'));
  }
}
