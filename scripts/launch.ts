// `sinkflex launch`: composes the settings, runs the job with progress, prints the table. Everything that a run does is in actors/pipeline.
import { relative } from 'node:path';
import { Command, Option } from 'commander';
import { stringify } from 'yaml';
import {
  checkArchive,
  checkOutput,
  checkReward,
  debugRun,
  isDebugRun,
  isHubName,
  memoryRows,
  predictMemory,
  settingsSchema,
  sizeText,
  type TrainingConfig,
  train,
} from '../actors/index.ts';
import { isSinkflexError, os } from '../kernels/index.ts';
import { faultReportText } from '../runtime/index.ts';
import { homeAgent, launcherOf, type PlannedAgent, planRun, type RunningCluster, startCluster } from './cluster/index.ts';
import { Display } from './display.ts';
import { readFaultPlan } from './fault-plan.ts';
import { hubModel } from './model-folder.ts';
import { deviceSettings } from './option-values.ts';
import { compose, DEFAULT_PRESET, listPresets } from './presets.ts';
import { debugTable, finalTable, resultLine } from './report.ts';
import { writeReport } from './run-report/command.ts';
import { stopSignal } from './stop-signal.ts';
import { table } from './text.ts';

export interface LaunchOptions {
  config?: string[];
  mode?: 'sync' | 'async';
  seed?: string;
  output?: string;
  resume?: string;
  sandbox?: string;
  device?: string;
  tau2Data?: string;
  tau2Fixes?: string;
  debugRolloutOnly?: boolean;
  debugTrainOnly?: string;
  faults?: string;
  dryRun?: boolean;
  json?: boolean;
  schema?: boolean;
}

export function launchCommand(): Command {
  return new Command('launch')
    .summary('train an agent: warm start, then GRPO, with validation and a run folder')
    .description(
      `Trains an agent by reinforcement learning: a supervised warm start, then group-relative policy optimisation, with validation on held-out\ntasks before, between and after. The preset "${DEFAULT_PRESET}" is the default and takes at most five minutes on two cores.`,
    )
    .argument('[preset and key=value ...]', 'a preset, and any number of settings such as rollout.n=16')
    .option(
      '-c, --config <file>',
      'YAML or TOML file of settings, over the preset; may be repeated, later files win',
      (file: string, all: string[] = []) => [...all, file],
    )
    .addOption(new Option('--mode <mode>', 'sync: reproducible bit for bit; async: rollout and update overlap').choices(['sync', 'async']))
    .option('--seed <n>', 'seed of the whole run')
    .option('-o, --output <folder>', 'run folder (new or empty); otherwise runs/<utc>-<preset>')
    .option('--resume <folder>', 'continue an earlier run from its last checkpoint, with its settings')
    .option('--debug-rollout-only', 'sample and store rollouts, train nothing (debug.rollout_only)')
    .option('--debug-train-only <run>', 'train on the rollouts that a run stored, with its settings; sample nothing (debug.train_only)')
    .option('--tau2-data <folder>', 'where the data of tau2-bench are (env.options.data)')
    .option('--tau2-fixes <names>', "the benchmark's faults to put right, or all (env.options.fixes)")
    .option('--sandbox <provider>', 'where programs of the policy run: local, runsc, or unsafe-subprocess (env.options.sandbox)')
    .option(
      '--device <name>',
      'what models compute on: cpu, cuda (the first GPU), cuda:1 (actor.device, rollout.device and reference.device)',
    )
    .option('--faults <plan>', 'YAML file of what is to go wrong in the run: docs/faults.md')
    .option(
      '--dry-run',
      'show the resolved settings, where every actor would go and the memory that it takes; start nothing, write nothing',
    )
    .option('--json', 'print the result as one JSON line on standard output instead of the table')
    .option('--schema', 'print the JSON schema of a file of settings, for editors')
    .addHelpText('after', helpAfter)
    .action(async (words: string[] | undefined, options: LaunchOptions) => {
      if (options.schema) {
        process.stdout.write(`${JSON.stringify(settingsSchema(), null, 2)}\n`);
        return;
      }
      await launch(wordList(words), options);
    });
}

/** Runs the command; errors are thrown for the dispatcher to explain. */
export async function launch(words: readonly string[], o: LaunchOptions): Promise<void> {
  const { preset, config } = await composeLaunch(words, o);
  if (o.dryRun) {
    process.stdout.write(await dryRun(config, preset));
    return;
  }
  const faults = o.faults === undefined ? {} : { faults: await readFaultPlan(o.faults) };
  const stop = stopSignal();
  const display = new Display({ quiet: !config.trainer.logger.includes('console') });
  let cluster: RunningCluster | undefined;
  try {
    const name = config.model.path === null ? '' : relative(process.cwd(), config.model.path);
    if (isHubName(name)) config.model.path = await hubModel(name, stop.signal);
    const ending = new AbortController();
    if (config.cluster.launcher !== null) {
      cluster = await startCluster(config.cluster, stop.signal, (text) => process.stderr.write(`${text}\n`));
      Object.assign(config.cluster, cluster.settings);
      void cluster.lost.then((why) => {
        process.stderr.write(`${why}\n`);
        ending.abort();
      });
    }
    const signal = AbortSignal.any([stop.signal, ending.signal]);
    if (isDebugRun(config)) {
      const half = await debugRun(config, { preset, onProgress: display.listen, signal });
      display.close();
      process.stdout.write(o.json ? `${JSON.stringify(half)}\n` : debugTable(half));
      return;
    }
    const result = await train(config, { preset, onProgress: display.listen, signal, ...faults });
    display.close();
    // The run is whole without its picture.
    await writeReport(result.folder).catch((error: Error) =>
      process.stderr.write(`warning: report.html was not written: ${error.message}\n`),
    );
    process.stdout.write(o.json ? `${resultLine(result)}\n` : finalTable(result));
    if (result.faults !== undefined) process.stderr.write(`${await faultReportText(result.faults)}\n`);
  } finally {
    display.close();
    await cluster?.close();
    stop.dispose();
  }
}

