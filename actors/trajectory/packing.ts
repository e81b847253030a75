/**
 * Packing: trajectories laid end to end in (task, sample) order, nothing padded and nothing dropped, and the cuts into micro-batches.
 * The order fixes the chain of the weight gradients, so it never depends on who finished first.
 */
import { ActorsError } from '../errors.ts';
import type { Trajectory } from './types.ts';

export interface PackedTrajectories {
  /** [n] all tokens. */
  ids: Int32Array;
  /** [s + 1] where each sequence starts. */
  cuSeqlens: Int32Array;
  /** [n] 1 where the policy produced the token. */
  mask: Uint8Array;
  /** [n] log pi_behaviour. */
  behaviour: Float32Array;
  /** [n] version of the policy, -1 where mask is 0. */
  versions: Int32Array;
  /** [s] index of the sequence's group in `groups`; ascending. */
  groupOf: Int32Array;
  groups: string[];
  tasks: Int32Array;
  samples: Int32Array;
  rewards: Float64Array;
  /** [s] 1 where a length or turn limit ended the episode, not the environment. */
  truncated: Uint8Array;
  /** [n, each] experts of each token, as generation recorded them; absent where some trajectory has none. */
  experts?: Uint8Array | Uint16Array;
}

/** Sequences `from` to `to` (exclusive) of a packed batch: a micro-batch or a mini-batch. */
export interface SequenceRange {
  from: number;
  to: number;
}

export function compareTrajectories(a: Trajectory, b: Trajectory): number {
  return a.task - b.task || a.sample - b.sample;
}

/** Packs trajectories; every token that the policy produced must carry a finite log-probability and a version. */
export function pack(trajectories: readonly Trajectory[]): PackedTrajectories {
  const sorted = [...trajectories].sort(compareTrajectories);
  let n = 0;
  let s = 0;
  for (const t of sorted) {
    n += t.ids.length;
    s += 1 + (t.forks?.length ?? 0);
  }
  const packed: PackedTrajectories = {
    ids: new Int32Array(n),
    cuSeqlens: new Int32Array(s + 1),
    mask: new Uint8Array(n),
    behaviour: new Float32Array(n),
    versions: new Int32Array(n).fill(-1),
    groupOf: new Int32Array(s),
    groups: [],
    tasks: new Int32Array(s),
    samples: new Int32Array(s),
    rewards: new Float64Array(s),
    truncated: new Uint8Array(s),
  };
  let offset = 0;
  let i = 0;
  for (const t of sorted) {
    checkEvidence(t);
    packed.ids.set(t.ids, offset);
    packed.mask.set(t.mask, offset);
    packed.behaviour.set(t.logprobs, offset);
    packed.versions.set(t.versions, offset);
    if (packed.groups.at(-1) !== t.group) packed.groups.push(t.group);
    for (const end of [...(t.forks ?? []), t.ids.length]) {
      packed.groupOf[i] = packed.groups.length - 1;
      packed.tasks[i] = t.task;
      packed.samples[i] = t.sample;
      packed.rewards[i] = t.reward;
      packed.truncated[i] = t.stopReason === 'length' || t.stopReason === 'turns' ? 1 : 0;
      packed.cuSeqlens[++i] = offset + end;
    }
    offset += t.ids.length;
  }
  const experts = packExperts(sorted, n);
  return experts ? { ...packed, experts } : packed;
}

