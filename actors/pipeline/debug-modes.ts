/**
 * Half of a run, to look for a fault in the other: rollouts that are stored and not trained (debug.rollout_only), and training on stored
 * rollouts without engines or environments (debug.train_only). The second repeats the updates of the run that stored them, bit for bit.
 */
import { availableParallelism } from 'node:os';
import { ready } from '../../runtime/index.ts';
import { entry } from '../environment/index.ts';
import { ActorsError } from '../errors.ts';
import { rewardNames } from '../reward/index.ts';
import { dialogueOf } from '../rollout/index.ts';
import type { TaskSource } from '../tasks/index.ts';
import { checkpointName, type Metrics, modelFolder, verifyCheckpoint } from '../trainer/index.ts';
import { Ledger, trajectoryKey } from '../trajectory/index.ts';
import { stopped } from './advice.ts';
import {
  type Casting,
  castReady,
  rolloutWorkers,
  spawnEnvironments,
  spawnReference,
  spawnRollouts,
  spawnTrainers,
  watchActors,
} from './cast.ts';
import type { TrainingConfig } from './config.ts';
import { Dataflow, openQueue } from './dataflow.ts';
import { resolveModel } from './model.ts';
import { withModule } from './module.ts';
import { place } from './placement.ts';
import { PolicySteps } from './policy-steps.ts';
import { RolloutPool } from './pool.ts';
import { checkCpu, checkDevices, checkEnvironment, hasReference, referenceFolder, writeReference } from './preflight.ts';
import type { ProgressListener, TrainingOptions } from './progress.ts';
import { Recorder } from './recorder.ts';
import { Replay } from './replay.ts';
import { namedCheckpoint } from './resume-point.ts';
import { checkRoom } from './room.ts';
import { RunFolder } from './run-folder.ts';
import { openRuntime, Session } from './session.ts';
import { policySchedule, usesReference } from './settings.ts';
import { batchMetrics, ledgerMetrics, proxyMetrics } from './step-metrics.ts';
import { synchronousSteps } from './synchronous.ts';
import { openTaskSource } from './task-source.ts';
import { keepTokenizer, tokenizerFiles } from './tokenizer-files.ts';

export interface DebugResult {
  /** Path of the run folder. */
  folder: string;
  mode: 'rollout_only' | 'train_only';
  /** Steps sampled or trained. */
  steps: number;
  trajectories: number;
  /** Mean reward of them. */
  reward: number;
  seconds: number;
}

/** Whether these settings ask for half of a run. */
export const isDebugRun = ({ debug }: TrainingConfig): boolean => debug.rollout_only || debug.train_only !== null;

/** Runs the half that the settings name; rejects as `train` does. */
export async function debugRun(settings: TrainingConfig, options: TrainingOptions): Promise<DebugResult> {
  const began = performance.now();
  let folder: RunFolder | undefined;
  const session = new Session(options.signal, () => stopped(folder));
  try {
    checkCpu();
    const config = await withModule(settings);
    checkDevices(config);
    const { train_only: replayed } = config.debug;
    const source = replayed === null ? undefined : await openSource(replayed);
    const model = source?.checkpoint === undefined ? config.model.path : modelFolder(source.checkpoint);
    const variables = config.data.apply_chat_template_kwargs;
    const chosen = dialogueOf(entry(config.env.name), { model, variables });
    if (source === undefined) await checkEnvironment(config);
    const shape = resolveModel(config, chosen, source?.checkpoint);
    checkRoom(config, shape);
    folder = RunFolder.create({ config, preset: options.preset });
    const tokenizer = chosen.of === 'model' ? keepTokenizer(model!, folder) : null;
    const recorder = await Recorder.open(folder, config, chosen.chat);
    session.atEnd(() => recorder.close());
    const { store, hosts } = await openRuntime(session, config, shape, source?.checkpoint);
    session.atEnd(watchActors({ hosts, recorder, store, progress: options.onProgress ?? (() => {}), signal: session.signal }));
    const placement = place(config, availableParallelism());
    const casting: Casting = { config, placement, store: store.address, hosts, dialogue: { model: tokenizer, variables } };
    const half = { casting, recorder, progress: options.onProgress ?? (() => {}), session };
    const done =
      source === undefined
        ? await session.race(collect({ ...half, tasks: await openTaskSource(config) }))
        : await session.race(replay({ ...half, source, files: tokenizerFiles(chosen.chat, tokenizer) }));
    return { folder: folder.path, ...done, seconds: (performance.now() - began) / 1000 };
  } finally {
    await session.end();
  }
}

interface Half {
  casting: Casting;
  recorder: Recorder;
  progress: ProgressListener;
  session: Session;
}

