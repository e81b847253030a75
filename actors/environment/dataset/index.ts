/** The environment `dataset`: one question, one answer, from the rows of a task file. */
import { z } from 'zod';
import { ActorsError, didYouMean } from '../../errors.ts';
import { parseRow } from '../../tasks/row.ts';
import type { Action, Environment, EnvironmentEntry, Message, ResetOptions, ResetResult, StepResult } from '../types.ts';
import { SCORES, type Score } from './score.ts';

const message = z.strictObject({ role: z.enum(['system', 'user', 'assistant', 'tool']), content: z.string() });
const text = z.union([z.string(), z.number()]).transform(String);
const answers = z.union([text.transform((one) => [one]), z.array(text).min(1)]);

/** The columns of verl's data files; `question` and `answer` are short for them. */
const columns = z.strictObject({
  prompt: z.union([z.string(), z.array(message).min(1)]).optional(),
  question: z.string().optional(),
  answer: answers.optional(),
  reward_model: z.looseObject({ ground_truth: answers }).optional(),
  data_source: z.string().optional(),
  ability: z.string().optional(),
  extra_info: z.unknown().optional(),
  seed: z
    .int()
    .min(0)
    .max(2 ** 32 - 1)
    .optional(),
  level: z.int().min(0).max(1000).optional(),
});

/** What a row becomes: the reset options of an episode. */
interface Question {
  messages: Message[];
  answers: string[];
  dataSource: string;
}

const settings = z.strictObject({
  score: z.enum(SCORES.names).default('number'),
  system: z.string().optional(),
  /** Every run passes these two on. */
  level: z.unknown().optional(),
  maxTurns: z.unknown().optional(),
});

function readSettings(options: Record<string, unknown>): { score: Score; system: string | undefined } {
  const parsed = settings.safeParse(options);
  if (parsed.success) return { score: SCORES.of(parsed.data.score), system: parsed.data.system };
  const issue = parsed.error.issues[0]!;
  const wrong = issue.code === 'unrecognized_keys' ? issue.keys[0]! : issue.path.join('.');
  const near = didYouMean(wrong, ['score', 'system']);
  const what =
    issue.code === 'unrecognized_keys'
      ? `there is no option ${wrong}${near ? `: did you mean ${near}?` : ' (known: score, system)'}`
      : `${wrong}: ${issue.message}`;
  throw new ActorsError('SINKFLEX_ENVIRONMENT_OPTION', `dataset: ${what}`, { details: { option: wrong } });
}

class Dataset implements Environment {
  readonly #score: Score;
  readonly #system: string | undefined;
  #question: Question | undefined;

  constructor(options: Record<string, unknown>) {
    const { score, system } = readSettings(options);
    this.#score = score;
    this.#system = system;
  }

  reset({ options }: ResetOptions): ResetResult {
    const question = options as Question | undefined;
    if (!question?.messages)
      throw new ActorsError(
        'SINKFLEX_ENVIRONMENT_OPTION',
        'dataset: there is no row to ask from: name task files with data.train_files and data.val_files',
      );
    this.#question = question;
    const system =
      this.#system === undefined || question.messages[0]!.role === 'system' ? [] : [{ role: 'system' as const, content: this.#system }];
    return { observation: [...system, ...question.messages], info: { dataSource: question.dataSource } };
  }

  step(action: Action): StepResult {
    const question = this.#question!;
    const right = question.answers.some((answer) => this.#score(action.text, answer));
    return {
      observation: [],
      reward: right ? 1 : 0,
      terminated: true,
      truncated: false,
      info: { rewardParts: { [question.dataSource]: right ? 1 : 0 }, dataSource: question.dataSource, groundTruth: question.answers },
    };
  }

  close(): void {
    this.#question = undefined;
  }
}

export const dataset: EnvironmentEntry = {
  name: 'dataset',
  summary: 'questions and answers from task files (data.train_files), scored by a rule or by reward.components',
  create: (options = {}) => new Dataset(options),
  readTask(given) {
    const row = parseRow(columns, given);
    const prompt = row.prompt ?? row.question;
    if (prompt === undefined) throw new Error('it needs a prompt (text, or messages with role and content) or a question');
    const known = row.answer ?? row.reward_model?.ground_truth;
    if (known === undefined) throw new Error('it needs an answer, or reward_model.ground_truth');
    const messages = typeof prompt === 'string' ? [{ role: 'user' as const, content: prompt }] : prompt;
    const question: Question = { messages, answers: known, dataSource: row.data_source ?? 'dataset' };
    return {
      options: { ...question },
      ...(row.seed === undefined ? {} : { seed: row.seed }),
      ...(row.level === undefined ? {} : { level: row.level }),
    };
  },
};
