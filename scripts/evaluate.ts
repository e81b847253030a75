// `sinkflex evaluate`: scores a checkpoint on the held-out tasks, with the settings that it was trained with.
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { Command } from 'commander';
import {
  type ConfigLayer,
  loadConfig,
  parseOverrides,
  RunFolder,
  type TrainingConfig,
  type TrainingResult,
  train,
  verifyCheckpoint,
} from '../actors/index.ts';
import { isSinkflexError, SinkflexError } from '../kernels/index.ts';
import { Display } from './display.ts';
import { CommandError } from './errors.ts';
import { evaluateAtEndpoint } from './evaluate-endpoint.ts';
import { lastCheckpoint } from './model-folder.ts';
import { deviceSettings } from './option-values.ts';
import { alsoRows, resultLine } from './report.ts';
import { stopSignal } from './stop-signal.ts';
import { duration, interval, table } from './text.ts';

interface EvaluateOptions {
  endpoint?: string;
  model?: string;
  apiKeyEnv: string;
  output?: string;
  json?: boolean;
  also?: string[];
  device?: string;
}

export function evaluateCommand(): Command {
  return new Command('evaluate')
    .summary('score a checkpoint on the held-out tasks')
    .description(
      'Runs held-out tasks with the weights of a run (its last checkpoint) or of one checkpoint, and prints the score with its 95% interval.',
    )
    .argument('[folder]', 'a run folder, or a folder such as runs/.../checkpoints/step-0000000100; with --endpoint a preset')
    .argument('[key=value ...]', 'settings that differ from those of the run, such as data.val_size=1000 val.n=4 val.temperature=0')
    .option('--endpoint <url>', 'play with the model behind an OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1')
    .option('--model <name>', 'with --endpoint: the model there; the first that it serves unless told')
    .option('--api-key-env <name>', 'with --endpoint: environment variable that has its key', 'OPENAI_API_KEY')
    .option('-o, --output <folder>', 'keep metrics, trajectories and transcripts in this folder')
    .option(
      '--also <settings>',
      'score under these settings as well, such as "env.options.user_options.style=chatty"; may be repeated',
      (settings: string, before: string[]) => [...before, settings],
      [],
    )
    .option('--device <name>', "what the model computes on: cpu, cuda (the first GPU), cuda:1; default the run's own")
    .option('--json', 'print the result as one JSON line')
    .addHelpText(
      'after',
      '\nExamples\n  sinkflex evaluate runs/20260131T090503Z-desk\n  sinkflex evaluate runs/20260131T090503Z-desk data.val_size=1000 val.n=4\n  sinkflex evaluate tau2-retail --endpoint http://127.0.0.1:8000/v1 --model gpt-oss-20b val.n=4\n',
    )
    .action(async (folder: string | undefined, words: string[] | undefined, o: EvaluateOptions) => evaluate(folder, words ?? [], o));
}

