/**
 * The benchmark's evaluator: the state that the agent's writes lead to against the state that the reference actions lead to, assertions on the
 * world, what had to be told, which calls were made, and statements that a judge decides. Each is 0 or 1; the reward is the product of those
 * that the task's basis names.
 */
import type { Domain } from './domain.ts';
import { equals, PythonError } from './python/values.ts';
import { callsOf, Session } from './session.ts';
import type { Fixes } from './settings.ts';
import { type Assertion, basisOf, type ReferenceAction, type RewardType, type Tau2Call, type Tau2Message, type Tau2Task } from './tasks.ts';

export const TERMINATIONS = [
  'user_stop',
  'agent_stop',
  'max_steps',
  'too_many_errors',
  'agent_error',
  'user_error',
  'timeout',
  'infrastructure_error',
  'context_window_exceeded',
  'unexpected_error',
] as const;
export type Termination = (typeof TERMINATIONS)[number];

/** Decides which of the statements hold of a conversation. Rejects where it cannot tell: that is never the agent's fault. */
export type Judge = (assertions: readonly string[], messages: readonly Tau2Message[]) => boolean[] | Promise<boolean[]>;

export interface Evaluation {
  reward: number;
  /** What the reward is the product of; null where it is 0 or 1 without a look at the world. */
  basis: readonly RewardType[] | null;
  breakdown: Partial<Record<RewardType, number>>;
  /** Components of the task's basis that were left out, since nobody could judge them. */
  unjudged: RewardType[];
  dbMatch?: boolean;
  assertionsMet?: boolean[];
  /** For each reference action, whether some call matches it: a diagnosis unless the basis has ACTION. */
  actionsMatched?: boolean[];
  told?: boolean[];
  judged?: boolean[];
  /** The original tau-bench's basis: DB x COMMUNICATE. */
  rewardDbCommunicate?: number;
  note?: string;
}

export interface EvaluateOptions<W> {
  domain: Domain<W>;
  task: Tau2Task;
  /** The whole conversation, a task's own history included. */
  messages: readonly Tau2Message[];
  termination: Termination;
  fixes: Fixes;
  solo?: boolean;
}

/**
 * The score. Without a judge, a basis with NL_ASSERTION becomes DB x COMMUNICATE (and what else it names). Raises PythonError where an
 * assertion of the task does (unless `fixes` has `assertions`), as the original lets it escape.
 */
export async function evaluate<W>(o: EvaluateOptions<W> & { judge?: Judge | undefined }): Promise<Evaluation> {
  const { task, messages, termination, judge } = o;
  const asked = basisOf(task).includes('NL_ASSERTION') && (termination === 'user_stop' || termination === 'agent_stop');
  if (!judge || !asked || !task.evaluation_criteria) return evaluateUnjudged(o);
  return score(o, await ask(task.evaluation_criteria.nl_assertions ?? [], messages, judge));
}

/** The score without a judge. */
export function evaluateUnjudged<W>(o: EvaluateOptions<W>): Evaluation {
  return score(o, undefined);
}

function score<W>(o: EvaluateOptions<W>, judged: boolean[] | undefined): Evaluation {
  const { task, messages, termination } = o;
  const none = { basis: null, breakdown: {}, unjudged: [] };
  if (termination !== 'user_stop' && termination !== 'agent_stop') {
    return { ...none, reward: 0, note: `ended before its time: ${termination}` };
  }
  const criteria = task.evaluation_criteria;
  if (!criteria) return { ...none, reward: 1, note: 'the task has no criteria' };

  const world = evaluateWorld(o);
  const actionsMatched = matchActions(criteria.actions ?? [], messages);
  const told = (criteria.communicate_info ?? []).map((info) => isTold(info, messages, o.fixes.has('communicate')));
  const communicate = Number(told.every(Boolean));

  const asked = basisOf(task);
  const unjudged: RewardType[] = asked.includes('NL_ASSERTION') && !judged ? ['NL_ASSERTION'] : [];
  const basis: RewardType[] =
    unjudged.length > 0 ? [...asked.filter((b) => b !== 'NL_ASSERTION' && b !== 'COMMUNICATE'), 'COMMUNICATE'] : [...asked];

  const parts: Record<RewardType, number> = {
    DB: Number(world.dbMatch),
    ENV_ASSERTION: Number(world.assertionsMet.every(Boolean)),
    ACTION: Number(actionsMatched.every(Boolean)),
    COMMUNICATE: communicate,
    NL_ASSERTION: Number(judged?.every(Boolean) ?? true),
  };
  // Nothing to compare: the original names no component then.
  const silent = world.nothing ? new Set<RewardType>(['DB', 'ENV_ASSERTION']) : new Set<RewardType>();
  const breakdown: Evaluation['breakdown'] = {};
  let reward = 1;
  for (const component of basis) {
    if (!silent.has(component)) breakdown[component] = parts[component];
    reward *= parts[component];
  }
  return {
    reward,
    basis,
    breakdown,
    unjudged,
    dbMatch: world.dbMatch,
    assertionsMet: world.assertionsMet,
    actionsMatched,
    told,
    ...(judged ? { judged } : {}),
    rewardDbCommunicate: Number(world.dbMatch) * communicate,
  };
}

