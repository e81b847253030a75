/** One episode's problem, whichever way it is graded: what the agent reads, and what a right program is. */
import { CounterRandom } from '../random.ts';
import type { Message } from '../types.ts';
import type { CodeOptions } from './options.ts';
import { type CodeLanguage, type CodeTask, generateTask } from './tasks.ts';
import { type StdoutTask, TEXTBOOK } from './textbook.ts';

export type Problem = { language: CodeLanguage } & ({ kind: 'hidden_tests'; task: CodeTask } | { kind: 'stdout'; task: StdoutTask });

const LANGUAGE = 0x6c616e67; // 'lang'
export const NAMES: Record<CodeLanguage, string> = { python: 'Python', javascript: 'JavaScript' };

export function problemOf(seed: number, o: CodeOptions): Problem {
  const language = o.language === 'both' ? new CounterRandom(seed, LANGUAGE).pick(['python', 'javascript'] as const) : o.language;
  if (o.tasks === 'stdout') return { kind: 'stdout', language, task: TEXTBOOK[seed % TEXTBOOK.length]! };
  return { kind: 'hidden_tests', language, task: generateTask(seed, o.level, language) };
}

export function opening(p: Problem): Message[] {
  const fence = `\`\`\`${p.language}`;
  const system = `Write ${NAMES[p.language]}. A program between ${fence} and \`\`\` is run and its output shown. FINAL ANSWER ends the task; the last program is what counts.`;
  return [
    { role: 'system', content: system },
    { role: 'user', content: p.kind === 'stdout' ? p.task.text[p.language] : question(p.task) },
  ];
}

function question(task: CodeTask): string {
  const parameters = /\((.*?)\)/.exec(task.solution)![1]!;
  const examples = task.examples.map((e) => `solve(${e.args.map((a) => JSON.stringify(a)).join(', ')}) is ${JSON.stringify(e.expected)}`);
  return `Write a function solve(${parameters}) that returns ${task.text}.\n${examples.join('\n')}`;
}
