// The recorded trajectories of a run, for its report: a few numbers of each, and some of them token by token. A store may be larger than
// memory: it is read as a stream, once for the numbers and once for those that are shown.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import {
  fromRecord,
  headOf,
  type RunFolder,
  Tokenizer,
  type TrajectoryHead,
  type TrajectoryRecord,
  type TrajectoryStore,
} from '../../actors/index.ts';

export interface EpisodeData {
  step: number;
  phase: string;
  task: number;
  sample: number;
  reward: number;
  parts: Record<string, number>;
  /** What the environment counted beside the score. */
  diagnostics: Record<string, number>;
  advantage: number | null;
  stop: string;
  turns: number;
  toolCalls: number;
  /** Versions between sampling and training, of the oldest token; null where it was not trained. */
  staleness: number | null;
  /** Runs of text: [who, pieces]; pieces of the policy are [text, log-probability]. */
  spans: ({ policy: false; text: string } | { policy: true; pieces: [string, number][] })[];
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
export function staleness(h: Pick<TrajectoryHead, 'step' | 'version_min'>, versionAt: VersionAt): number | null {
  const version = versionAt(h.step);
  return version === undefined || h.version_min === null ? null : version - h.version_min;
}

/** Of the training trajectories, in the order of the store. */
export async function trainingHeads(store: TrajectoryStore): Promise<TrajectoryHead[]> {
  const all: TrajectoryHead[] = [];
  for await (const h of store.heads({ phase: 'train' })) all.push(h);
  return all;
}

/** A few episodes of some steps over the whole run, the lowest and highest rewards of each among them, and of the last validation. */
export async function chosenEpisodes(
  run: RunFolder,
  store: TrajectoryStore,
  all: readonly TrajectoryHead[],
  versionAt: VersionAt,
): Promise<EpisodeData[]> {
  const byStep = new Map<number, TrajectoryHead[]>();
  for (const h of all) {
    const of = byStep.get(h.step);
    if (of) of.push(h);
    else byStep.set(h.step, [h]);
  }
  const steps = thin(
    [...byStep.keys()].sort((a, b) => a - b),
    EPISODE_STEPS,
  );
  const show = episodeOf(run, versionAt);
  const chosen: EpisodeData[] = [];
  for (const step of steps) chosen.push(...(await these(store, 'train', step, spreadOut(byStep.get(step)!), show)));
  const last = (await store.stepsOf('validation')).at(-1);
  if (last === undefined) return chosen;
  const validation: TrajectoryHead[] = [];
  for await (const h of store.heads({ phase: 'validation', steps: [last, last] })) validation.push(h);
  return [...chosen, ...(await these(store, 'validation', last, spreadOut(validation), show))];
}

const spreadOut = (heads: readonly TrajectoryHead[]): TrajectoryHead[] =>
  thin(
    [...heads].sort((a, b) => a.reward - b.reward || a.task - b.task || a.sample - b.sample),
    EPISODES_A_STEP,
  );

/** In the order of `wanted`. */
async function these(
  store: TrajectoryStore,
  phase: 'train' | 'validation',
  step: number,
  wanted: readonly TrajectoryHead[],
  show: (r: TrajectoryRecord) => EpisodeData,
): Promise<EpisodeData[]> {
  const found: EpisodeData[] = [];
  for (const { task, sample } of wanted) {
    for await (const r of store.read({ phase, steps: [step, step], task })) if (r.sample === sample) found.push(show(r));
  }
  return found;
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
    diagnostics: r.diagnostics ?? {},
    advantage: r.advantage ?? null,
    stop: r.stop_reason,
    turns: r.turns,
    toolCalls: r.tool_calls,
    staleness: r.phase === 'train' ? staleness(headOf(r), versionAt) : null,
    spans: spansOf(r, piece),
  });
}

function spansOf(r: TrajectoryRecord, piece: (previous: number | undefined, id: number) => string): EpisodeData['spans'] {
  const t = fromRecord(r);
  const spans: EpisodeData['spans'] = [];
  for (let k = 0; k < t.ids.length; k++) {
    const begins = t.forks?.includes(k) ?? false;
    const text = `${begins ? '\n[context compacted: a new sequence begins]\n' : ''}${piece(begins ? undefined : t.ids[k - 1], t.ids[k]!)}`;
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
