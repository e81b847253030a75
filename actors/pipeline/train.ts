/** `train`: one run from settings to result. Starts the runtime, the weight store and the actors, and ends all of them whatever happens. */
import { availableParallelism } from 'node:os';
import type { WeightStore } from '../../kernels/index.ts';
import { type Faults, injectFaults } from '../../runtime/index.ts';
import { entry } from '../environment/index.ts';
import { dialogueOf } from '../rollout/index.ts';
import type { TaskSource } from '../tasks/index.ts';
import { modelFolder } from '../trainer/index.ts';
import { stopped, withAdvice } from './advice.ts';
import { scoreBaselines } from './baselines.ts';
import { castReady, spawnCast, watchActors } from './cast.ts';
import { ConfigError, type TrainingConfig } from './config.ts';
import { resolveModel } from './model.ts';
import { withModule } from './module.ts';
import { place } from './placement.ts';
import { checkCpu, checkDevices, checkEnvironment, checkReference } from './preflight.ts';
import type { ProgressListener, TrainingOptions, TrainingResult } from './progress.ts';
import { Recorder } from './recorder.ts';
import { goOnFrom, namedCheckpoint, newestCheckpoint } from './resume-point.ts';
import { checkRoom } from './room.ts';
import { Run } from './run.ts';
import { checkArchive, RunArchive } from './run-archive.ts';
import { RunFolder } from './run-folder.ts';
import { openRuntime, Session } from './session.ts';
import { environmentOptions } from './settings.ts';
import { openTaskSource } from './task-source.ts';
import { keepTokenizer, tokenizerFiles } from './tokenizer-files.ts';
import { clipValidation } from './validation.ts';

/**
 * Trains, and hands back the scores before and after. Rejects with one typed error; SINKFLEX_ABORTED when `signal` was aborted.
 *
 * @example
 * const result = await train(parseConfig([]), { preset: 'desk', onProgress: (e) => console.error(e) });
 */
