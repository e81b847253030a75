/**
 * What a stored trajectory looks like: readable by people (text, reward parts) and exact for machines (ids, mask spans, versions;
 * log-probabilities as base64 of little-endian float32). The stores keep it, exports write it, `fromRecord` gives the trajectory back.
 */

import type { StopReason, Trajectory, TrajectorySeconds } from './types.ts';

export interface TrajectoryRecord {
  step: number;
  phase: 'train' | 'validation';
  task: number;
  sample: number;
  group: string;
  seed: number;
  reward: number;
  reward_parts: Record<string, number>;
  /** What the environment counted beside the score; absent where it counts nothing. */
  diagnostics?: Record<string, number>;
  stop_reason: StopReason;
  turns: number;
  tool_calls: number;
  malformed: number;
  redone: number;
  lineage: number;
  /** What the trainer made of the reward; absent where it was not trained. */
  advantage?: number;
  /** Why it was not trained, if it was not. */
  filtered?: string;
  text: string;
  ids: number[];
  /** Offsets at which a new sequence begins; absent where the context was never compacted. */
  forks?: number[];
  /** [start, end) spans that the policy produced. */
  produced: [number, number][];
  /** [version, tokens] runs over the produced tokens. */
  versions: [number, number][];
  /** Of the produced tokens. */
  logprobs: string;
  seconds: TrajectorySeconds;
}

export function toRecord(
  t: Trajectory,
  o: { step: number; phase: 'train' | 'validation'; text: string; filtered?: string; advantage?: number },
): TrajectoryRecord {
  const produced: [number, number][] = [];
  const versions: [number, number][] = [];
  const logprobs: number[] = [];
  for (let k = 0; k < t.ids.length; k++) {
    if (t.mask[k] !== 1) continue;
    const span = produced.at(-1);
    if (span && span[1] === k) span[1] = k + 1;
    else produced.push([k, k + 1]);
    const run = versions.at(-1);
    if (run && run[0] === t.versions[k]) run[1]++;
    else versions.push([t.versions[k]!, 1]);
    logprobs.push(t.logprobs[k]!);
  }
  return {
    step: o.step,
    phase: o.phase,
    task: t.task,
    sample: t.sample,
    group: t.group,
    seed: t.seed,
    reward: t.reward,
    reward_parts: t.rewardParts,
    ...(t.diagnostics === undefined || Object.keys(t.diagnostics).length === 0 ? {} : { diagnostics: t.diagnostics }),
    stop_reason: t.stopReason,
    turns: t.turns,
    tool_calls: t.toolCalls,
    malformed: t.malformed,
    redone: t.redone,
    lineage: t.lineage,
    ...(o.advantage === undefined ? {} : { advantage: o.advantage }),
    ...(o.filtered === undefined ? {} : { filtered: o.filtered }),
    text: o.text,
    ids: [...t.ids],
    ...(t.forks === undefined ? {} : { forks: t.forks }),
    produced,
    versions,
    logprobs: Buffer.from(Float32Array.from(logprobs).buffer).toString('base64'),
    seconds: t.seconds,
  };
}

export function fromRecord(r: TrajectoryRecord): Trajectory {
  const n = r.ids.length;
  const raw = Buffer.from(r.logprobs, 'base64');
  const values = new Float32Array(raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.byteLength));
  const t: Trajectory = {
    task: r.task,
    sample: r.sample,
    group: r.group,
    seed: r.seed,
    ids: Int32Array.from(r.ids),
    mask: new Uint8Array(n),
    ...(r.forks === undefined ? {} : { forks: r.forks }),
    logprobs: new Float32Array(n),
    versions: new Int32Array(n).fill(-1),
    lineage: r.lineage,
    reward: r.reward,
    rewardParts: r.reward_parts,
    ...(r.diagnostics === undefined ? {} : { diagnostics: r.diagnostics }),
    stopReason: r.stop_reason,
    turns: r.turns,
    toolCalls: r.tool_calls,
    malformed: r.malformed,
    redone: r.redone,
    seconds: r.seconds,
  };
  const version = r.versions.flatMap(([v, count]) => Array<number>(count).fill(v));
  let i = 0;
  for (const [start, end] of r.produced) {
    for (let k = start; k < end; k++, i++) {
      t.mask[k] = 1;
      t.logprobs[k] = values[i]!;
      t.versions[k] = version[i]!;
    }
  }
  return t;
}

/** The columns by which stored trajectories are found and counted, without what is heavy. */
export type TrajectoryHead = Omit<TrajectoryRecord, 'text' | 'ids' | 'produced' | 'versions' | 'logprobs'> & {
  /** Tokens in all, and those that the policy produced. */
  tokens: number;
  produced_tokens: number;
  /** Versions of its oldest and newest token; null where the policy produced none. */
  version_min: number | null;
  version_max: number | null;
};

export function headOf(r: TrajectoryRecord): TrajectoryHead {
  const { text: _text, ids, produced, versions, logprobs: _logprobs, ...rest } = r;
  return {
    ...rest,
    tokens: ids.length,
    produced_tokens: produced.reduce((sum, [from, to]) => sum + to - from, 0),
    version_min: versions.reduce<number | null>((low, [v]) => (low === null || v < low ? v : low), null),
    version_max: versions.reduce<number | null>((high, [v]) => (high === null || v > high ? v : high), null),
  };
}