/** Batches are drawn as a run draws them, with one policy. */
async function collect({
  casting,
  recorder,
  progress,
  session,
  tasks,
}: Half & { tasks: TaskSource }): Promise<Omit<DebugResult, 'folder' | 'seconds'>> {
  const { config, hosts, placement } = casting;
  const environments = spawnEnvironments(casting);
  const rollouts = spawnRollouts(casting, environments);
  await castReady({ environments, rollouts });
  const pool = new RolloutPool(rolloutWorkers({ rollouts, hosts }), placement.sequences);
  const ledger = new Ledger();
  const queue = openQueue(config, { tasks, ledger, pool });
  const dataflow = new Dataflow({ queue, ledger, pool, temperature: config.rollout.temperature, taskOf: (index) => tasks.draw(index) });
  session.atEnd(() => dataflow.stop('end'));
  const total = config.trainer.total_training_steps;
  const tally = new Tally();
  const began = performance.now();
  progress({ kind: 'begin', phase: 'rollout', total });
  for (let step = 1; step <= total; step++) {
    const since = performance.now();
    const batch = await dataflow.nextBatch();
    const trajectories = batch.groups.flatMap((g) => g.trajectories);
    queue.discarded(batch, 'rollout_only');
    tasks.learn(batch.results);
    const seconds = (performance.now() - since) / 1000;
    const metrics: Metrics = {
      ...batchMetrics(trajectories, { maxTokens: config.rollout.max_model_len, components: rewardNames(config.reward) }),
      ...proxyMetrics(batch, recorder.proxies),
      ...ledgerMetrics(ledger.check()),
      ...tasks.metrics(),
      'timing_s/gen': seconds,
      'timing_s/step': seconds,
    };
    recorder.step(step, metrics, ledger.check());
    await recorder.sampled(step, trajectories);
    tally.add(trajectories);
    progress({ kind: 'advance', phase: 'rollout', done: step, numbers: { score: metrics['training/trajectory_reward_rolling'] } });
  }
  dataflow.stop('end');
  recorder.ledger(ledger.check());
  progress({ kind: 'end', phase: 'rollout', seconds: (performance.now() - began) / 1000 });
  return { mode: 'rollout_only', steps: total, ...tally.result };
}

interface Source {
  folder: RunFolder;
  /** Where training begins; a run of rollouts alone has none, and the settings say. */
  checkpoint: string | undefined;
}

/** The run whose rollouts are replayed, and its earliest checkpoint unless one is named. */
async function openSource(path: string): Promise<Source> {
  const folder = RunFolder.open(path);
  const earliest = folder.checkpoints()[0];
  const checkpoint = namedCheckpoint(path) ?? (earliest === undefined ? undefined : folder.checkpoint(earliest));
  if (checkpoint !== undefined) await verifyCheckpoint(checkpoint);
  return { folder, checkpoint };
}

async function replay(o: Half & { source: Source; files: Record<string, string> }): Promise<Omit<DebugResult, 'folder' | 'seconds'>> {
  const { casting, recorder, progress, session, source } = o;
  const { config } = casting;
  const store = await source.folder.readTrajectories();
  if (store === undefined) throw new ActorsError('SINKFLEX_REPLAY', `${source.folder.path} has stored no rollouts`);
  session.atEnd(() => store.close());
  const trainer = spawnTrainers(casting);
  await castReady({ trainer });
  const { checkpoint } = source;
  if (checkpoint === undefined) await trainer.begin();
  const began = checkpoint === undefined ? 0 : (await trainer.rewind(checkpoint, 0)).step;
  const ledger = new Ledger();
  const flow = await Replay.open(store, { after: began, ledger });
  const save = async (step: number) => {
    const dir = recorder.folder.checkpoint(step);
    const shards = await trainer.saveShards(dir);
    await trainer.save(dir, { step, cursor: 0, ledger: ledger.check(), extra: { ...recorder.state() } }, o.files, shards);
  };
  const reference = await startReference(casting, recorder.folder, source, () => save(began));
  const steps = new PolicySteps({
    dataflow: flow,
    queue: {
      trained: (batch, lineage) => {
        const keys = batch.groups.flatMap((g) => g.trajectories.map((t) => trajectoryKey(t.task, t.sample)));
        ledger.train(keys, { lineage, step: batch.step + 1 });
      },
    },
    ledger,
    tasks: { learn: () => {}, metrics: () => ({}) },
    trainer,
    reference,
    schedule: policySchedule(config),
    proxies: recorder.proxies,
    maxTokens: config.rollout.max_model_len,
    rewardComponents: rewardNames(config.reward),
  });
  const last = Math.min(flow.last, config.trainer.total_training_steps);
  const tally = new Tally();
  const since = performance.now();
  progress({ kind: 'begin', phase: 'grpo', total: last });
  await synchronousSteps(steps, async (report) => {
    recorder.step(report.step, report.metrics, ledger.check());
    await recorder.trajectories({ ...report, lineage: 0 });
    tally.add(report.trajectories);
    progress({ kind: 'advance', phase: 'grpo', done: report.step, numbers: { loss: report.metrics['actor/pg_loss'] } });
    return report.step < last;
  });
  await recorder.flush();
  await save(last);
  recorder.ledger(ledger.check());
  progress({ kind: 'end', phase: 'grpo', seconds: (performance.now() - since) / 1000 });
  return { mode: 'train_only', steps: last - began, ...tally.result };
}

/** With the weights that the replayed run had for it, or those that training begins with. */
async function startReference(casting: Casting, folder: RunFolder, source: Source, save: () => PromiseLike<unknown>) {
  if (!usesReference(casting.config)) return undefined;
  if (hasReference(source.folder)) writeReference(folder, referenceFolder(source.folder));
  else {
    const first = source.checkpoint ?? folder.checkpoint(0);
    if (source.checkpoint === undefined) await save();
    else if (!first.endsWith(checkpointName(0)))
      throw new ActorsError(
        'SINKFLEX_REPLAY',
        `${source.folder.path} has neither its reference nor its checkpoint of step 0: set actor.use_kl_loss=false`,
      );
    writeReference(folder, modelFolder(first));
  }
  const reference = spawnReference(casting, referenceFolder(folder));
  if (reference) await ready(reference, { timeoutMs: 60_000 });
  return reference;
}

/** Counts trajectories and their rewards. */
class Tally {
  #count = 0;
  #sum = 0;

  add(trajectories: readonly { reward: number }[]): void {
    this.#count += trajectories.length;
    for (const { reward } of trajectories) this.#sum += reward;
  }

  get result(): { trajectories: number; reward: number } {
    return { trajectories: this.#count, reward: this.#count === 0 ? 0 : this.#sum / this.#count };
  }
}
