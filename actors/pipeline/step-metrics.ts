/** What a batch says about its episodes, under verl's names; and the two rolling proxies. Timings apart, a function of the trajectories. */
import { type Metrics, spread } from '../trainer/index.ts';
import { type Batch, type LedgerSnapshot, promptTokens, responseTokens, type Trajectory } from '../trajectory/index.ts';
import type { MetricRecord } from './metrics.ts';
import { mean, type Rolling } from './statistics.ts';

export function batchMetrics(trajectories: readonly Trajectory[], o: { maxTokens: number; components?: readonly string[] }): Metrics {
  const responses = trajectories.map(responseTokens);
  const prompts = trajectories.map(promptTokens);
  const share = (test: (t: Trajectory) => boolean) =>
    trajectories.length === 0 ? 0 : trajectories.filter(test).length / trajectories.length;
  const turns = trajectories.reduce((n, t) => n + t.turns, 0);
  const parts = new Map<string, number[]>();
  for (const t of trajectories) {
    for (const [name, value] of Object.entries(t.rewardParts)) {
      const list = parts.get(name);
      if (list) list.push(value);
      else parts.set(name, [value]);
    }
  }
  return {
    ...diagnosticMetrics('diagnostics', trajectories),
    ...spread('response_length', responses),
    'response_length/clip_ratio': share((t) => t.stopReason === 'length'),
    ...spread('prompt_length', prompts),
    'prompt_length/clip_ratio': share((t) => t.mask.indexOf(1) < 0 && t.ids.length >= o.maxTokens),
    ...spread(
      'num_turns',
      trajectories.map((t) => t.turns),
    ),
    ...spread(
      'tool_call_counts',
      trajectories.map((t) => t.toolCalls),
    ),
    ...(trajectories.some((t) => t.forks)
      ? spread(
          'num_contexts',
          trajectories.map((t) => 1 + (t.forks?.length ?? 0)),
        )
      : {}),
    'response/turns_ratio': share((t) => t.stopReason === 'turns'),
    'tools/malformed_fraction': turns === 0 ? 0 : trajectories.reduce((n, t) => n + t.malformed, 0) / turns,
    'perf/total_num_tokens': trajectories.reduce((n, t) => n + t.ids.length, 0),
    ...Object.fromEntries([...parts].map(([name, values]) => [`rewards/${name}/mean`, mean(values)])),
    ...Object.fromEntries(
      (o.components ?? []).flatMap((name) => (parts.has(name) ? [[`reward/${name}/mean`, mean(parts.get(name)!)]] : [])),
    ),
  };
}

/** Means of what the environment counted beside the score, over the episodes that have it. */
export function diagnosticMeans(trajectories: readonly Trajectory[]): Record<string, number> {
  const values = new Map<string, number[]>();
  for (const t of trajectories) {
    for (const [name, value] of Object.entries(t.diagnostics ?? {})) {
      const list = values.get(name);
      if (list) list.push(value);
      else values.set(name, [value]);
    }
  }
  return Object.fromEntries([...values].map(([name, list]) => [name, mean(list)]));
}

export function diagnosticMetrics(under: string, trajectories: readonly Trajectory[]): Metrics {
  return Object.fromEntries(Object.entries(diagnosticMeans(trajectories)).map(([name, value]) => [`${under}/${name}/mean`, value]));
}

/** The rolling proxies of the score: share of solved episodes, and mean reward, over everything drawn. */
export interface Proxies {
  score: Rolling;
  reward: Rolling;
}

export function proxyMetrics(batch: Batch, proxies: Proxies): Metrics {
  const rewards = batch.results.flatMap((r) => r.rewards);
  const solved = rewards.length === 0 ? 0 : rewards.filter((r) => r >= 1).length / rewards.length;
  const drawn = rewards.length === 0 ? 0 : mean(rewards);
  return {
    'training/score': solved,
    'training/trajectory_reward': drawn,
    'training/score_rolling': proxies.score.push(solved),
    'training/trajectory_reward_rolling': proxies.reward.push(drawn),
    'training/filter_groups/drawn': batch.drawn,
    'training/filter_groups/evicted_samples': Object.values(batch.filtered).reduce((a, b) => a + b, 0),
  };
}

export function ledgerMetrics(l: LedgerSnapshot): MetricRecord {
  const total = (counts: Record<string, number>) => Object.values(counts).reduce((a, b) => a + b, 0);
  return {
    'ledger/sampled': l.sampled,
    'ledger/trained': l.trained,
    'ledger/filtered': total(l.filtered),
    'ledger/aborted': total(l.aborted),
    'ledger/in_flight': l.inFlight,
  };
}