function packExperts(sorted: readonly Trajectory[], n: number): Uint8Array | Uint16Array | undefined {
  const first = sorted.find((t) => t.ids.length > 0)?.experts;
  if (first === undefined || !sorted.every((t) => t.ids.length === 0 || t.experts !== undefined)) return undefined;
  const parts = sorted.flatMap((t) => (t.ids.length === 0 ? [] : [t.experts!]));
  const all = new (first instanceof Uint8Array ? Uint8Array : Uint16Array)(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all.length % n === 0 ? all : undefined;
}

/** The experts of tokens `start` to `end` (exclusive) of a batch of n tokens. */
export function sliceExperts(p: PackedTrajectories, start: number, end: number): Uint8Array | Uint16Array | undefined {
  const each = (p.experts?.length ?? 0) / p.ids.length;
  return p.experts?.subarray(start * each, end * each);
}

function checkEvidence(t: Trajectory): void {
  const n = t.ids.length;
  const refuse = (what: string): never => {
    throw new ActorsError(
      'SINKFLEX_TRAJECTORY_EVIDENCE',
      `task ${t.task} sample ${t.sample}: ${what}. The trainer only takes tokens as the engine emitted them, with log-probability and version.`,
      { details: { task: t.task, sample: t.sample } },
    );
  };
  if (t.mask.length !== n || t.logprobs.length !== n || t.versions.length !== n) {
    refuse(`${n} ids but ${t.mask.length} mask, ${t.logprobs.length} log-probability and ${t.versions.length} version entries`);
  }
  if ((t.forks ?? []).some((at, i, all) => !(at > (all[i - 1] ?? 0) && at < n)))
    refuse(`sequences that begin at ${t.forks} of ${n} tokens`);
  if (n > 0 && [0, ...(t.forks ?? [])].some((at) => t.mask[at] === 1))
    refuse('the first token of a sequence is marked as produced by the policy, but nothing precedes it');
  for (let k = 0; k < n; k++) {
    if (t.mask[k] === 1 && (!Number.isFinite(t.logprobs[k]!) || t.versions[k]! < 0)) {
      refuse(`token ${k} was produced by the policy but has log-probability ${t.logprobs[k]} and version ${t.versions[k]}`);
    }
  }
}

/** Cuts `within` into runs of at most `tokenBudget` tokens and `sequences` sequences; a longer sequence stands alone. In order, nothing dropped. */
export function microBatches(
  cuSeqlens: Int32Array,
  tokenBudget: number,
  within: SequenceRange = { from: 0, to: cuSeqlens.length - 1 },
  sequences = Number.POSITIVE_INFINITY,
): SequenceRange[] {
  const ranges: SequenceRange[] = [];
  let from = within.from;
  while (from < within.to) {
    let to = from + 1;
    while (to < within.to && to - from < sequences && cuSeqlens[to + 1]! - cuSeqlens[from]! <= tokenBudget) to++;
    ranges.push({ from, to });
    from = to;
  }
  return ranges;
}

/** Cuts a batch into mini-batches of `prompts` whole groups (the last may be smaller). */
export function miniBatches(packed: PackedTrajectories, prompts: number): SequenceRange[] {
  const ranges: SequenceRange[] = [];
  const s = packed.groupOf.length;
  let from = 0;
  while (from < s) {
    const firstGroup = packed.groupOf[from]!;
    let to = from;
    while (to < s && packed.groupOf[to]! < firstGroup + prompts) to++;
    ranges.push({ from, to });
    from = to;
  }
  return ranges;
}

/** Token offsets of a range of sequences. */
export function tokenSpan(cuSeqlens: Int32Array, r: SequenceRange): { start: number; end: number } {
  return { start: cuSeqlens[r.from]!, end: cuSeqlens[r.to]! };
}

/** The range as a batch of its own (ids are a view, offsets start at 0). */
export function sliceBatch(ids: Int32Array, cuSeqlens: Int32Array, r: SequenceRange): { ids: Int32Array; cuSeqlens: Int32Array } {
  const { start, end } = tokenSpan(cuSeqlens, r);
  const offsets = new Int32Array(r.to - r.from + 1);
  for (let i = 0; i < offsets.length; i++) offsets[i] = cuSeqlens[r.from + i]! - start;
  return { ids: ids.subarray(start, end), cuSeqlens: offsets };
}

/** The sequences that `keep` selects, packed anew in the same order. */
export function selectSequences(p: PackedTrajectories, keep: (sequence: number) => boolean): PackedTrajectories {
  const chosen: number[] = [];
  for (let i = 0; i < p.groupOf.length; i++) if (keep(i)) chosen.push(i);
  if (chosen.length === p.groupOf.length) return p;
  let n = 0;
  for (const i of chosen) n += p.cuSeqlens[i + 1]! - p.cuSeqlens[i]!;
  const out: PackedTrajectories = {
    ids: new Int32Array(n),
    cuSeqlens: new Int32Array(chosen.length + 1),
    mask: new Uint8Array(n),
    behaviour: new Float32Array(n),
    versions: new Int32Array(n),
    groupOf: Int32Array.from(chosen, (i) => p.groupOf[i]!),
    groups: p.groups,
    tasks: Int32Array.from(chosen, (i) => p.tasks[i]!),
    samples: Int32Array.from(chosen, (i) => p.samples[i]!),
    rewards: Float64Array.from(chosen, (i) => p.rewards[i]!),
    truncated: Uint8Array.from(chosen, (i) => p.truncated[i]!),
  };
  const each = (p.experts?.length ?? 0) / p.ids.length;
  if (p.experts) out.experts = new (p.experts instanceof Uint8Array ? Uint8Array : Uint16Array)(n * each);
  let offset = 0;
  chosen.forEach((i, k) => {
    const start = p.cuSeqlens[i]!;
    const end = p.cuSeqlens[i + 1]!;
    out.ids.set(p.ids.subarray(start, end), offset);
    out.mask.set(p.mask.subarray(start, end), offset);
    out.behaviour.set(p.behaviour.subarray(start, end), offset);
    out.versions.set(p.versions.subarray(start, end), offset);
    if (p.experts) out.experts!.set(p.experts.subarray(start * each, end * each), offset * each);
    offset += end - start;
    out.cuSeqlens[k + 1] = offset;
  });
  return out;
}
