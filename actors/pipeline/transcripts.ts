// One episode as text for people: who said what, what was scored. The trainer never sees this.
import type { Trajectory } from '../trajectory/index.ts';

export interface TranscriptOptions {
  /** Ids to text. */
  decode: (ids: Int32Array) => string;
  /** One line on where the episode comes from, such as "validation after step 120". */
  origin: string;
  /** Width at which text is wrapped. */
  width?: number;
}

/** A readable transcript: a header, then the turns, the policy's marked `>`, the environment's (prompt, tools, user) `|`. */
export function transcript(t: Trajectory, o: TranscriptOptions): string {
  const width = o.width ?? 110;
  const parts = Object.entries(t.rewardParts).map(([name, value]) => `${name} ${trim(value)}`);
  const lines = [
    `${t.reward >= 1 ? 'Solved' : t.reward > 0 ? 'Partly solved' : 'Failed'} episode: ${o.origin}`,
    `task ${t.task}, sample ${t.sample}, seed ${t.seed}; ended by ${t.stopReason} after ${t.turns} turns, ${t.toolCalls} tool calls, ${t.malformed} malformed`,
    `reward ${trim(t.reward)}${parts.length > 0 ? ` (${parts.join(', ')})` : ''}`,
    '> is the policy, | is the prompt, the tools and the user',
    '',
  ];
  for (const { produced, ids } of spans(t)) {
    for (const paragraph of o.decode(ids).split('\n')) {
      for (const line of wrap(paragraph.trim(), width - 2)) lines.push(`${produced ? '>' : '|'} ${line}`);
    }
  }
  return `${lines.join('\n')}\n`;
}

/** The first failed and the first solved episode, in task order; undefined where there is none. */
export function pickEpisodes(trajectories: readonly Trajectory[]): { failed: Trajectory | undefined; solved: Trajectory | undefined } {
  const ordered = trajectories
    .filter((t) => t.stopReason !== 'aborted' && t.stopReason !== 'error')
    .sort((a, b) => a.task - b.task || a.sample - b.sample);
  return { failed: ordered.find((t) => t.reward < 1), solved: ordered.find((t) => t.reward >= 1) };
}

function* spans(t: Trajectory): Generator<{ produced: boolean; ids: Int32Array }> {
  for (let start = 0, k = 1; k <= t.ids.length; k++) {
    if (k === t.ids.length || t.mask[k] !== t.mask[start]) {
      yield { produced: t.mask[start] === 1, ids: t.ids.slice(start, k) };
      start = k;
    }
  }
}

function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(/ +/)) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return line === '' ? lines : [...lines, line];
}

const trim = (value: number): string => String(Number(value.toFixed(3)));
