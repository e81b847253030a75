// How rollouts and training overlap: the wall clock of a run cut into equal pieces, and what went on in each.
import type { MetricRecord, TrajectoryHead } from '../../actors/index.ts';
import type { ChartData } from './collect.ts';

/** [from, to] in seconds since 1970. */
type Span = readonly [from: number, to: number];

const PIECES = 400;

/** Of the recorded trajectories and the steps of the trainer; nothing where one of them has no times. */
export function timeline(heads: readonly TrajectoryHead[], steps: readonly MetricRecord[]): ChartData[] {
  const episodes = heads.flatMap(({ seconds: { began, total } }): Span[] => (began === undefined ? [] : [[began, began + total]]));
  const updates = steps.flatMap((r): Span[] => {
    const began = r['time/update_began'];
    return began === undefined ? [] : [[began, began + Math.max(0, (r['timing_s/step'] ?? 0) - (r['timing_s/gen'] ?? 0))]];
  });
  if (episodes.length === 0 || updates.length === 0) return [];
  const all = [...episodes, ...updates];
  const from = all.reduce((low, [began]) => Math.min(low, began), Infinity);
  const width = (all.reduce((high, [, ended]) => Math.max(high, ended), -Infinity) - from) / PIECES;
  if (!(width > 0)) return [];
  const underWay = shares(episodes, from, width);
  const most = Math.max(...underWay);
  return [
    {
      title: 'Rollout and training over time',
      xLabel: 'seconds',
      x: underWay.map((_, i) => Number((i * width).toPrecision(6))),
      series: [
        { label: 'recorded episodes under way, share of the most', values: underWay.map((v) => round(v / most)) },
        { label: 'trainer at work, share of the time', values: shares(updates, from, width).map(round) },
      ],
      hint: 'async: both at once; sync: in turns; both low: validation, checkpoints, or something waits',
    },
  ];
}

const round = (value: number): number => Number(value.toFixed(4));

/** Mean number of spans that are open in each piece. */
function shares(spans: readonly Span[], from: number, width: number): number[] {
  const out = new Array<number>(PIECES).fill(0);
  for (const [began, ended] of spans) {
    const [first, last] = [Math.floor((began - from) / width), Math.min(PIECES - 1, Math.floor((ended - from) / width))];
    for (let i = first; i <= last; i++) {
      const [low, high] = [from + i * width, from + (i + 1) * width];
      out[i]! += (Math.min(ended, high) - Math.max(began, low)) / width;
    }
  }
  return out;
}
