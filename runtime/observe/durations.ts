// How long calls took, by kind of actor and method, from what the workers have recorded.
import type { SummaryRow } from './facts.ts';
import type { Recording } from './questions.ts';
import { RUN_FIELDS } from './recorder.ts';

/** Adds counts and quantiles to the rows of a summary. */
export function addDurations(
  recordings: readonly (Recording | null)[],
  actors: ReadonlyMap<number, { kind: string }>,
  row: (kind: string, method: string) => SummaryRow,
): void {
  const durations = new Map<SummaryRow, number[]>();
  for (const recording of recordings) {
    if (recording === null) continue;
    const { runs, methods } = recording;
    for (let at = 0; at < runs.length; at += RUN_FIELDS) {
      const kind = actors.get(runs[at]!)?.kind;
      if (kind === undefined) continue; // of an actor that is forgotten
      const of = row(kind, methods[runs[at + 2]!]!);
      const list = durations.get(of);
      if (list === undefined) durations.set(of, [runs[at + 7]!]);
      else list.push(runs[at + 7]!);
    }
  }
  for (const [of, list] of durations) {
    const sorted = Float64Array.from(list).sort();
    of.recorded = sorted.length;
    of.p50Ms = quantile(sorted, 0.5);
    of.p99Ms = quantile(sorted, 0.99);
    of.maxMs = sorted.at(-1)!;
  }
}

/** The smallest that at least that share does not exceed. */
export function quantile(sorted: Float64Array, share: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)]!;
}
