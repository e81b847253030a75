/**
 * Validation: the same held-out tasks for every run and seed, sampled by the same code as training with keys of their own. Its own keys
 * mean that a score is a function of the weights alone.
 */
import type { TaskSource } from '../tasks/index.ts';
import type { Trajectory } from '../trajectory/index.ts';
import type { TrainingConfig } from './config.ts';
import type { RolloutPool } from './pool.ts';
import { type Interval, mean, passRates, scoreInterval } from './statistics.ts';
import { diagnosticMeans, diagnosticMetrics } from './step-metrics.ts';

export interface Validation {
  interval: Interval;
  /** Where a task has several samples. */
  rates: ReturnType<typeof passRates>;
  /** Held-out tasks in order, `n` samples each. */
  trajectories: Trajectory[];
  seconds: number;
  /** Means of what the environment counted beside the score. */
  diagnostics: Record<string, number>;
  metrics: Record<string, number>;
}

/** No more held-out tasks than there are, so that none is run twice. */
export function clipValidation(config: TrainingConfig, tasks: Pick<TaskSource, 'heldOutCount'>): TrainingConfig {
  const there = tasks.heldOutCount;
  const { val_size: size, val_interim_size: interim } = config.data;
  return size <= there ? config : { ...config, data: { ...config.data, val_size: there, val_interim_size: Math.min(interim, there) } };
}

/** Tasks handed to an actor in one call. */
const chunk = 8;

export async function validate(o: {
  pool: RolloutPool;
  config: TrainingConfig;
  source: Pick<TaskSource, 'heldOut'>;
  tasks: number;
  /** Seeds in place of the held-out ones, under a name of their own. */
  instead?: { name: string; seeds: readonly number[] };
  signal: AbortSignal;
  onProgress?: (done: number) => void;
}): Promise<Validation> {
  const { pool, config, signal } = o;
  const began = performance.now();
  const n = config.val.n;
  const { instead } = o;
  const taskOf = (index: number) => (instead ? { seed: instead.seeds[index]! } : o.source.heldOut(index));
  let done = 0;
  const parts: Promise<Trajectory[]>[] = [];
  for (let from = 0; from < o.tasks; from += chunk) {
    const tasks = Array.from({ length: Math.min(chunk, o.tasks - from) }, (_, k) => ({ index: from + k, ...taskOf(from + k) }));
    parts.push(
      pool.run({ tasks, samples: n, phase: 'validation', temperature: config.val.temperature }, signal).then((t) => {
        done += tasks.length;
        o.onProgress?.(done);
        return t;
      }),
    );
  }
  const trajectories = (await Promise.all(parts)).flat().sort((a, b) => a.task - b.task || a.sample - b.sample);
  // Episodes that infrastructure lost for good are left out: they say nothing about the policy.
  const groups: number[][] = Array.from({ length: o.tasks }, () => []);
  for (const t of trajectories) if (t.stopReason !== 'error' && Number.isFinite(t.reward)) groups[t.task]!.push(t.reward);
  const interval = scoreInterval(groups);
  const core = `val-core/${instead ? instead.name.replace(/[^\w.-]+/g, '-') : config.env.name}`;
  const source = `${core}/reward/mean@${n}`;
  const seconds = (performance.now() - began) / 1000;
  const rates = n > 1 ? passRates(groups, n) : [];
  return {
    interval,
    rates,
    trajectories,
    seconds,
    diagnostics: diagnosticMeans(trajectories),
    metrics: {
      [source]: interval.mean,
      [`${source}/low`]: interval.low,
      [`${source}/high`]: interval.high,
      [`${core}/tasks`]: interval.n,
      ...Object.fromEntries(
        rates.flatMap(({ k, passAtK, passHatK }) => [
          [`${core}/acc/pass@${k}`, passAtK.mean],
          [`${core}/acc/pass^${k}`, passHatK.mean],
        ]),
      ),
      ...diagnosticMetrics('val-aux/diagnostics', trajectories),
      'val-aux/num_turns/mean': mean(trajectories.map((t) => t.turns)),
      'timing_s/testing': seconds,
    },
  };
}
