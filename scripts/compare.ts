// `sinkflex compare`: two runs on the held-out tasks that both have scores of, task by task.
import { isDeepStrictEqual } from 'node:util';
import { Command } from 'commander';
import { mean, pairedComparison, RunFolder, type ValidationScores } from '../actors/index.ts';
import { CommandError } from './errors.ts';
import { interval, table } from './text.ts';

export function compareCommand(): Command {
  return new Command('compare')
    .summary('compare two runs task by task')
    .description(
      'Compares the validations of two runs on the tasks that both have: the mean difference with its 95% interval, and a paired permutation test. ' +
        'Much more telling than two separate intervals, since the difficulty of the tasks cancels.',
    )
    .argument('<a>', 'a run folder (its last validation), or folder@step')
    .argument('<b>', 'what it is compared with; a difference above 0 means that b is better')
    .option('--json', 'print the comparison as one JSON line')
    .addHelpText(
      'after',
      '\nExamples\n  sinkflex compare runs/a runs/b\n  sinkflex compare runs/a@0 runs/a        before and after training\n',
    )
    .action((a: string, b: string, o: { json?: boolean }) => {
      process.stdout.write(compare(a, b, o.json ?? false));
    });
}

function compare(nameA: string, nameB: string, json: boolean): string {
  const [a, b] = [scoresOf(nameA), scoresOf(nameB)];
  for (const key of ['environment', 'options'] as const) {
    if (isDeepStrictEqual(a.scores[key], b.scores[key])) continue;
    const show = (s: ValidationScores) => JSON.stringify(s[key]);
    throw new CommandError(
      'SINKFLEX_USAGE',
      `${nameA} and ${nameB} were scored on different tasks: ${key} ${show(a.scores)} and ${show(b.scores)}`,
    );
  }
  const bySeed = new Map(b.scores.tasks.map((t) => [t.seed, t.rewards]));
  const shared = a.scores.tasks.filter((t) => bySeed.has(t.seed));
  if (shared.length === 0) throw new CommandError('SINKFLEX_USAGE', `${nameA} and ${nameB} have no held-out task in common`);
  const [means, others] = [shared.map((t) => mean(t.rewards)), shared.map((t) => mean(bySeed.get(t.seed)!))];
  const result = pairedComparison(means, others);
  if (json)
    return `${JSON.stringify({ a: { run: nameA, step: a.step, mean: mean(means) }, b: { run: nameB, step: b.step, mean: mean(others) }, tasks: shared.length, ...result })}\n`;
  const rows = [
    [`a: ${nameA}`, `${mean(means).toFixed(3)} after step ${a.step}`],
    [`b: ${nameB}`, `${mean(others).toFixed(3)} after step ${b.step}`],
    ['b - a', interval(result.difference)],
    ['tasks', `${shared.length} in common: b better on ${result.better}, worse on ${result.worse}, equal on ${result.equal}`],
    ['p', `${result.p.toPrecision(2)} (paired permutation test, two-sided)`],
    ...(a.scores.temperature === b.scores.temperature
      ? []
      : [['note', `sampled at temperatures ${a.scores.temperature} and ${b.scores.temperature}`]]),
  ];
  return `${table(rows)}\n`;
}

/** `folder` or `folder@step`. */
function scoresOf(name: string): { step: number; scores: ValidationScores } {
  const [, folder, wanted] = /^(.*?)(?:@(\d+))?$/s.exec(name)!;
  const run = RunFolder.open(folder!);
  const steps = run.validationSteps().filter((s) => run.readScores(s) !== undefined);
  const step = wanted === undefined ? steps.at(-1) : Number(wanted);
  const scores = step === undefined ? undefined : run.readScores(step);
  if (scores) return { step: step!, scores };
  const has = steps.length > 0 ? `it has them after steps ${steps.join(', ')}` : 'it has none';
  throw new CommandError('SINKFLEX_USAGE', `${folder} has no scores${step === undefined ? '' : ` after step ${step}`}: ${has}`);
}
