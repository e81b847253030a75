/** Plays recorded traces of the original again, and says where the port differs. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { gunzipSync } from 'node:zlib';
import {
  type DomainName,
  evaluate,
  type Fixes,
  Session,
  type Tau2Call,
  type Tau2Message,
  type Tau2Task,
  type Termination,
  tau2Data,
} from '../../actors/environment/tau2/index.ts';
import { dumps } from '../../actors/environment/tau2/python/json.ts';
import { plainJson, readExact } from '../../actors/exact-json.ts';

export interface TraceCall {
  i: number;
  requestor: 'assistant' | 'user';
  name: string;
  args: Record<string, unknown>;
  result: string;
  error: boolean;
  error_class: string | null;
  compare: 'exact' | 'error_only' | 'skip';
  tau2_hash: string;
  user_tau2_hash?: string;
}

export interface TraceFinal {
  assistant_texts: string[];
  termination_reason: Termination;
  reward: number | null;
  reward_db_x_communicate?: number;
  db_match?: boolean;
  env_assertions_met?: boolean[];
  action_match?: boolean[];
  communicate_reward?: number;
  breakdown?: Record<string, number> | null;
  evaluator_exception?: string;
}

export interface Trace {
  domain: DomainName;
  kind: string;
  seed: number;
  task_id: string | null;
  init_agent_data?: Record<string, unknown>;
  init_tau2_hash: string;
  init_user_tau2_hash?: string;
  calls: TraceCall[];
  finals?: TraceFinal[];
}

const shared = resolve(process.env.SINKFLEX_SHARED ?? '../shared');
export const tracesFolder = resolve(process.env.TAU2_TRACES ?? join(shared, 'tau2', 'traces'));
export const dataFolder = resolve(process.env.TAU2_DATA ?? join(tracesFolder, '..', 'data'));
export const absent = [tracesFolder, dataFolder].find((path) => !existsSync(path));

export const NO_FIXES: Fixes = new Set();

/** Files of calls; the protocol of the gym has a file of its own kind. */
export function traceFiles(): string[] {
  return readdirSync(tracesFolder)
    .filter((name) => /\.jsonl(\.gz)?$/.test(name) && !name.startsWith('gym_'))
    .sort()
    .map((name) => join(tracesFolder, name));
}

