/** Whole episodes of a scripted agent: what it would see of its program is computed here, so that no sandbox is needed to write them. */
import { CounterRandom } from '../random.ts';
import type { DemonstrateOptions, Demonstration, Message } from '../types.ts';
import { same } from './grade.ts';
import { codeOptions } from './options.ts';
import { opening, problemOf } from './problem.ts';
import { type CodeLanguage, evaluate, type Json } from './tasks.ts';

/** How often the scripted agent mistakes the task for a similar one. */
const MISTAKES = 0.5;

export function demonstrate(seed: number, noiseSeed: number, o: DemonstrateOptions = {}): Demonstration {
  const options = codeOptions(o.options);
  const problem = problemOf(seed, options);
  const messages: Message[] = opening(problem);
  let [code, output, reward] = ['', '', 1];
  if (problem.kind === 'stdout') {
    code = problem.task.solution[problem.language];
    output = problem.task.expected[problem.language];
  } else {
    const { task } = problem;
    const errs = new CounterRandom(noiseSeed, seed).chance(Math.min(0.95, MISTAKES * (o.noise ?? 1)));
    const shown = task.examples[0]!;
    const answer = errs ? evaluate(task.mistaken.solve, shown.args) : shown.expected;
    if (errs) reward = Number(task.tests.every((test) => same(evaluate(task.mistaken.solve, test.args), test.expected)));
    code = `${errs ? task.mistaken.solution : task.solution}\n${printed(problem.language, shown.args)}`;
    output = literal(answer, problem.language);
  }
  messages.push(
    { role: 'assistant', content: `\`\`\`${problem.language}\n${code}\n\`\`\`` },
    { role: 'tool', name: 'execute_code', content: `${Array.from(`${output}\n`).slice(-options.outputLimit).join('')}` },
    { role: 'assistant', content: 'FINAL ANSWER' },
  );
  return { messages, reward, solved: reward === 1, rewardParts: { solved: reward }, turns: 2 };
}

const printed = (language: CodeLanguage, args: Json[]): string => {
  const call = `solve(${args.map((a) => JSON.stringify(a)).join(', ')})`;
  return language === 'python' ? `print(${call})` : `console.log(JSON.stringify(${call}));`;
};

/** As the program prints it. */
function literal(value: Json, language: CodeLanguage): string {
  if (language === 'javascript') return JSON.stringify(value);
  if (typeof value === 'string') return value;
  return JSON.stringify(value).replaceAll(',', ', ');
}

/** Ends the task at once. */
export const handInNothing = (): number => 0;