/** The first word without "=" is the preset. */
export async function composeLaunch(
  words: readonly string[],
  o: Omit<LaunchOptions, 'dryRun' | 'json'>,
): Promise<{ preset: string; config: TrainingConfig }> {
  const preset = words.find((w) => !w.includes('='));
  const flags: Record<string, unknown> = {};
  if (o.mode !== undefined) flags.mode = o.mode;
  if (o.seed !== undefined) flags.seed = /^\d+$/.test(o.seed) ? Number(o.seed) : o.seed;
  if (o.output !== undefined) flags.output = o.output;
  if (o.resume !== undefined) flags.resume = o.resume;
  if (o.debugRolloutOnly) flags['debug.rollout_only'] = true;
  if (o.debugTrainOnly !== undefined) flags['debug.train_only'] = o.debugTrainOnly;
  if (o.sandbox !== undefined) flags['env.options.sandbox'] = o.sandbox;
  if (o.tau2Data !== undefined) flags['env.options.data'] = o.tau2Data;
  if (o.tau2Fixes !== undefined) flags['env.options.fixes'] = o.tau2Fixes;
  if (o.device !== undefined) Object.assign(flags, deviceSettings(o.device));
  return compose({
    ...(preset === undefined ? {} : { preset }),
    files: o.config ?? [],
    words: preset === undefined ? words : words.toSpliced(words.indexOf(preset), 1),
    values: { source: 'command line', values: flags },
  });
}

async function dryRun(config: TrainingConfig, preset: string): Promise<string> {
  if (config.output !== null && config.resume === null) checkOutput(config.output);
  await checkReward(config.reward);
  if (config.trajectory.archive !== null) await checkArchive(config.trajectory.archive);
  const agents = plannedAgents(config);
  const parts = [`# Settings (preset ${preset}); nothing was started\n${stringify(config)}`];
  if (agents.length > 0) {
    const rows = agents.map(({ node, where, resources: { cpus, gpus } }) => [
      node,
      where,
      String(cpus ?? 'its own'),
      String(gpus ?? 'its own'),
    ]);
    parts.push(
      `# Agents (${config.cluster.launcher})\n${table([['node', 'where', 'cpus', 'gpus'], ...rows], { header: true, indent: '# ' })}\n`,
    );
  }
  const rows = (await planRun(config, agents)).map((a) => [
    a.name,
    a.kind,
    a.isolation,
    String(a.threads),
    a.device ?? '-',
    a.node ?? 'waits',
    a.why,
  ]);
  const placement = table([['actor', 'kind', 'isolation', 'threads', 'device', 'node', 'why'], ...rows], { header: true, indent: '# ' });
  return `${parts.join('\n')}\n# Placement\n${placement}\n\n# Memory\n${memoryPlan(config)}\n`;
}

/** None: everything runs below this process. */
function plannedAgents({ cluster }: TrainingConfig): PlannedAgent[] {
  if (cluster.launcher === null) return [];
  const launcher = launcherOf(cluster);
  return [homeAgent(launcher) ?? [], launcher.plan()].flat();
}

/** What the run would take by category, beside what there is. */
function memoryPlan(config: TrainingConfig): string {
  const { path } = config.model;
  if (path !== null && isHubName(relative(process.cwd(), path)))
    return `# ${path} is fetched when the run starts; its memory is known then`;
  try {
    const memory = predictMemory(config);
    const available = os.availableMemory();
    const rows = [...memoryRows(memory), ['total', sizeText(memory.total)], ['available', sizeText(available)]];
    const verdict = memory.total <= available ? '' : '\n# It does not fit: the run would be refused.';
    return `${table(rows, { indent: '# ', right: [1] })}${verdict}`;
  } catch (error) {
    if (!isSinkflexError(error)) throw error;
    return `# not known: ${error.code}: ${error.message}`;
  }
}

/** commander hands a variadic argument over as a list, or nothing. */
const wordList = (words: string[] | string | undefined): string[] => (words === undefined ? [] : Array.isArray(words) ? words : [words]);

const helpAfter = (): string => `
Presets
${table(
  listPresets().map((p) => [p.name, p.summary]),
  { indent: '  ' },
)}

Settings are key=value in verl's names; docs/configuration.md lists them all. Composition, later wins:
defaults < preset < --config files < key=value < flags.

Examples
  sinkflex launch                                       the main job
  sinkflex launch tiny                                  everything once, in seconds
  sinkflex launch --mode sync --seed 7                  reproducible, another seed
  sinkflex launch rollout.n=16 actor.optim.lr=1e-4      other settings
  sinkflex launch --config mine.yaml --dry-run          what would run, and where
  sinkflex launch --resume runs/20260131T090503Z-desk   continue
  sinkflex launch --debug-train-only runs/20260131T090503Z-desk   its updates again, from stored rollouts
  sinkflex launch env.latency=lognormal(mean=200ms,sigma=1.0)   slow tools (quote it in a shell)

Exit codes: 0 done, 1 the run failed, 2 a setting or the machine has to be put right, 130 stopped by Ctrl-C.
`;
