/**
 * The code environment: an agent writes programs, sees what they print, and hands one in. Its programs run in a sandbox of this episode alone;
 * what is handed in is graded in another. What the agent does wrong is an observation or a reward of 0; what the machinery does wrong is thrown,
 * so that the episode is redone.
 */
import { z } from 'zod';
import { type ExecResult, makeSandboxProvider, type Sandbox, type SandboxProvider, sharedSandboxProvider } from '../../sandbox/index.ts';
import { type DefinedTool, defineTool, malformedMessage, type ToolSet, toolMessage, toolSet } from '../tools/index.ts';
import type { Action, Environment, Message, ResetOptions, ResetResult, StepResult, ToolCall } from '../types.ts';
import { searchNotes } from './corpus.ts';
import { type Grade, grade } from './grade.ts';
import { type CodeOptions, codeOptions } from './options.ts';
import { spoken } from './parse.ts';
import { NAMES, opening, type Problem, problemOf } from './problem.ts';
import type { CodeLanguage } from './tasks.ts';

/** What an episode's tools work on. */
interface Work {
  problem: Problem;
  options: CodeOptions;
  provider: SandboxProvider;
  sandbox: Sandbox | undefined;
  /** The last program that was run, and what came of it. */
  last: { code: string; language: CodeLanguage; result: ExecResult } | undefined;
  ran: number;
  failed: number;
  /** Why the episode is over. */
  over: 'finished' | 'timeout' | 'sandbox_killed' | undefined;
  answer: string;
}

const language = z.enum(['python', 'javascript']);

const executeCode = defineTool({
  name: 'execute_code',
  description: 'Runs a program and shows the end of what it prints.',
  parameters: z.object({ code: z.string().describe('the program'), language: language.optional().describe("the task's unless told") }),
  async execute(args, work: Work) {
    const { options, provider, problem } = work;
    work.sandbox ??= await provider.create({ labels: { purpose: 'agent' } });
    const used = args.language ?? problem.language;
    const result = await work.sandbox.exec({ language: used, code: args.code, timeoutMs: options.timeoutMs });
    work.ran++;
    if (result.status !== 'exit' || result.code !== 0) work.failed++;
    work.last = { code: args.code, language: used, result };
    if (result.status === 'timeout') work.over = 'timeout';
    if (result.status === 'agent_killed') work.over = 'sandbox_killed';
    return shown(result, options.outputLimit);
  },
});

const finish = defineTool({
  name: 'finish',
  description: 'Ends the task and hands in a program.',
  parameters: z.object({ answer: z.string().default('').describe('the program; the last one that was run unless told') }),
  execute({ answer }, work: Work) {
    work.over = 'finished';
    work.answer = answer;
    return 'The task is over.';
  },
});

const search = defineTool({
  name: 'search',
  description: 'Looks through notes on how things are written in Python and JavaScript.',
  parameters: z.object({ query: z.string().min(1).describe('words to look for') }),
  execute({ query }, _work: Work) {
    const notes = searchNotes(query);
    return notes.length === 0 ? 'No note has any of these words.' : notes.map((note) => `${note.title}: ${note.text}`).join('\n');
  },
});

export const codeTools: ToolSet<Work> = toolSet<Work>([executeCode, finish, search] as DefinedTool<never, Work, unknown>[]);

function shown(r: ExecResult, limit: number): string {
  if (r.status === 'timeout') return 'TIMEOUT';
  const ended = {
    exit: '',
    output_limit: 'STOPPED: too much output',
    oom: 'KILLED: out of memory',
    agent_killed: 'KILLED: the sandbox ran out of memory',
  }[r.status];
  const code = r.status === 'exit' && r.code !== 0 && r.stderr === '' ? `exit ${r.code ?? `by signal ${r.signal}`}` : '';
  const text = [r.stdout, r.stderr, ended, code].filter((part) => part !== '').join('');
  // By characters, so that none is cut in two.
  return Array.from(text).slice(-limit).join('') || '(no output)';
}

export class CodeEnvironment implements Environment {
  readonly #given: Record<string, unknown>;
  readonly #options: CodeOptions;
  #work: Work | undefined;
  #turns = 0;
  #malformed = 0;

  constructor(options: Record<string, unknown> = {}) {
    this.#given = options;
    this.#options = codeOptions(options);
  }

