// `sinkflex study`: the same job with several seeds, one after another, each in a process of its own; a table, the median and one plot.
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import {
  atomicWrite,
  bestFixedScript,
  type CurveSeries,
  checkOutput,
  drawCurve,
  median,
  PALETTE,
  readMetrics,
  type TrainingResult,
  validationPoints,
} from '../actors/index.ts';
import { SinkflexError } from '../kernels/index.ts';
import { CommandError } from './errors.ts';
import { CONFIGURATIONS, fullStudy, writeStudyPage } from './full-study.ts';
import { composeLaunch } from './launch.ts';
import { stopSignal } from './stop-signal.ts';
import { duration, interval, table } from './text.ts';

interface StudyOptions {
  seeds: string;
  firstSeed: string;
  config?: string[];
  output?: string;
  json?: boolean;
  full?: boolean;
  only?: string;
  page?: string;
}

interface SeedRun {
  seed: number;
  folder: string;
  result: TrainingResult;
}

const ENTRY = fileURLToPath(new URL('./sinkflex.js', import.meta.url));

export function studyCommand(): Command {
  return new Command('study')
    .summary('the same job with several seeds: table, median, one plot')
    .description(
      'Runs a preset with seeds 1, 2, ... one after another and reports the held-out score before and after each, with 95% intervals.',
    )
    .argument('[preset and key=value ...]', 'as for launch')
    .option('--seeds <n>', 'how many seeds', '5')
    .option('--first-seed <n>', 'the first of them', '1')
    .option('-c, --config <file>', 'YAML or TOML file of settings; may be repeated', (file: string, all: string[] = []) => [...all, file])
    .option('-o, --output <folder>', 'folder of the study; otherwise runs/<utc>-study-<preset>')
    .option(
      '--full',
      'every configuration of the study with every seed; study.jsonl of the folder says what is done, and a second call goes on',
    )
    .option('--only <names>', `of --full, separated by commas: ${CONFIGURATIONS.map((c) => c.name).join(', ')}`)
    .option('--page <folder>', 'of --full: writes study.md and its plots there')
    .option('--json', 'one JSON object a seed and one for the median on standard output')
    .addHelpText('after', '\nExamples\n  sinkflex study --seeds 5\n  sinkflex study textbook --seeds 3 rollout.n=8\n')
    .action(async (words: string[] | undefined, o: StudyOptions) => study(words ?? [], o));
}

async function study(words: readonly string[], o: StudyOptions): Promise<void> {
  const { preset } = await composeLaunch(words, { config: o.config ?? [] });
  const [count, first] = [whole(o.seeds, '--seeds'), whole(o.firstSeed, '--first-seed')];
  if (o.full) {
    await full(
      words,
      o,
      Array.from({ length: count }, (_, i) => first + i),
      resolve(o.output ?? join('runs', `study-${preset}`)),
    );
    return;
  }
  const folder = resolve(o.output ?? join('runs', `${new Date().toISOString().replace(/[-:]/g, '').slice(0, 15)}Z-study-${preset}`));
  checkOutput(folder);
  mkdirSync(folder, { recursive: true });
  const stop = stopSignal();
  const runs: SeedRun[] = [];
  try {
    for (let seed = first; seed < first + count; seed++) {
      process.stderr.write(`\nseed ${seed} (${seed - first + 1} of ${count})\n`);
      const run = await runSeed(seed, join(folder, `seed-${seed}`), words, o.config ?? [], stop.signal);
      runs.push(run);
      if (o.json)
        print({
          row: `seed ${seed}`,
          unit: 'mean@1',
          before: run.result.before?.mean ?? null,
          ours: run.result.after.mean,
          low: run.result.after.low,
          high: run.result.after.high,
          steps: run.result.steps,
          grpo_s: run.result.seconds.grpo,
        });
      // After every seed, so that a study that is cut short has its plot too.
      atomicWrite(join(folder, 'curve.svg'), studyCurve(runs, preset));
      atomicWrite(
        join(folder, 'study.json'),
        `${JSON.stringify({ preset, runs: runs.map(({ seed: s, result }) => ({ seed: s, result })) }, null, 2)}\n`,
      );
    }
  } finally {
    stop.dispose();
  }
  const after = median(runs.map((r) => r.result.after.mean));
  if (o.json) print({ row: 'median', unit: 'mean@1', before: median(runs.map((r) => r.result.before?.mean ?? Number.NaN)), ours: after });
  else process.stdout.write(`${studyTable(runs)}\n\nplot: ${relative(process.cwd(), join(folder, 'curve.svg'))}\n`);
}

