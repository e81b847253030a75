// What report.html shows of a run, read from its folder alone: series by step, histograms, where the time went, and chosen episodes token
// by token. Pure data, small enough to stand in the page: series are thinned and episodes chosen by step.
import {
  type MetricRecord,
  RunFolder,
  readMetrics,
  SFT_STEP,
  TRAINING_STEP,
  type TrajectoryHead,
  validationPoints,
} from '../../actors/index.ts';
import { chosenEpisodes, type EpisodeData, staleness, thin, trainingHeads, type VersionAt } from './episodes.ts';
import { timeline } from './timeline.ts';

/** One chart: all series share the x values. */
export interface ChartData {
  title: string;
  xLabel: string;
  x: number[];
  series: { label: string; values: (number | null)[]; kind?: 'line' | 'points' | 'low' | 'high' }[];
  /** What a healthy run looks like here. */
  hint?: string;
}

export interface HistogramData {
  title: string;
  unit: string;
  /** Lower edge of each bar; all bars are equally wide. */
  edges: number[];
  counts: number[];
}

export interface RunReport {
  title: string;
  facts: [string, string][];
  charts: ChartData[];
  histograms: HistogramData[];
  /** Seconds a step: [step, waiting for rollouts, recomputing log-probabilities, updating, rest]. */
  time: [number, number, number, number, number][];
  episodes: EpisodeData[];
}

const LARGEST_SERIES = 1500;
const BARS = 24;

/** Charts of keys by training step; a chart without any of its keys is left out. */
const CHARTS: { title: string; keys: [key: string, label: string][]; hint?: string }[] = [
  {
    title: 'Reward',
    keys: [
      ['critic/score/mean', 'score'],
      ['critic/rewards/mean', 'shaped reward'],
      ['reward_std', 'std within groups'],
      ['frac_reward_zero_std', 'groups without spread'],
    ],
    hint: 'a group without spread teaches nothing: when nearly all are so, the batch is wasted (algorithm.filter_groups.enable)',
  },
  { title: 'Entropy of the policy', keys: [['actor/entropy', 'entropy']], hint: 'a fall to zero early on ends exploration' },
  {
    title: 'Loss',
    keys: [
      ['actor/loss', 'loss'],
      ['actor/pg_loss', 'policy'],
      ['actor/kl_loss', 'KL to the reference'],
    ],
  },
  { title: 'Gradient norm', keys: [['actor/grad_norm', 'before clipping']] },
  {
    title: 'Clipping and correction',
    keys: [
      ['actor/pg_clipfrac', 'clipped'],
      ['actor/pg_clipfrac_lower', 'clipped by the dual clip'],
      ['rollout_corr/rejected_fraction', 'rejected'],
    ],
  },
  {
    title: 'Sampling against training policy',
    keys: [
      ['training/rollout_probs_diff_mean', 'mean difference of probabilities'],
      ['training/rollout_probs_diff_max', 'largest'],
    ],
    hint: 'synchronous runs show 0: generation and training agree bit for bit',
  },
  {
    title: 'Staleness',
    keys: [
      ['training/off_policy/trajectory_staleness/mean', 'mean'],
      ['training/off_policy/trajectory_staleness/max', 'largest'],
    ],
  },
  {
    title: 'Response length in tokens',
    keys: [
      ['response_length/mean', 'mean'],
      ['response_length/max', 'longest'],
      ['response_length/min', 'shortest'],
    ],
  },
  {
    title: 'Turns and tool calls',
    keys: [
      ['num_turns/mean', 'turns'],
      ['tool_call_counts/mean', 'tool calls'],
    ],
  },
  {
    title: 'Share of malformed turns and cut-off episodes',
    keys: [
      ['tools/malformed_fraction', 'malformed'],
      ['response_length/clip_ratio', 'cut off by length'],
    ],
  },
  { title: 'Throughput in tokens a second', keys: [['perf/throughput', 'tokens/s']] },
];

/** Reads a run; throws SINKFLEX_RESUME where `target` is none. */
export async function collectReport(target: string): Promise<RunReport> {
  const run = RunFolder.open(target);
  const records = readMetrics(run.file('metrics.jsonl'));
  const steps = records.filter((r) => r[TRAINING_STEP] !== undefined && r['critic/score/mean'] !== undefined);
  const config = run.savedConfig().values as Record<string, unknown>;
  const setting = (key: string): unknown =>
    key.split('.').reduce<unknown>((at, k) => (at as Record<string, unknown>)?.[k], config) ?? config[key];
  const scores = validationPoints(records);
  const last = steps.at(-1);
  const facts: [string, string][] = [
    ['folder', run.path],
    ['environment', String(setting('env.name'))],
    ['mode', String(setting('mode'))],
    ['seed', String(setting('seed'))],
    ['steps', String(last?.[TRAINING_STEP] ?? 0)],
    ...(scores.length > 0
      ? ([
          ['first validation', scoreText(scores[0]!.score)],
          ['last validation', scoreText(scores.at(-1)!.score)],
        ] as [string, string][])
      : []),
    ...(last
      ? ([
          [
            'episodes',
            `${last['ledger/sampled'] ?? '?'} sampled, ${last['ledger/trained'] ?? '?'} trained, ${last['ledger/filtered'] ?? 0} filtered, ${last['ledger/aborted'] ?? 0} aborted`,
          ],
        ] as [string, string][])
      : []),
  ];
  const versionAt = versionAtStep(steps);
  const store = await run.readTrajectories();
  const all = store ? await trainingHeads(store) : [];
  const episodes = store ? await chosenEpisodes(run, store, all, versionAt) : [];
  await store?.close();
  return {
    title: `${String(setting('env.name'))}, seed ${String(setting('seed'))}`,
    facts,
    charts: [
      ...scoreChart(steps, scores),
      ...warmStartChart(records),
      ...CHARTS.flatMap((c) => stepChart(steps, c)),
      ...timeline(all, steps),
    ],
    histograms: histograms(all, versionAt),
    time: thin(steps, 400).map((r) => {
      const [waited, old, update] = [r['timing_s/gen'] ?? 0, r['timing_s/old_log_prob'] ?? 0, r['timing_s/update_actor'] ?? 0];
      return [r[TRAINING_STEP]!, waited, old, Math.max(0, update - old), Math.max(0, (r['timing_s/step'] ?? 0) - waited - update)];
    }),
    episodes,
  };
}

