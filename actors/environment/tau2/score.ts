/** What a score has to be read beside: the version of the tasks, the basis, and what doing nothing scores. */
import type { UserReference } from '../user/index.ts';
import type { DomainData } from './data.ts';
import { evaluateUnjudged } from './evaluate.ts';
import { GREETING } from './protocol.ts';
import { Session } from './session.ts';
import type { Fixes } from './settings.ts';
import { basisOf, type Tau2Message, type Tau2Task } from './tasks.ts';

/** Calls of the reference, with what they answer, as messages; then one text that tells all that has to be told. */
export function referenceTrajectory(data: DomainData, task: Tau2Task, fixes: Fixes): Tau2Message[] {
  const session = new Session(data.domain, { fixes });
  const history = task.initial_state?.message_history ?? [];
  session.begin(task.initial_state, history);
  const messages: Tau2Message[] = [...history, { role: 'assistant', content: GREETING }];
  for (const [i, { name, arguments: args, requestor = 'assistant' }] of (task.evaluation_criteria?.actions ?? []).entries()) {
    const call = { id: `call_${i}`, name, arguments: args, requestor };
    messages.push({ role: requestor, content: null, tool_calls: [call] });
    messages.push({ role: 'tool', id: call.id, requestor, ...session.respond(call) });
  }
  const told = task.evaluation_criteria?.communicate_info ?? [];
  messages.push({ role: 'assistant', content: ['Done.', ...told].join(' ') }, { role: 'user', content: '###STOP###' });
  return messages;
}

/** What a scripted user goes by: the reference's writes, with whether they succeed, and what has to be told. */
export function referenceOf(data: DomainData, task: Tau2Task, fixes: Fixes): UserReference {
  const session = new Session(data.domain, { fixes });
  session.begin(task.initial_state, task.initial_state?.message_history ?? []);
  const writes: UserReference['writes'] = [];
  for (const { name, arguments: args, requestor = 'assistant' } of task.evaluation_criteria?.actions ?? []) {
    const { error } = session.respond({ name, arguments: args, requestor });
    if (requestor === 'assistant' && session.mutates(name)) writes.push({ name, arguments: args, works: !error });
  }
  return { writes, told: task.evaluation_criteria?.communicate_info ?? [] };
}

export function referenceScore(data: DomainData, task: Tau2Task, fixes: Fixes): number {
  const messages = referenceTrajectory(data, task, fixes);
  return scoreOf(data, task, messages, fixes);
}

/** An assertion that raises is not met: what is not there was not made. */
function scoreOf(data: DomainData, task: Tau2Task, messages: readonly Tau2Message[], fixes: Fixes): number {
  const tolerant = new Set([...fixes, 'assertions' as const]);
  return evaluateUnjudged({ domain: data.domain, task, messages, termination: 'user_stop', fixes: tolerant }).reward;
}

/** The score of an agent that only greets. */
export function doNothingScore(data: DomainData, task: Tau2Task, fixes: Fixes): number {
  const messages: Tau2Message[] = [
    ...(task.initial_state?.message_history ?? []),
    { role: 'assistant', content: GREETING },
    { role: 'user', content: '###STOP###' },
  ];
  return scoreOf(data, task, messages, fixes);
}

const rates = new WeakMap<DomainData, Map<string, string>>();

/** `7/114`: how many tasks of a split, or of these ids, doing nothing solves. Reckoned once. */
export function doNothingRate(data: DomainData, of: string | readonly string[], fixes: Fixes): string {
  const ids = typeof of === 'string' ? data.split(of) : of;
  let known = rates.get(data);
  if (!known) {
    known = new Map();
    rates.set(data, known);
  }
  const key = `${ids.join()} ${[...fixes].sort().join()}`;
  let rate = known.get(key);
  if (rate === undefined) {
    const solved = ids.filter((id) => doNothingScore(data, data.task(id), fixes) === 1).length;
    rate = `${solved}/${ids.length}`;
    known.set(key, rate);
  }
  return rate;
}

/** The basis as results name it; `DB x COMMUNICATE` stands for tasks whose statements nobody judged. */
export function basisText(task: Tau2Task, judged: boolean): string {
  const basis = basisOf(task);
  if (!basis.includes('NL_ASSERTION') || judged) return basis.join(' x ');
  const rest = basis.filter((b) => b !== 'NL_ASSERTION' && b !== 'COMMUNICATE');
  return `${[...rest, 'COMMUNICATE'].join(' x ')} (no judge)`;
}

/**
 * pass^k: the chance that k attempts at a task all succeed, C(c, k) / C(n, k) of c successes in n attempts, averaged over the tasks. `successes`
 * and `attempts` are per task; k is at most the smallest number of attempts.
 */
export function passHatK(results: readonly { successes: number; attempts: number }[], k: number): number {
  if (results.length === 0) return Number.NaN;
  const fewest = Math.min(...results.map((r) => r.attempts));
  if (!Number.isInteger(k) || k < 1 || k > fewest)
    throw new RangeError(`pass^k needs k from 1 to ${fewest}, the fewest attempts at a task`);
  let sum = 0;
  for (const { successes, attempts } of results) {
    let chance = 1;
    for (let i = 0; i < k; i++) chance *= Math.max(0, successes - i) / (attempts - i);
    sum += chance;
  }
  return sum / results.length;
}
