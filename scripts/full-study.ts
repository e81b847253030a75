// `sinkflex study --full`: synchronous and asynchronous training, corrected and not, and other algorithms beside GRPO, each with the same seeds.
// A finished run is one line of study.jsonl, so that a study goes on where it stopped; the page is made of the lines alone.
import { appendFileSync, existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import {
  atomicWrite,
  drawCurve,
  type Interval,
  median,
  PALETTE,
  readMetrics,
  type TrainingResult,
  validationPoints,
} from '../actors/index.ts';

export interface Configuration {
  name: string;
  what: string;
  words: readonly string[];
  /** Its warm start is not that of the others. */
  ownStart?: boolean;
}

const lag = (eta: number, correction: 'naive' | 'decoupled'): Configuration => ({
  name: `eta-${eta}-${correction}`,
  what: `GRPO, at most ${eta} version${eta === 1 ? '' : 's'} old, ${correction === 'naive' ? 'the ratio against the policy that sampled' : 'decoupled PPO'}`,
  words: [
    'mode=async',
    `async_training.staleness_threshold=${eta}`,
    `algorithm.rollout_correction.rollout_is=${correction === 'naive' ? 'null' : 'decoupled'}`,
    `algorithm.rollout_correction.bypass_mode=${correction === 'naive'}`,
  ],
});

export const CONFIGURATIONS: readonly Configuration[] = [
  { name: 'sync', what: 'GRPO, every token of the newest version', words: ['mode=sync'] },
  ...[1, 4, 16].flatMap((eta) => [lag(eta, 'naive'), lag(eta, 'decoupled')]),
  { name: 'rloo', what: 'RLOO, the preset otherwise', words: ['algorithm.adv_estimator=rloo'] },
  {
    name: 'gspo',
    what: 'GSPO (one ratio a sequence)',
    words: ['actor.policy_loss.loss_mode=gspo', 'actor.loss_agg_mode=seq-mean-token-mean'],
  },
  {
    name: 'dapo',
    what: 'DAPO: dynamic sampling, clip-higher',
    words: ['algorithm.filter_groups.enable=true', 'actor.clip_ratio_low=0.2', 'actor.clip_ratio_high=0.28'],
  },
  { name: 'grpo', what: 'GRPO, the preset as it is', words: [] },
  { name: 'grpo-hardest', what: 'GRPO on the hardest level', words: ['env.level=4'], ownStart: true },
];

export interface StudyLine {
  config: string;
  /** All that was said to launch. */
  words: string[];
  seed: number;
  before: Interval | null;
  after: Interval;
  steps: number;
  grpo_s: number;
  /** [step, mean@1 on held-out tasks] */
  curve: [number, number][];
}

export interface FullStudyOptions {
  folder: string;
  seeds: readonly number[];
  configurations: readonly Configuration[];
  /** Of all configurations, before their own. */
  words: readonly string[];
  /** Trains one, into a folder that is not there yet. `start`: the model to begin with, in place of a warm start of its own. */
  run(words: readonly string[], seed: number, folder: string, start?: string): Promise<TrainingResult>;
  say(line: string): void;
}

/** Runs what study.jsonl has no line of: all configurations with the first seed, then with the next. */
export async function fullStudy(o: FullStudyOptions): Promise<StudyLine[]> {
  mkdirSync(o.folder, { recursive: true });
  const path = join(o.folder, 'study.jsonl');
  const lines = readLines(path);
  const has = (line: StudyLine | undefined, words: readonly string[]): boolean => isDeepStrictEqual(line?.words, [...o.words, ...words]);
  /**
   * The model after the warm start of a finished run with that seed: what the divergence is measured from. The same seed gives the same.
   * A folder is that of the last line of its name.
   */
  const startOf = (seed: number): string | undefined =>
    CONFIGURATIONS.filter(({ ownStart }) => !ownStart)
      .filter(({ name, words }) =>
        has(
          lines.findLast((line) => line.config === name && line.seed === seed),
          words,
        ),
      )
      .map(({ name }) => join(o.folder, `${name}-${seed}`, 'reference'))
      .find((folder) => existsSync(folder));
  for (const seed of o.seeds) {
    for (const { name, words, ownStart } of o.configurations) {
      const all = [...o.words, ...words];
      if (lines.some((line) => line.config === name && line.seed === seed && has(line, words))) continue;
      o.say(`${name}, seed ${seed}`);
      const folder = join(o.folder, `${name}-${seed}`);
      // What was cut off is begun again: the same seed gives the same run.
      rmSync(folder, { recursive: true, force: true });
      const result = await o.run(all, seed, folder, ownStart ? undefined : startOf(seed));
      const curve = validationPoints(readMetrics(join(folder, 'metrics.jsonl'))).map((p): [number, number] => [p.step, p.score.mean]);
      const { before, after, steps, seconds } = result;
      const line: StudyLine = { config: name, words: all, seed, before: before ?? null, after, steps, grpo_s: seconds.grpo, curve };
      appendFileSync(path, `${JSON.stringify(line)}\n`);
      lines.push(line);
    }
  }
  return lines.filter((line) =>
    CONFIGURATIONS.some((c) => c.name === line.config && isDeepStrictEqual(line.words, [...o.words, ...c.words])),
  );
}

/** A last line that was cut off does not count. */
export function readLines(path: string): StudyLine[] {
  if (!existsSync(path)) return [];
  const text = readFileSync(path, 'utf8');
  const whole = text.slice(0, text.lastIndexOf('\n') + 1);
  if (whole !== text) atomicWrite(path, whole);
  return whole
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as StudyLine);
}

