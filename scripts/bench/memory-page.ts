// docs/memory.md and its plot, from the cells of the suite `memory`.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { drawCurve, PALETTE } from '../../actors/index.ts';
import { packageRoot } from '../package-root.ts';

export interface Cell {
  side: 'ours' | 'eager';
  /** What differs from the plain step. */
  part: string;
  tokens: number;
  /** VmHWM in bytes; left out where memory ran out. */
  peak?: number;
  seconds?: number;
  /** On the processors, all threads: what other work on the machine does not change much. */
  cpuSeconds?: number;
  /** Mean over the next tokens: both sides do the same work. */
  loss?: number;
  /** Why there is no peak. */
  memory?: string;
  /** The engine's own, in bytes. */
  counters?: Record<string, number>;
}

/** Reasons for memory that the peer script can take away from eager, one by one. */
export const PARTS = ['fusion', 'mask-metadata', 'chunked-loss', 'checkpointing'] as const;

const mib = (bytes: number): string => Math.round(bytes / 2 ** 20).toLocaleString('en');
const peakOf = (c?: Cell): string => (c === undefined ? '' : c.peak === undefined ? (c.memory ?? '') : mib(c.peak));
const secondsOf = (c?: Cell): string => (c?.cpuSeconds === undefined ? '' : c.cpuSeconds.toFixed(2));

export function writePage(cells: readonly Cell[], threads: number): void {
  const plain = cells.filter((c) => c.part === 'none');
  const ours = plain.filter((c) => c.side === 'ours');
  const eager = plain.filter((c) => c.side === 'eager');
  const rows = ours.map((c) => {
    const e = eager.find((x) => x.tokens === c.tokens);
    const saving = c.peak === undefined || e?.peak === undefined ? '' : `${(100 * (1 - c.peak / e.peak)).toFixed(1)}%`;
    const counted = c.counters ?? {};
    const own = ['activationBytes', 'workspaceBytes', 'logitsBytes'].map((k) => (counted[k] === undefined ? '' : mib(counted[k])));
    return [c.tokens.toLocaleString('en'), peakOf(e), peakOf(c), saving, secondsOf(e), secondsOf(c), ...own];
  });
  const at = cells.find((c) => c.part === PARTS[0])?.tokens;
  const of = (side: Cell['side'], parts: readonly string[]): string[] => {
    const c = cells.find((c) => c.side === side && c.tokens === at && c.part === (parts.join('+') || 'none'));
    return [peakOf(c), secondsOf(c)];
  };
  const ablation = [
    ['none', ...of('eager', []), ...of('eager', PARTS)],
    ...PARTS.map((part) => [
      part,
      ...of('eager', [part]),
      ...of(
        'eager',
        PARTS.filter((p) => p !== part),
      ),
    ]),
    ['all', ...of('eager', PARTS), ...of('eager', [])],
    ['ours', ...of('ours', []), '', ''],
    ['ours, checkpointing', ...of('ours', ['checkpointing']), '', ''],
  ];
  const page = `# Memory of a training step

Written by \`npm run bench -- memory --peers\`. A gpt_oss model of 10 million parameters (4 layers, width 256, 8 query and 2 key heads of 32,
8 experts of which 2 a token, window 128 in every other layer, vocabulary 4,096), float32, ${threads} threads, one sequence: forward, loss of every
next token, backward, AdamW. Each cell is one step in a fresh process (first step, so that times include what is made once) that is ended
when its resident memory passes 16 GiB or it has taken 300 s of processor time, on both sides alike: eager is transformers'
\`attn_implementation="eager"\`. Peaks are VmHWM of the process, runtime included (torch's libraries, Node); times are processor seconds of all
threads. After the first length that eager could not take, longer ones are not tried. \`SINKFLEX_BENCH_CELLS=cells.jsonl\` before the command
keeps what was measured and goes on from it.

${tableOf(['tokens', 'eager MiB', 'ours MiB', 'saving', 'eager cpu s', 'ours cpu s', 'ours: activations MiB', 'workspace MiB', 'logits MiB'], rows)}

![Peak memory by length](images/memory.svg)

## One part at a time

At ${at?.toLocaleString('en')} tokens:

${tableOf(['parts', 'eager with it, MiB', 'cpu s', 'with all but it, MiB', 'cpu s'], ablation)}

| part | what is taken away from eager |
|---|---|
| fusion | the scores: attention is torch's fused CPU kernel, forward and backward, its output and log-sum-exp corrected for the sink |
| mask-metadata | the masks: window and causality are told, not stored, and blocks of keys that nobody sees are left out |
| chunked-loss | the logits: head and loss take 384 tokens at a time, and again in the backward |
| checkpointing | what layers keep: all but their inputs is computed again |

All of these are written for this comparison around transformers' model (\`scripts/bench/peers/memory_row.py\`) and give its loss; those of attention were compared in the norm of gradients too. The engine
is fused, has no stored masks and takes the loss in chunks always; checkpointing is its only switch (\`forward({ checkpointing })\`).
`;
  writeFileSync(join(packageRoot, 'docs', 'memory.md'), page);
  const line = (of: readonly Cell[]) => of.filter((c) => c.peak !== undefined).map((c) => ({ x: c.tokens, y: c.peak! / 2 ** 30 }));
  const dots = (of: readonly Cell[]) => line(of).map(({ x, y }) => ({ x, score: { mean: y, low: y, high: y, n: 1 } }));
  const svg = drawCurve({
    title: 'Peak memory of a training step',
    subtitle: 'small gpt_oss, one sequence, 16 GiB a process; a line ends where memory ran out',
    xLabel: 'tokens',
    yLabel: 'GiB',
    yMax: 16,
    series: [
      { label: 'eager', color: PALETTE[1], points: dots(eager) },
      { label: 'ours', color: PALETTE[0], points: dots(ours) },
    ],
  });
  writeFileSync(join(packageRoot, 'docs', 'images', 'memory.svg'), svg);
}

function tableOf(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [head, head.map((_, i) => (i === 0 ? '---' : '--:')), ...rows].map((r) => `| ${r.join(' | ')} |`).join('\n');
}
