// The questions that a run answers, by name: one table for the driver's functions and for observers of other processes.
import { RuntimeFailure } from '../api/errors.ts';
import type { ListOptions } from './facts.ts';
import type { Observatory } from './observatory.ts';

export interface Options extends ListOptions {
  name?: string;
  count?: number;
}

type Answer = (observatory: Observatory, options: Options) => unknown;

const answers: Record<string, Answer> = {
  status: (run, options) => run.status(options),
  actors: (run, options) => run.listActors(options),
  tasks: (run, options) => run.listTasks(options),
  objects: (run, options) => run.listObjects(options),
  workers: (run, options) => run.listWorkers(options),
  nodes: (run, options) => run.listNodes(options),
  groups: (run, options) => run.listGroups(options),
  demand: (run) => run.demand(),
  events: (run, options) => run.listEvents(options),
  summary: (run, options) => run.summary(options),
  metrics: (run, options) => run.metrics(options),
  stack: (run, options) => run.stack(named(options.name), options),
  timeline: (run, options) => run.timeline(options),
  tail: (run, { name, count }) => run.tail(named(name), count),
  logs: (run) => run.listLogs(),
};

export function named(name: string | undefined): string {
  if (name === undefined) throw new RuntimeFailure('SINKFLEX_BAD_OPTION', 'the name of an actor is missing');
  return name;
}

/** What an observer sent as options. Throws SINKFLEX_PROTOCOL. */
export function checkOptions(data: unknown): Options {
  const options: Options = {};
  if (data === null || data === undefined) return options;
  if (typeof data !== 'object' || Array.isArray(data)) throw malformed('options');
  for (const [key, value] of Object.entries(data)) {
    if (value === undefined || value === null) continue;
    if ((key === 'limit' || key === 'timeoutMs' || key === 'count') && typeof value === 'number' && value >= 0) options[key] = value;
    else if (key === 'name' && typeof value === 'string' && value.length <= 1000) options.name = value;
    else if (key === 'where' && typeof value === 'object' && Object.values(value).every((each) => typeof each === 'string'))
      options.where = value as Record<string, string>;
    else throw malformed(key);
  }
  // A timer's largest number; whoever asks for more waits for ever anyway.
  if (options.timeoutMs !== undefined) options.timeoutMs = Math.min(options.timeoutMs, 2 ** 31 - 1);
  return options;
}

export function malformed(what: string): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_PROTOCOL', `an observer sent a question whose ${what.slice(0, 100)} is not well formed`);
}

export function answerQuestion(observatory: Observatory, name: string, options: Options): unknown {
  const answer = Object.hasOwn(answers, name) ? answers[name] : undefined;
  if (answer === undefined)
    throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `a run does not answer the question ${JSON.stringify(name.slice(0, 100))}`);
  return answer(observatory, options);
}
