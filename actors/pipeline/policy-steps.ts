/**
 * What both modes share of one GRPO step: prepare a batch (pack it, have the reference score it), update the policy, keep the books,
 * measure. The order of these is the mode's business (synchronous.ts, asynchronous.ts).
 */
import { isSinkflexError } from '../../kernels/index.ts';
import type { ActorHandle, ObjectRef } from '../../runtime/index.ts';
import type { ReferenceActor } from '../reference/index.ts';
import type { TaskSource } from '../tasks/index.ts';
import { learningRate, type Metrics, type Schedule } from '../trainer/index.ts';
import {
  type Batch,
  compareTrajectories,
  type Ledger,
  type PackedTrajectories,
  pack,
  type Trajectory,
  type TrajectoryQueue,
} from '../trajectory/index.ts';
import type { Dataflow } from './dataflow.ts';
import { isFinal } from './pool.ts';
import { batchMetrics, ledgerMetrics, type Proxies, proxyMetrics } from './step-metrics.ts';
import type { TrainerGroup } from './trainer-group.ts';

/** Where batches come from: the dataflow, or stored rollouts. */
export type BatchSource = Pick<Dataflow, 'nextBatch' | 'pump'>;

export interface PolicyStepsOptions {
  dataflow: BatchSource;
  queue: Pick<TrajectoryQueue, 'trained'>;
  ledger: Ledger;
  tasks: Pick<TaskSource, 'learn' | 'metrics'>;
  trainer: Pick<TrainerGroup, 'update' | 'resume'>;
  reference: ActorHandle<typeof ReferenceActor> | undefined;
  schedule: Schedule;
  proxies: Proxies;
  maxTokens: number;
  /** Names of the reward's components. */
  rewardComponents: readonly string[];
}

/** A batch that is ready to be trained. */
export interface Prepared {
  batch: Batch;
  trajectories: Trajectory[];
  packed: PackedTrajectories;
  /** Under way in the reference actor; goes from it to the trainer directly. */
  scores: ObjectRef<Float32Array> | undefined;
}

export interface StepReport {
  /** GRPO steps done with this one. */
  step: number;
  batch: Batch;
  trajectories: Trajectory[];
  /** Of the trajectories, in their order. */
  advantages: Float64Array;
  metrics: Metrics;
}

/** Dead references and trainers are restarted and asked again this often within one step. */
const retries = 8;

export class PolicySteps {
  readonly #o: PolicyStepsOptions;
  #idleSince = performance.now();
  /** What the last update left, and what the next one begins from. */
  #at: { lineage: number; version: number } | undefined;

  constructor(o: PolicyStepsOptions) {
    this.#o = o;
  }

  get dataflow(): BatchSource {
    return this.#o.dataflow;
  }

  /** The trainer has nothing to do from now on until the next update: what `timing_s/gen` counts. */
  waiting(): void {
    this.#idleSince = performance.now();
  }

  async prepare(): Promise<Prepared> {
    const batch = await this.#o.dataflow.nextBatch();
    const trajectories = batch.groups.flatMap((g) => g.trajectories).sort(compareTrajectories);
    const packed = pack(trajectories);
    return { batch, trajectories, packed, scores: this.#score(packed) };
  }

  /** One update of the policy. A dead reference is asked again, and so is a dead trainer where the slots hold all its state; else that is the caller's business. */
  async update(p: Prepared): Promise<StepReport> {
    const { queue, ledger, tasks, trainer, schedule, proxies, maxTokens, rewardComponents } = this.#o;
    const began = performance.now();
    const waited = (began - this.#idleSince) / 1000;
    const lr = learningRate(schedule, p.batch.step);
    let scores = p.scores;
    for (let attempt = 0; ; attempt++) {
      try {
        const result = await trainer.update(p.packed, { lr }, scores);
        scores?.release();
        queue.trained(p.batch, result.lineage);
        this.#at = { lineage: result.lineage, version: result.version };
        tasks.learn(p.batch.results);
        const seconds = (performance.now() - began) / 1000;
        const tokens = p.packed.ids.length;
        const whole = seconds + waited;
        return {
          step: p.batch.step + 1,
          batch: p.batch,
          trajectories: p.trajectories,
          advantages: result.advantages,
          metrics: {
            ...batchMetrics(p.trajectories, { maxTokens, components: rewardComponents }),
            ...result.metrics,
            ...proxyMetrics(p.batch, proxies),
            ...ledgerMetrics(ledger.check()),
            ...tasks.metrics(),
            'training/version': result.version,
            'time/update_began': (performance.timeOrigin + began) / 1000,
            'timing_s/gen': waited,
            'timing_s/step': whole,
            'perf/time_per_step': whole,
            'perf/throughput': tokens / whole,
            'perf/trainer_idle_ratio': waited / whole,
          },
        };
      } catch (e) {
        if (attempt >= retries) throw e;
        if (isReferenceLoss(e)) scores = this.#score(p.packed);
        else if (!isTrainerLoss(e) || !(await this.#resumed())) throw e;
      }
    }
  }

  /** Whether the trainer's successor found all that the update needs in the slots of the store, so that it can be asked again. */
  async #resumed(): Promise<boolean> {
    if (this.#at === undefined) return false;
    for (let attempt = 0; attempt < retries; attempt++) {
      try {
        return await this.#o.trainer.resume(this.#at);
      } catch (e) {
        if (!isTrainerLoss(e)) throw e;
      }
    }
    return false;
  }

  #score(packed: PackedTrajectories): ObjectRef<Float32Array> | undefined {
    return packed.ids.length === 0 ? undefined : this.#o.reference?.logprobs(packed.ids, packed.cuSeqlens, packed.mask);
  }
}

/** The scores, not the trainer, are what was lost: the update did not begin. */
function isReferenceLoss(e: unknown): boolean {
  if (!isSinkflexError(e) || isFinal(e)) return false;
  return e.code === 'SINKFLEX_OBJECT_LOST' || (e.code === 'SINKFLEX_ACTOR_DIED' && e.details?.actor === 'reference');
}

/** The trainer's process is gone, or its successor answered in its place; the last checkpoint is where the run goes on. */
export function isTrainerLoss(e: unknown): boolean {
  if (isFinal(e)) return false;
  if (!isSinkflexError(e)) return false;
  // Of several trainers the others are told by their collective.
  if (e.code === 'SINKFLEX_TRAINER_LOST' || e.code === 'SINKFLEX_COLLECTIVE_BROKEN') return true;
  return e.code === 'SINKFLEX_ACTOR_DIED' && /^trainer(-\d+)?$/.test(String(e.details?.actor));
}

/** What happens between the steps: checkpoints, validations, the record. Returns false to end the loop. */
export type AfterStep = (report: StepReport) => Promise<boolean>;
