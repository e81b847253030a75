// The recorded trajectories of a run, for its report: a few numbers of each, and some of them token by token. A store may be larger than
// memory: it is read as a stream, once for the numbers and once for those that are shown.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fromRecord, type RunFolder, readTrajectories, Tokenizer, type TrajectoryRecord } from '../../actors/index.ts';

export interface EpisodeData {
  step: number;
  phase: string;
  task: number;
  sample: number;
  reward: number;
  parts: Record<string, number>;
  advantage: number | null;
  stop: string;
  turns: number;
  toolCalls: number;
  /** Versions between sampling and training, of the oldest token; null where it was not trained. */
  staleness: number | null;
  /** Runs of text: [who, pieces]; pieces of the policy are [text, log-probability]. */
  spans: ({ policy: false; text: string } | { policy: true; pieces: [string, number][] })[];
}

/** What histograms and the choice of episodes need of a trajectory. */
export interface Digest {
  step: number;
  task: number;
  sample: number;
  reward: number;
  /** Tokens that the policy produced, and all. */
  produced: number;
  tokens: number;
  turns: number;
  /** Lowest version among its tokens; null where it has none. */
  oldest: number | null;
}

/** The version that the trainer held when it took a step. */
export type VersionAt = (step: number) => number | undefined;

const EPISODE_STEPS = 24;
const EPISODES_A_STEP = 4;

/** Every so many of a list, the first and the last among them. */
export function thin<T>(items: readonly T[], limit: number): T[] {
  if (items.length <= limit) return [...items];
  return Array.from({ length: limit }, (_, i) => items[Math.round((i * (items.length - 1)) / (limit - 1))]!);
}

/** Versions between sampling and training, of the oldest token. */
export function staleness(d: Digest, versionAt: VersionAt): number | null {
  const version = versionAt(d.step);
  return version === undefined || d.oldest === null ? null : version - d.oldest;
}

/** Of the training trajectories, in the order of the store. */
export async function digests(run: RunFolder): Promise<Digest[]> {
  const all: Digest[] = [];
  for await (const r of stored(run.file('trajectories', 'train.jsonl'))) all.push(digest(r));
  return all;
}

function digest(r: TrajectoryRecord): Digest {
  return {
    step: r.step,
    task: r.task,
    sample: r.sample,
    reward: r.reward,
    produced: r.produced.reduce((sum, [a, b]) => sum + b - a, 0),
    tokens: r.ids.length,
    turns: r.turns,
    oldest: r.versions.reduce<number | null>((low, [v]) => (low === null || v < low ? v : low), null),
  };
}

async function* stored(path: string): AsyncGenerator<TrajectoryRecord> {
  if (existsSync(path)) yield* readTrajectories(path);
}

/** A few episodes of some steps over the whole run, the lowest and highest rewards of each among them, and of the last validation. */
export async function chosenEpisodes(run: RunFolder, all: readonly Digest[], versionAt: VersionAt): Promise<EpisodeData[]> {
  const byStep = new Map<number, Digest[]>();
  for (const d of all) {
    const of = byStep.get(d.step);
    if (of) of.push(d);
    else byStep.set(d.step, [d]);
  }
  const steps = thin(
    [...byStep.keys()].sort((a, b) => a - b),
    EPISODE_STEPS,
  );
  const show = episodeOf(run, versionAt);
  const chosen = await these(
    run.file('trajectories', 'train.jsonl'),
    steps.flatMap((s) => spreadOut(byStep.get(s)!)),
    show,
  );
  const last = run.validationSteps().at(-1);
  if (last === undefined) return chosen;
  const path = run.validationFile(last);
  const validation: Digest[] = [];
  for await (const r of stored(path)) validation.push(digest(r));
  return [...chosen, ...(await these(path, spreadOut(validation), show))];
}

const spreadOut = (digests: readonly Digest[]): Digest[] =>
  thin(
    [...digests].sort((a, b) => a.reward - b.reward || a.task - b.task || a.sample - b.sample),
    EPISODES_A_STEP,
  );

/** In the order of `wanted`. */
async function these(path: string, wanted: readonly Digest[], show: (r: TrajectoryRecord) => EpisodeData): Promise<EpisodeData[]> {
  const keyOf = (d: Pick<Digest, 'step' | 'task' | 'sample'>): string => `${d.step},${d.task},${d.sample}`;
  const place = new Map(wanted.map((d, i) => [keyOf(d), i]));
  const found = new Array<EpisodeData | undefined>(wanted.length);
  for await (const r of stored(path)) {
    const i = place.get(keyOf(r));
    if (i !== undefined) found[i] = show(r);
  }
  return found.filter((e) => e !== undefined);
}

function episodeOf(run: RunFolder, versionAt: VersionAt): (r: TrajectoryRecord) => EpisodeData {
  const last = run.checkpoints().at(-1);
  const folder = last === undefined ? undefined : join(run.checkpoint(last), 'model');
  const piece = pieces(folder !== undefined && existsSync(join(folder, 'tokenizer.json')) ? Tokenizer.load(folder) : undefined);
  return (r) => ({
    step: r.step,
    phase: r.phase,
    task: r.task,
    sample: r.sample,
    reward: r.reward,
    parts: r.reward_parts,
    advantage: r.advantage ?? null,
    stop: r.stop_reason,
    turns: r.turns,
    toolCalls: r.tool_calls,
    staleness: r.phase === 'train' ? staleness(digest(r), versionAt) : null,
    spans: spansOf(r, piece),
  });
}

function spansOf(r: TrajectoryRecord, piece: (previous: number | undefined, id: number) => string): EpisodeData['spans'] {
  const t = fromRecord(r);
  const spans: EpisodeData['spans'] = [];
  for (let k = 0; k < t.ids.length; k++) {
    const text = piece(t.ids[k - 1], t.ids[k]!);
    const span = spans.at(-1);
    if (t.mask[k] === 1) {
      const one: [string, number] = [text, Number(t.logprobs[k]!.toFixed(3))];
      if (span?.policy) span.pieces.push(one);
      else spans.push({ policy: true, pieces: [one] });
    } else if (span && !span.policy) span.text += text;
    else spans.push({ policy: false, text });
  }
  return spans;
}

/** The text that a token adds after the one before it: what stands between words belongs to the pair, not to the token. */
function pieces(tokenizer: Tokenizer | undefined): (previous: number | undefined, id: number) => string {
  if (!tokenizer) return (_, id) => ` ${id}`;
  const known = new Map<string, string>();
  return (previous, id) => {
    const key = `${previous},${id}`;
    let text = known.get(key);
    if (text === undefined) {
      const before = previous === undefined ? '' : tokenizer.decode(Int32Array.of(previous));
      const both = tokenizer.decode(previous === undefined ? Int32Array.of(id) : Int32Array.of(previous, id));
      text = both.startsWith(before) ? both.slice(before.length) : tokenizer.decode(Int32Array.of(id));
      known.set(key, text);
    }
    return text;
  };
}
