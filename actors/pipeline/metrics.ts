// The numbers of a run: their names, and metrics.jsonl read back.
import { existsSync, readFileSync } from 'node:fs';
import type { Interval } from './statistics.ts';

/** The numbers of one step under verl's names. */
export type MetricRecord = Record<string, number>;

/** The name that counts GRPO steps; a record without it belongs to the warm start and has SFT_STEP. */
export const TRAINING_STEP = 'training/global_step';
export const SFT_STEP = 'sft/global_step';

const TIMING_PREFIXES = ['timing_s/', 'timing_per_token_ms/', 'perf/', 'time/'];

/** Wall-clock numbers, which no promise of reproducibility covers. */
export const isTiming = (name: string): boolean => TIMING_PREFIXES.some((p) => name.startsWith(p));

/** The part of a record that a seed fixes in synchronous mode. */
export function withoutTimings(record: MetricRecord): MetricRecord {
  return Object.fromEntries(Object.entries(record).filter(([name]) => !isTiming(name)));
}

/** Reads metrics.jsonl; a torn last line (a crash) is left out. */
export function readMetrics(path: string): MetricRecord[] {
  if (!existsSync(path)) return [];
  const records: MetricRecord[] = [];
  for (const line of readFileSync(path, 'utf8').split('\n')) {
    if (line === '') continue;
    try {
      records.push(JSON.parse(line, (_, v) => v ?? Number.NaN) as MetricRecord);
    } catch {
      break;
    }
  }
  return records;
}

/** A validation as it stands in the metrics: the step it was made after, and its score. */
export interface ValidationPoint {
  step: number;
  score: Interval;
}

/** The validations among the records, by step, whatever their source and N; of two at one step the later counts. */
export function validationPoints(records: readonly MetricRecord[]): ValidationPoint[] {
  const points = new Map<number, ValidationPoint>();
  for (const r of records) {
    const name = Object.keys(r).find((key) => /^val-core\/.+\/reward\/mean@\d+$/.test(key));
    if (name === undefined) continue;
    const step = r[TRAINING_STEP] ?? 0;
    const mean = r[name]!;
    const n = Object.entries(r).find(([key]) => /^val-core\/.+\/tasks$/.test(key))?.[1] ?? 0;
    points.set(step, { step, score: { mean, low: r[`${name}/low`] ?? mean, high: r[`${name}/high`] ?? mean, n } });
  }
  return [...points.values()].sort((a, b) => a.step - b.step);
}