/** docs/study.md and its plots below docs/images. */
export function writeStudyPage(lines: readonly StudyLine[], docs: string): string {
  const of = (name: string) => lines.filter((line) => line.config === name);
  const done = CONFIGURATIONS.filter(({ name }) => of(name).length > 0);
  const rows = done.map(({ name, what }) => {
    const after = of(name)
      .map((line) => line.after.mean)
      .sort((a, b) => a - b);
    const before = median(of(name).map((line) => line.before?.mean ?? Number.NaN));
    const cells = [before, median(after), after[Math.floor((after.length - 1) / 4)]!, after[0]!].map((x) => x.toFixed(3));
    return `| \`${name}\` | ${what} | ${after.length} | ${cells.join(' | ')} |`;
  });
  mkdirSync(join(docs, 'images'), { recursive: true });
  const plots = [
    ['staleness', done.filter(({ name }) => /^(sync|eta-)/.test(name)), 'Old tokens, corrected and not'],
    ['algorithms', done.filter(({ name }) => !/^eta-/.test(name)), 'Algorithms'],
  ] as const;
  const images = plots.flatMap(([name, configurations, title]) => {
    if (configurations.length === 0) return [];
    const series = configurations.map((c, i) => ({ label: c.name, color: PALETTE[i % PALETTE.length]!, line: medianCurve(of(c.name)) }));
    const subtitle = 'median over the seeds that are done';
    const axes = { xLabel: 'GRPO step', yLabel: 'mean@1 on held-out tasks (share solved)' };
    atomicWrite(join(docs, 'images', `study-${name}.svg`), drawCurve({ title, subtitle, ...axes, series }));
    return [`![${title}](images/study-${name}.svg)`];
  });
  const page = [
    '# The study',
    'Made by `npm run study -- --full --page docs` of the lines of its `study.jsonl`, one for each finished configuration and seed; running it again goes on.',
    '| configuration | what | seeds | before, median | after, median | lower quartile | least |\n|---|---|---|---|---|---|---|\n' +
      rows.join('\n'),
    ...images,
  ];
  const path = join(docs, 'study.md');
  atomicWrite(path, `${page.join('\n\n')}\n`);
  return path;
}

/** At every step that all of them have. */
function medianCurve(lines: readonly StudyLine[]): { x: number; y: number }[] {
  const [first, ...others] = lines.map((line) => new Map(line.curve));
  return [...(first ?? [])]
    .filter(([step]) => others.every((curve) => curve.has(step)))
    .map(([step, score]) => ({ x: step, y: median([score, ...others.map((curve) => curve.get(step)!)]) }));
}
