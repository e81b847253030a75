// The table at the end of a run: before and after with their intervals, what they are measured against, times, and what to try next.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { bestFixedScript, type DebugResult, shellWord, type TrainingResult } from '../actors/index.ts';
import { duration, interval, table, thousands } from './text.ts';

export function finalTable(r: TrainingResult): string {
  const { tasks, n, temperature } = r.validation;
  const best = bestFixedScript(r.baselines);
  const scores: string[][] = [
    ['', `mean@${n}`, '95% interval'],
    ...(r.before === null ? [] : [['before GRPO', r.before.mean.toFixed(3), bracket(r.before)]]),
    ['after GRPO', r.after.mean.toFixed(3), bracket(r.after)],
    ...r.baselines
      .filter((b) => b.name === 'do-nothing' || b.name === 'expert')
      .map((b) => [b.name, b.score.toFixed(3), `on ${tasks} tasks`]),
    ...(best ? [[`best fixed script (${best.name})`, best.score.toFixed(3), `on ${tasks} tasks`]] : []),
  ];
  scores.push(...alsoRows(r));
  const rate = r.seconds.grpo > 0 ? r.tokens / r.seconds.grpo : 0;
  const facts: string[][] = [
    ['GRPO', `${r.steps} steps, ${thousands(r.trajectories)} trajectories, ${duration(r.seconds.grpo)}`],
    ['throughput', `${thousands(rate)} generated tokens/s`],
    ['warm start', duration(r.seconds.warmStart)],
    ['validation', duration(r.seconds.validation)],
    ['in all', duration(r.seconds.total)],
    ['model', `${thousands(r.parameters)} parameters`],
    ...(r.restarts > 0 ? [['actor restarts', String(r.restarts)]] : []),
    ['run folder', r.folder],
  ];
  return [
    '',
    `Held-out score: ${tasks} tasks, temperature ${temperature}, seed ${r.seed}, ${r.mode}`,
    ...(labelLine(r) === '' ? [] : [`  ${labelLine(r)}`]),
    table(scores, { header: true, indent: '  ' }),
    '',
    table(facts, { indent: '  ' }),
    '',
    'Next',
    table(nextSteps(r), { indent: '  ' }),
    '',
  ].join('\n');
}

/** Scores on other tasks, and what was counted beside the score. */
export function alsoRows(r: TrainingResult): string[][] {
  return [
    ...r.also.map((a) => [a.name, a.score.mean.toFixed(3), `${bracket(a.score)}, ${a.tasks} tasks`]),
    ...Object.entries(r.diagnostics).map(([name, value]) => [name.replaceAll('_', ' '), value.toFixed(3), 'an episode']),
  ];
}

/** What the environment says of every score, one line. */
export function labelLine(r: TrainingResult): string {
  return Object.entries(r.labels)
    .map(([name, value]) => `${name} ${value}`)
    .join(', ');
}

/** Whole paths: npm runs its scripts in the folder of the package, wherever it was called. */
function nextSteps(r: TrainingResult): string[][] {
  const transcripts = ['solved', 'failed']
    .map((kind) => join('transcripts', `${kind}.txt`))
    .map((file) => join(r.folder, file))
    .filter((file) => existsSync(file))
    .join(', ');
  const folder = shellWord(r.folder);
  return [
    ...(transcripts === '' ? [] : [['see what it does', transcripts]]),
    ['see how it learned', `${join(r.folder, 'report.html')}, or: tensorboard --logdir ${shellWord(join(r.folder, 'tensorboard'))}`],
    ['train on', `npm run launch -- --resume ${folder} trainer.total_training_steps=${Math.max(2 * r.steps, r.steps + 100)}`],
    ['measure it again', `npx sinkflex evaluate ${folder} data.val_size=1000`],
    ['several seeds', 'npm run study -- --seeds 5'],
    ['change a setting', `npm run launch -- rollout.n=16 --seed ${r.seed + 1}   (all settings: docs/configuration.md)`],
  ];
}

const bracket = (i: { low: number; high: number }): string => `[${i.low.toFixed(3)}, ${i.high.toFixed(3)}]`;

/** What half of a run did. */
export function debugTable(r: DebugResult): string {
  const rows = [
    [r.mode === 'rollout_only' ? 'sampled' : 'trained', `${r.steps} steps, ${thousands(r.trajectories)} trajectories`],
    ['mean reward', r.reward.toFixed(3)],
    ['in all', duration(r.seconds)],
    ['run folder', r.folder],
  ];
  return `\n${table(rows, { indent: '  ' })}\n`;
}

/** The result as one line for other programs. */
export function resultLine(r: TrainingResult): string {
  return JSON.stringify({ ...r, text: `${interval(r.before)} -> ${interval(r.after)}` });
}