async function full(words: readonly string[], o: StudyOptions, seeds: readonly number[], folder: string): Promise<void> {
  const names = o.only?.split(',') ?? CONFIGURATIONS.map((c) => c.name);
  const unknown = names.find((name) => !CONFIGURATIONS.some((c) => c.name === name));
  if (unknown !== undefined)
    throw new CommandError('SINKFLEX_USAGE', `--only = "${unknown}": there are ${CONFIGURATIONS.map((c) => c.name).join(', ')}`);
  const stop = stopSignal();
  try {
    const lines = await fullStudy({
      folder,
      seeds,
      configurations: CONFIGURATIONS.filter((c) => names.includes(c.name)),
      words,
      run: async (all, seed, into, start) => {
        const from = start === undefined ? [] : [`model.path=${start}`, 'sft.total_steps=0'];
        return (await runSeed(seed, into, [...all, ...from], o.config ?? [], stop.signal)).result;
      },
      say: (line) => process.stderr.write(`\n${line}\n`),
    });
    if (o.page !== undefined) process.stdout.write(`${relative(process.cwd(), writeStudyPage(lines, resolve(o.page)))}\n`);
  } finally {
    stop.dispose();
  }
}

const print = (o: Record<string, unknown>): unknown => process.stdout.write(`${JSON.stringify({ suite: 'study', ...o })}\n`);

/** One `launch` in a child; its progress goes to our standard error, its result comes from result.json. */
async function runSeed(
  seed: number,
  folder: string,
  words: readonly string[],
  files: readonly string[],
  signal: AbortSignal,
): Promise<SeedRun> {
  const child = spawn(
    process.execPath,
    [ENTRY, 'launch', ...words, ...files.flatMap((f) => ['--config', f]), '--seed', String(seed), '--output', folder, '--json'],
    { stdio: ['ignore', 'ignore', 'inherit'] },
  );
  const abort = () => child.kill('SIGINT');
  signal.addEventListener('abort', abort, { once: true });
  const code = await new Promise<number | null>((done, failed) => child.once('exit', done).once('error', failed));
  signal.removeEventListener('abort', abort);
  if (signal.aborted) throw new SinkflexError('SINKFLEX_ABORTED', 'the study was stopped');
  if (code !== 0)
    throw new CommandError(
      'SINKFLEX_STUDY',
      `the run with seed ${seed} ended with exit code ${code}; its message stands above, its folder is ${folder}`,
      { details: { seed, code, folder } },
    );
  return { seed, folder, result: JSON.parse(readFileSync(join(folder, 'result.json'), 'utf8')) as TrainingResult };
}

function studyTable(runs: readonly SeedRun[]): string {
  const rows = runs.map(({ seed, result: r }) => [
    String(seed),
    interval(r.before),
    interval(r.after),
    String(r.steps),
    duration(r.seconds.grpo),
    duration(r.seconds.total),
  ]);
  const middle = [
    'median',
    median(runs.map((r) => r.result.before?.mean ?? Number.NaN)).toFixed(3),
    median(runs.map((r) => r.result.after.mean)).toFixed(3),
  ];
  return table([['seed', 'before [95%]', 'after [95%]', 'steps', 'GRPO', 'in all'], ...rows, middle], { header: true });
}

/** Validation of every seed over the steps; intervals on the first and the last point. */
export function studyCurve(runs: readonly SeedRun[], preset: string): string {
  const best = bestFixedScript(runs[0]?.result.baselines ?? []);
  return drawCurve({
    title: `Held-out score during GRPO, preset ${preset}, ${runs.length} seeds`,
    subtitle: `median ${median(runs.map((r) => r.result.before?.mean ?? Number.NaN)).toFixed(2)} before, ${median(runs.map((r) => r.result.after.mean)).toFixed(2)} after; bars are 95% intervals`,
    xLabel: 'GRPO step',
    yLabel: 'mean@1 on held-out tasks (share solved)',
    references: [{ label: 'expert', y: 1 }, ...(best ? [{ label: `best fixed script (${best.name})`, y: best.score }] : [])],
    series: runs.map((run, i) => seedSeries(run, PALETTE[i % PALETTE.length]!)),
  });
}

function seedSeries({ seed, folder }: SeedRun, color: string): CurveSeries {
  const points = validationPoints(readMetrics(join(folder, 'metrics.jsonl')));
  return { label: `seed ${seed}`, color, points: points.map((p) => ({ x: p.step, score: p.score })) };
}

function whole(text: string, flag: string): number {
  if (!/^[1-9]\d*$/.test(text)) throw new CommandError('SINKFLEX_USAGE', `${flag} = "${text}": must be a whole number above 0`);
  return Number(text);
}