  async reset({ seed, options: more }: ResetOptions): Promise<ResetResult> {
    await this.close();
    const options = more ? codeOptions({ ...this.#given, ...more }) : this.#options;
    const problem = problemOf(seed, options);
    const provider = sharedSandboxProvider(options.sandbox, providerOptions(options));
    this.#work = { problem, options, provider, sandbox: undefined, last: undefined, ran: 0, failed: 0, over: undefined, answer: '' };
    this.#turns = 0;
    this.#malformed = 0;
    return {
      observation: opening(problem),
      tools: codeTools.schemas,
      info: { task: problem.kind === 'stdout' ? problem.task.name : problem.task.family, grading: problem.kind, sandbox: provider.name },
    };
  }

  async step(action: Action): Promise<StepResult> {
    const work = this.#work;
    if (!work) throw new Error('code: step without a reset, or after the end of the episode');
    this.#turns++;
    const observation = await this.#answer(action, work);
    if (work.over === undefined && this.#turns < work.options.maxTurns) {
      return { observation, reward: 0, terminated: false, truncated: false, info: {} };
    }
    await this.close();
    const { reward, parts } = work.over === 'finished' ? await score(work) : { reward: 0, parts: { solved: 0, tests: 0 } };
    return {
      observation,
      reward,
      terminated: work.over !== undefined,
      truncated: work.over === undefined,
      info: {
        rewardParts: { ...parts, finished: Number(work.over === 'finished') },
        ended: work.over ?? 'turns',
        turns: this.#turns,
        programs: work.ran,
        failed: work.failed,
        malformed: this.#malformed,
      },
    };
  }

  /** Ends the episode and its sandbox. */
  async close(): Promise<void> {
    const sandbox = this.#work?.sandbox;
    this.#work = undefined;
    await sandbox?.close();
  }

  async #answer(action: Action, work: Work): Promise<Message[]> {
    if (action.malformed !== undefined) {
      this.#malformed++;
      return [malformedMessage(action)];
    }
    // A policy whose chat format knows tool calls alone may write a fenced program all the same.
    const calls: readonly ToolCall[] = action.toolCalls.length > 0 ? action.toolCalls : spoken(action.text);
    if (calls.length === 0) {
      const { language } = work.problem;
      return [{ role: 'user', content: `Write a ${NAMES[language]} program between \`\`\`${language} and \`\`\`, or FINAL ANSWER.` }];
    }
    const observation: Message[] = [];
    for (const call of calls) {
      const outcome = await codeTools.call(call, work);
      if (outcome.refused !== undefined) this.#malformed++;
      observation.push(toolMessage(call, outcome));
      if (work.over !== undefined) break;
    }
    return observation;
  }
}

const providerOptions = (o: CodeOptions, warm = o.warm) => ({
  javascript: o.language !== 'python',
  warm,
  waive: o.waive,
  limits: { memoryBytes: o.memoryMb * 2 ** 20 },
});

/** One sandbox is made and ended: what is not there, or would not hold, is said before a run starts. */
export async function prepareCode(given?: Record<string, unknown>): Promise<void> {
  const options = codeOptions(given);
  const provider = makeSandboxProvider(options.sandbox, providerOptions(options, 0));
  try {
    await (await provider.create()).close();
  } finally {
    await provider.close();
  }
}

/** Of what was handed in. */
async function score(work: Work): Promise<{ reward: number; parts: { solved: number; tests: number } }> {
  const { problem, last, provider, options } = work;
  if (problem.kind === 'stdout') {
    const line = last?.result.status === 'exit' ? last.result.stdout.trim().split('\n').at(-1)?.trim() : undefined;
    const solved = Number(line === problem.task.expected[problem.language]);
    return { reward: solved, parts: { solved, tests: solved } };
  }
  const code = work.answer.trim() !== '' ? work.answer : last?.language === problem.language ? last.code : '';
  // Nothing was handed in: nothing is run.
  if (code.trim() === '') return { reward: 0, parts: { solved: 0, tests: 0 } };
  const { tests } = problem.task;
  const graded: Grade = await grade(provider, { code, language: problem.language, tests, timeoutMs: options.timeoutMs });
  const solved = Number(graded.passed === graded.total);
  return { reward: solved, parts: { solved, tests: graded.passed / graded.total } };
}