export function readTraces<T = Trace>(path: string): T[] {
  const bytes = readFileSync(path);
  const text = (path.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8');
  return (
    text
      .split('\n')
      .filter(Boolean)
      // Arguments as the original's Python reads them, which tells 5 from 5.0.
      .map((line) => plainJson(readExact(line), ['args', 'init_agent_data']) as T)
  );
}

export interface Outcome {
  episodes: number;
  calls: number;
  skipped: number;
  finals: number;
  differences: string[];
}

export async function compareFile(path: string): Promise<Outcome> {
  const out: Outcome = { episodes: 0, calls: 0, skipped: 0, finals: 0, differences: [] };
  for (const trace of readTraces(path)) {
    out.episodes++;
    await compareTrace(trace, `${basename(path)} ${trace.kind} seed ${trace.seed} task ${trace.task_id}`, out);
  }
  return out;
}

async function compareTrace(trace: Trace, where: string, out: Outcome): Promise<void> {
  const data = tau2Data(dataFolder, trace.domain);
  const { domain } = data;
  const task = trace.task_id === null ? undefined : data.task(trace.task_id);
  const session = new Session(domain, { fixes: NO_FIXES });
  session.begin(task?.initial_state, task?.initial_state?.message_history ?? []);
  if (trace.init_agent_data) domain.update!(session.world, 'assistant', trace.init_agent_data);
  const differ = (what: string, ours: unknown, theirs: unknown) =>
    void out.differences.push(`${where}: ${what}\n  ours   ${JSON.stringify(ours)}\n  theirs ${JSON.stringify(theirs)}`);

  let hashes = domain.hashes(session.world);
  const checkHashes = (what: string, agent: string, user: string | undefined) => {
    if (hashes.agent !== agent) differ(`${what}: hash of the agent's database`, hashes.agent, agent);
    if (user !== undefined && hashes.user !== user) differ(`${what}: hash of the user's database`, hashes.user, user);
  };
  checkHashes('start', trace.init_tau2_hash, trace.init_user_tau2_hash);
  let known = { agent: trace.init_tau2_hash, user: trace.init_user_tau2_hash };
  const messages: Tau2Message[] = [];
  for (const call of trace.calls) {
    const made: Tau2Call = { id: `call_${call.i}`, name: call.name, arguments: call.args, requestor: call.requestor };
    const answer = session.respond(made);
    messages.push({ role: call.requestor, content: null, tool_calls: [made] });
    messages.push({ role: 'tool', id: made.id!, requestor: call.requestor, ...answer });
    out.calls++;
    if (call.compare === 'skip') {
      out.skipped++;
      continue;
    }
    const what = `call ${call.i} ${call.name}(${dumps(new Map(Object.entries(call.args)))})`;
    if (answer.error !== call.error) differ(`${what}: error`, answer, { content: call.result, error: call.error });
    else if (call.compare === 'exact' && answer.content !== call.result) differ(what, answer.content, call.result);
    // Hashing megabytes after a read tells nothing new; whether a read changed something is told by the next hash.
    const changed = call.tau2_hash !== known.agent || call.user_tau2_hash !== known.user;
    if (changed || session.mutates(call.name) || call === trace.calls.at(-1)) hashes = domain.hashes(session.world);
    checkHashes(what, call.tau2_hash, call.user_tau2_hash);
    known = { agent: call.tau2_hash, user: call.user_tau2_hash };
  }
  for (const [j, final] of (trace.finals ?? []).entries()) {
    out.finals++;
    await compareFinal(trace, task!, final, messages, (what, ours, theirs) => differ(`final ${j}: ${what}`, ours, theirs));
  }
}

export function trajectory(task: Tau2Task, calls: readonly Tau2Message[], texts: readonly string[]): Tau2Message[] {
  return [
    ...(task.initial_state?.message_history ?? []),
    { role: 'assistant', content: 'Hi! How can I help you today?' },
    { role: 'user', content: 'Hello.' },
    ...calls,
    ...texts.map((content): Tau2Message => ({ role: 'assistant', content })),
    { role: 'user', content: '###STOP###' },
  ];
}

async function compareFinal(
  trace: Trace,
  task: Tau2Task,
  final: TraceFinal,
  calls: readonly Tau2Message[],
  differ: (what: string, ours: unknown, theirs: unknown) => void,
): Promise<void> {
  let ours: Awaited<ReturnType<typeof evaluate>>;
  try {
    ours = await evaluate({
      domain: tau2Data(dataFolder, trace.domain).domain,
      task,
      messages: trajectory(task, calls, final.assistant_texts),
      termination: final.termination_reason,
      fixes: NO_FIXES,
      // As in the recording.
      judge: (assertions) => assertions.map(() => true),
    });
  } catch (error) {
    if (final.evaluator_exception === undefined) differ('raises', String(error), final.reward);
    return;
  }
  const checks: [string, unknown, unknown][] = [
    ['reward', ours.reward, final.reward],
    ['DB x COMMUNICATE', ours.rewardDbCommunicate, final.reward_db_x_communicate],
    ['database', ours.dbMatch, final.db_match],
    ['assertions', ours.assertionsMet, final.env_assertions_met],
    ['actions', ours.actionsMatched, final.action_match],
    ['breakdown', sortedBreakdown(ours.breakdown), sortedBreakdown(final.breakdown)],
  ];
  for (const [what, mine, theirs] of checks) {
    if (theirs !== undefined && theirs !== null && JSON.stringify(mine) !== JSON.stringify(theirs)) differ(what, mine, theirs);
  }
}

function sortedBreakdown(breakdown: Record<string, number> | null | undefined): unknown {
  return breakdown ? Object.entries(breakdown).sort(([a], [b]) => (a < b ? -1 : 1)) : breakdown;
}