async function evaluate(target: string | undefined, words: readonly string[], o: EvaluateOptions): Promise<void> {
  if (o.endpoint !== undefined && (o.also ?? []).length > 0)
    throw new CommandError('SINKFLEX_USAGE', '--also is for checkpoints: it does not go with --endpoint');
  if (o.endpoint === undefined && o.model !== undefined) throw new CommandError('SINKFLEX_USAGE', '--model goes with --endpoint');
  if (o.endpoint !== undefined) {
    await evaluateAtEndpoint(target === undefined ? words : [target, ...words], { ...o, endpoint: o.endpoint });
    return;
  }
  if (target === undefined)
    throw new CommandError('SINKFLEX_USAGE', 'a run folder or a checkpoint is missing (or --endpoint with a preset)');
  const run = RunFolder.open(target);
  const saved = run.savedConfig();
  const checkpoint = await checkpointOf(run, target);
  const temporary = o.output === undefined ? mkdtempSync(join(tmpdir(), 'sinkflex-evaluate-')) : undefined;
  const stop = stopSignal();
  const display = new Display();
  try {
    const output = o.output ?? join(temporary!, 'run');
    const settings =
      o.device === undefined ? words : [...Object.entries(deviceSettings(o.device)).map(([key, name]) => `${key}=${name}`), ...words];
    const config = await evaluationConfig(saved, parseOverrides(settings), checkpoint, output);
    // All are read before the first is scored.
    const others = await Promise.all(
      (o.also ?? []).map(async (also, i) => {
        const more = [...settings, ...also.split(/\s+/).filter((word) => word !== '')];
        return { settings: also, under: await evaluationConfig(saved, parseOverrides(more), checkpoint, `${output}-also-${i + 1}`) };
      }),
    );
    const score = (settings: TrainingConfig) => train(settings, { preset: 'evaluate', onProgress: display.listen, signal: stop.signal });
    const r = await score(config);
    const also: { settings: string; result: TrainingResult }[] = [];
    for (const { settings, under } of others) also.push({ settings, result: await score(under) });
    display.close();
    if (o.json) {
      const under = also.map(({ settings, result }) => ({ settings, ...result }));
      process.stdout.write(`${JSON.stringify({ ...JSON.parse(resultLine(r)), ...(under.length > 0 ? { under } : {}) })}\n`);
    } else {
      const rows = [
        ['checkpoint', basename(checkpoint)],
        [`mean@${r.validation.n}`, interval(r.after)],
        ...r.passRates.flatMap(({ k, passAtK, passHatK }) => [
          [`pass@${k}`, interval(passAtK)],
          [`pass^${k}`, interval(passHatK)],
        ]),
        ...also.map(({ settings, result }) => [settings, interval(result.after)]),
        ['held-out tasks', String(r.validation.tasks)],
        ['temperature', String(r.validation.temperature)],
        ...r.baselines.map((b) => [b.name, b.score.toFixed(3)]),
        ...alsoRows(r),
        ...Object.entries(r.labels),
        ['time', duration(r.seconds.validation)],
      ];
      process.stdout.write(`\n${table(rows, { indent: '  ' })}\n`);
    }
  } catch (error) {
    // Nobody goes on with an evaluation.
    if (isSinkflexError(error) && error.code === 'SINKFLEX_ABORTED') throw new SinkflexError(error.code, 'the evaluation was stopped');
    throw error;
  } finally {
    display.close();
    stop.dispose();
    if (temporary !== undefined) rmSync(temporary, { recursive: true, force: true });
  }
}

async function checkpointOf(run: RunFolder, target: string): Promise<string> {
  const named = resolve(target);
  if (basename(dirname(named)) !== 'checkpoints') return lastCheckpoint(run, target);
  await verifyCheckpoint(named);
  return named;
}

/** The settings of the run with its checkpoint as the model, no training, and one validation at the end. */
export async function evaluationConfig(
  saved: ConfigLayer,
  overrides: ConfigLayer,
  checkpoint: string,
  output: string,
): Promise<TrainingConfig> {
  const model = join(checkpoint, 'model');
  const fixed = {
    output,
    resume: null,
    'model.path': existsSync(model) ? model : checkpoint,
    'data.train_files': null,
    'data.sampler.class_name': 'uniform',
    'sft.total_steps': 0,
    'trainer.total_training_steps': 0,
    'trainer.val_before_train': false,
    'trainer.save_freq': 0,
    'actor.use_kl_loss': false,
    'algorithm.use_kl_in_reward': false,
    mode: 'sync',
  };
  // The head and the files of the run may be long gone, and nothing is trained or recorded beside it; an override may name a cluster.
  const alone = {
    source: 'evaluate',
    values: { 'cluster.address': null, 'trajectory.store': null, 'trajectory.archive': null, 'rollout.name': 'sinkflex' },
  };
  return loadConfig([saved, alone, overrides, { source: 'evaluate', values: fixed }]);
}