export async function train(settings: TrainingConfig, options: TrainingOptions): Promise<TrainingResult> {
  const { debug } = settings;
  if (debug.rollout_only || debug.train_only !== null)
    throw new ConfigError(['debug.rollout_only, debug.train_only: are for debugRun, and for sinkflex launch']);
  const began = performance.now();
  const { onProgress = () => {} } = options;
  let faults: Faults | undefined;
  const progress: ProgressListener = (event) => {
    if (event.kind === 'advance' && event.phase === 'grpo') faults?.step(event.done);
    onProgress(event);
  };
  let folder: RunFolder | undefined;
  let from: string | undefined;
  const session = new Session(options.signal, () => stopped(folder));
  try {
    checkCpu();
    const asked = await withModule(settings);
    checkDevices(asked);
    if (asked.resume !== null) {
      const warn = (text: string) => progress({ kind: 'note', level: 'warning', text });
      from = namedCheckpoint(asked.resume);
      if (from === undefined) from = await newestCheckpoint(asked.resume, warn);
      else await goOnFrom(from, warn);
    }
    const source = from ? modelFolder(from) : asked.model.path;
    const variables = asked.data.apply_chat_template_kwargs;
    const chosen = dialogueOf(entry(asked.env.name), { model: source, variables });
    const { chat } = chosen;
    await checkEnvironment(asked);
    if (asked.trajectory.archive !== null) await checkArchive(asked.trajectory.archive, { signal: session.signal });
    const tasks = await openTaskSource(asked);
    const config = clipValidation(asked, tasks);
    if (config !== asked) {
      const text = `data.val_size = ${asked.data.val_size}: ${config.env.name} has ${config.data.val_size} held-out tasks, and each is run once`;
      progress({ kind: 'note', level: 'warning', text });
    }
    const model = resolveModel(config, chosen, from);
    checkRoom(config, model);
    folder = from ? RunFolder.open(config.resume!) : RunFolder.create({ config, preset: options.preset });
    if (from) checkReference(config, folder);
    const tokenizer = chosen.of === 'model' ? keepTokenizer(source!, folder) : null;
    const warn = (text: string) => progress({ kind: 'note', level: 'warning', text });
    const url = config.trajectory.archive;
    const archive = url === null ? undefined : new RunArchive(folder, url, { signal: session.signal, warn });
    progress({ kind: 'begin', phase: 'start', total: 0 });
    const recorder = await Recorder.open(folder, config, chat);
    session.atEnd(() => recorder.close());
    const { store, hosts } = await openRuntime(session, config, model, from);
    const dialogue = { model: tokenizer, variables };
    const cast = spawnCast({ config, placement: place(config, availableParallelism()), store: store.address, hosts, dialogue });
    session.atEnd(watchActors({ hosts, recorder, store, progress, signal: session.signal }));
    const run = new Run({
      config,
      store,
      cast,
      tasks,
      recorder,
      tokenizerFiles: tokenizerFiles(chat, tokenizer),
      progress,
      signal: session.signal,
      onCheckpoint: () => archive?.copy(),
    });
    const ready = async () => {
      if (options.faults === undefined) return;
      const injected = await injectFaults(options.faults);
      faults = injected;
      session.atEnd(async () => recorder.faults(await injected.end({ timeoutMs: 0 })));
    };
    const work = perform({ run, config, cast, tasks, from, progress, began, signal: session.signal, ready });
    const { before, after, also, baselines } = await session.race(work);
    const restarts = hosts.actors().reduce((n, a) => n + a.restarts, 0);
    const result: TrainingResult = {
      folder: folder.path,
      mode: config.mode,
      seed: config.seed,
      before,
      after,
      validation: { tasks: config.data.val_size, n: config.val.n, temperature: config.val.temperature },
      passRates: run.passRates,
      also,
      diagnostics: run.diagnostics,
      labels: entry(config.env.name).labels?.(environmentOptions(config)) ?? {},
      baselines,
      steps: run.step,
      parameters: countParameters(store),
      trajectories: run.trained,
      tokens: run.tokens,
      seconds: { ...run.seconds, total: (performance.now() - began) / 1000 },
      restarts,
    };
    // The ledger has thrown if its books do not balance.
    if (faults !== undefined) result.faults = await faults.end();
    recorder.result(result);
    if (archive) await session.race(archive.finish());
    return result;
  } catch (error) {
    throw withAdvice(error, { checkpoint: from, path: settings.model.path });
  } finally {
    await session.end();
  }
}

async function perform(o: {
  run: Run;
  config: TrainingConfig;
  cast: ReturnType<typeof spawnCast>;
  tasks: TaskSource;
  from: string | undefined;
  progress: ProgressListener;
  began: number;
  signal: AbortSignal;
  /** All actors are there. */
  ready: () => Promise<void>;
}): Promise<Pick<TrainingResult, 'before' | 'after' | 'also' | 'baselines'>> {
  const { run, config, cast, tasks, from, progress, began, signal } = o;
  await castReady(cast);
  await o.ready();
  progress({ kind: 'end', phase: 'start', seconds: (performance.now() - began) / 1000 });
  const baselines = scoreBaselines(config, tasks, signal);
  baselines.catch(() => {});
  if (from) await run.resume(from);
  else await run.warmStart();
  await run.startReference();
  const measure = config.trainer.val_before_train && run.step === 0;
  const before = run.validationAt(0) ?? (measure ? (await run.validate('before', config.data.val_size)).interval : null);
  if (from) await run.makeUp();
  await run.learn();
  const after = (await run.validate('after', config.data.val_size)).interval;
  const also = await run.validateAlso();
  return { before, after, also, baselines: await baselines };
}

function countParameters(store: WeightStore): number {
  const pin = store.pin();
  let n = 0;
  for (const { data } of store.tensors(pin).values()) n += data.length;
  pin.release();
  return n;
}