const scoreText = (i: { mean: number; low: number; high: number; n: number }): string =>
  `${i.mean.toFixed(3)} [${i.low.toFixed(3)}, ${i.high.toFixed(3)}] on ${i.n} tasks`;

const finite = (v: number | undefined): number | null => (v !== undefined && Number.isFinite(v) ? Number(v.toPrecision(6)) : null);

function stepChart(steps: readonly MetricRecord[], c: (typeof CHARTS)[number]): ChartData[] {
  const kept = thin(steps, LARGEST_SERIES);
  const series = c.keys
    .map(([key, label]) => ({ label, values: kept.map((r) => finite(r[key])) }))
    .filter((s) => s.values.some((v) => v !== null));
  if (series.length === 0) return [];
  return [{ title: c.title, xLabel: 'step', x: kept.map((r) => r[TRAINING_STEP]!), series, ...(c.hint ? { hint: c.hint } : {}) }];
}

/** Validation scores with their intervals over the rolling score of training. */
function scoreChart(steps: readonly MetricRecord[], scores: ReturnType<typeof validationPoints>): ChartData[] {
  if (scores.length === 0) return [];
  const at = new Map(scores.map((p) => [p.step, p.score]));
  const rolling = new Map(thin(steps, LARGEST_SERIES).map((r) => [r[TRAINING_STEP]!, r['training/score_rolling']]));
  const x = [...new Set([...at.keys(), ...rolling.keys()])].sort((a, b) => a - b);
  return [
    {
      title: 'Score on held-out tasks',
      xLabel: 'step',
      x,
      series: [
        { label: 'training, rolling', values: x.map((s) => finite(rolling.get(s))) },
        { label: 'validation', values: x.map((s) => finite(at.get(s)?.mean)), kind: 'points' },
        { label: '95% low', values: x.map((s) => finite(at.get(s)?.low)), kind: 'low' },
        { label: '95% high', values: x.map((s) => finite(at.get(s)?.high)), kind: 'high' },
      ],
    },
  ];
}

function warmStartChart(records: readonly MetricRecord[]): ChartData[] {
  const kept = thin(
    records.filter((r) => r[SFT_STEP] !== undefined),
    LARGEST_SERIES,
  );
  if (kept.length === 0) return [];
  return [
    {
      title: 'Warm start',
      xLabel: 'supervised step',
      x: kept.map((r) => r[SFT_STEP]!),
      series: [{ label: 'cross-entropy', values: kept.map((r) => finite(r['sft/loss'])) }],
    },
  ];
}

/** The version that the trainer held when it took each step: what the one before had published. */
function versionAtStep(steps: readonly MetricRecord[]): VersionAt {
  const after = new Map(steps.map((r) => [r[TRAINING_STEP]!, r['training/version']]));
  return (step) => after.get(step - 1);
}

function histograms(all: readonly TrajectoryHead[], versionAt: VersionAt): HistogramData[] {
  const stale = all.map((d) => staleness(d, versionAt)).filter((v): v is number => v !== null && v >= 0);
  const rows: [title: string, unit: string, values: number[]][] = [
    ['Tokens that the policy produced, an episode', 'tokens', all.map((d) => d.produced_tokens)],
    ['Tokens of the whole conversation', 'tokens', all.map((d) => d.tokens)],
    ['Turns of the policy', 'turns', all.map((d) => d.turns)],
    ['Staleness of the oldest token when trained', 'versions', stale],
    ['Reward', '', all.map((d) => d.reward).filter(Number.isFinite)],
  ];
  return rows.map(([title, unit, values]) => histogram(title, unit, values)).filter((h) => h.counts.length > 0);
}

/** Equal bars; whole numbers within few values get one bar each. */
export function histogram(title: string, unit: string, values: readonly number[]): HistogramData {
  if (values.length === 0) return { title, unit, edges: [], counts: [] };
  let low = Infinity;
  let high = -Infinity;
  let whole = true;
  for (const v of values) {
    low = Math.min(low, v);
    high = Math.max(high, v);
    whole &&= Number.isInteger(v);
  }
  const width = whole ? Math.max(1, Math.ceil((high - low + 1) / BARS)) : (high - low) / BARS || 1;
  const bars = Math.max(1, whole ? Math.floor((high - low) / width) + 1 : BARS);
  const counts = new Array<number>(bars).fill(0);
  for (const v of values) counts[Math.min(bars - 1, Math.floor((v - low) / width))]!++;
  return { title, unit, edges: counts.map((_, i) => Number((low + i * width).toPrecision(6))), counts };
}