function evaluateWorld<W>(o: EvaluateOptions<W>): { dbMatch: boolean; assertionsMet: boolean[]; nothing: boolean } {
  const { domain, task, fixes } = o;
  const { actions, env_assertions } = task.evaluation_criteria!;
  if (!actions && !env_assertions) return { dbMatch: true, assertionsMet: [], nothing: true };
  const predicted = new Session(domain, { fixes, ...(o.solo ? { solo: true } : {}) });
  predicted.begin(task.initial_state, o.messages);
  const gold = new Session(domain, { fixes });
  gold.begin(task.initial_state, task.initial_state?.message_history ?? []);
  for (const action of actions ?? []) {
    try {
      // What follows on the other side is left out between them, as in the original.
      gold.call(action);
    } catch {
      // Some reference actions fail by design: their look-ups are wrong.
    }
  }
  const dbMatch = domain.same(gold.world, predicted.world);
  const assertionsMet = (env_assertions ?? []).map((assertion) => holds(predicted, assertion, fixes));
  return { dbMatch, assertionsMet, nothing: false };
}

function holds<W>(session: Session<W>, assertion: Assertion, fixes: Fixes): boolean {
  try {
    const result = session.run(assertion);
    if (typeof result !== 'boolean') {
      throw new PythonError('ValueError', `Function ${assertion.func_name} returned ${typeof result} instead of bool`);
    }
    return result === (assertion.assert_value ?? true);
  } catch (error) {
    if (fixes.has('assertions') && error instanceof PythonError) return false;
    throw error;
  }
}

/** The original's substring test: commas go from what was said, not from what has to be said. */
function isTold(info: string, messages: readonly Tau2Message[], alone: boolean): boolean {
  const wanted = info.toLowerCase();
  return messages.some((m) => {
    if (m.role !== 'assistant' || !m.content?.trim()) return false;
    const said = m.content.toLowerCase().replaceAll(',', '');
    return alone && /^[\d.]+$/.test(wanted) ? standsAlone(wanted, said) : said.includes(wanted);
  });
}

function standsAlone(number: string, said: string): boolean {
  for (let at = said.indexOf(number); at >= 0; at = said.indexOf(number, at + 1)) {
    const after = said.slice(at + number.length);
    if (!/[\d.]$/.test(said.slice(0, at)) && !/^(\d|\.\d)/.test(after)) return true;
  }
  return false;
}

export function matchActions(actions: readonly ReferenceAction[], messages: readonly Tau2Message[]): boolean[] {
  const calls = messages.flatMap((m) => (m.role === 'tool' ? [] : (m.tool_calls ?? [])));
  return actions.map((action) => calls.some((call) => matches(action, call)));
}

/** Compared are the arguments that the action names, else those of the call: so a call without arguments matches any action of its name. */
function matches(action: ReferenceAction, call: Tau2Call): boolean {
  if (action.name !== call.name) return false;
  const names = action.compare_args ?? Object.keys(call.arguments);
  const pick = (args: Record<string, unknown>) => new Map(Object.entries(args).filter(([name]) => names.includes(name)));
  return names.length === 0 || equals(pick(call.arguments), pick(action.arguments));
}

async function ask(assertions: readonly string[], messages: readonly Tau2Message[], by: Judge): Promise<boolean[]> {
  if (assertions.length === 0) return [];
  const verdicts = await by(assertions, messages);
  if (verdicts.length !== assertions.length) throw new Error(`the judge decided ${verdicts.length} of ${assertions.length} statements`);
  return [...verdicts];
}

/** Calls that a trajectory made, for counts and diagnoses. */
export function countErrors(messages: readonly Tau2Message[]): number {
  return callsOf(messages).filter(({ answer }) => answer.error).length;
}
