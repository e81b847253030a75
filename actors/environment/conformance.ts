/** What every environment must keep, checked from outside: run it in the tests of a new environment. */
import type { Action, Environment, EnvironmentEntry, Message, StepResult } from './types.ts';

const ROLES: ReadonlySet<string> = new Set(['system', 'user', 'assistant', 'tool']);

export interface ConformanceOptions {
  seeds?: readonly number[];
  options?: Record<string, unknown>;
}

/**
 * Plays episodes and returns what is wrong; an empty list means that the environment conforms: one seed gives one episode, instances do
 * not touch each other, nonsense is answered and not thrown, infos survive JSON, closing twice and resetting after it are legal.
 *
 * @example assert.deepEqual(await checkEnvironment(entry('desk')), [])
 */
export async function checkEnvironment(entry: EnvironmentEntry, o: ConformanceOptions = {}): Promise<string[]> {
  const problems: string[] = [];
  const complain = (text: string) => void problems.push(`${entry.name}: ${text}`);
  const seeds = o.seeds ?? [0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff];

  const alone = new Map<number, string>();
  for (const seed of seeds) {
    const actions = actionsFor(entry, seed, o);
    const environment = entry.create(o.options);
    const first = await record(environment, seed, actions, complain);
    const again = await record(environment, seed, actions, complain);
    const fresh = await record(entry.create(o.options), seed, actions, complain);
    if (again !== first) complain(`seed ${seed}: a second reset of the same object gives another episode`);
    if (fresh !== first) complain(`seed ${seed}: another object gives another episode`);
    alone.set(seed, first);
    await closing(environment, seed, complain);
  }

  // All at once, a step each in turn.
  const together = seeds.map((seed) => ({
    seed,
    run: trace(entry.create(o.options), seed, actionsFor(entry, seed, o), complain),
    lines: [] as string[],
  }));
  for (let live = together; live.length > 0; ) {
    const next = [];
    for (const one of live) {
      const { value, done } = await one.run.next();
      if (done) continue;
      one.lines.push(value);
      next.push(one);
    }
    live = next;
  }
  for (const { seed, lines } of together) {
    if (lines.join('\n') !== alone.get(seed)) complain(`seed ${seed}: an episode changes when others run beside it`);
  }
  return problems;
}

/** Nonsense first, then what the demonstration did; without one, nonsense only. */
function actionsFor(entry: EnvironmentEntry, seed: number, o: ConformanceOptions): Action[] {
  const nonsense: Action[] = [
    { text: 'x', toolCalls: [], finish: false },
    { text: 'x', toolCalls: [{ name: '__proto__', arguments: { constructor: null } }], finish: false },
  ];
  const told =
    entry.demonstrate?.(seed, seed, { ...(o.options ? { options: o.options } : {}) }).messages.filter((m) => m.role === 'assistant') ?? [];
  const parse = entry.chat?.parse ?? speech;
  return [
    ...nonsense,
    ...told.map((m) => (m.toolCalls ? { ...speech(m.content), toolCalls: m.toolCalls } : parse(m.content))),
    ...nonsense,
  ];
}

const speech = (text: string): Action => ({ text, toolCalls: [], finish: false });

async function record(
  environment: Environment,
  seed: number,
  actions: readonly Action[],
  complain: (text: string) => void,
): Promise<string> {
  const lines: string[] = [];
  for await (const line of trace(environment, seed, actions, complain)) lines.push(line);
  return lines.join('\n');
}

async function* trace(
  environment: Environment,
  seed: number,
  actions: readonly Action[],
  complain: (text: string) => void,
): AsyncGenerator<string> {
  const opening = await environment.reset({ seed });
  checkMessages(opening.observation, `seed ${seed}: reset`, complain);
  if (opening.observation.length === 0) complain(`seed ${seed}: reset observes nothing`);
  yield JSON.stringify(opening);
  for (const [i, action] of actions.entries()) {
    let result: StepResult;
    try {
      result = await environment.step(structuredClone(action));
    } catch (e) {
      complain(`seed ${seed}: step ${i} threw ${String(e)}; what a policy does is answered, not thrown`);
      return;
    }
    checkStep(result, `seed ${seed}: step ${i}`, complain);
    yield JSON.stringify(result);
    if (result.terminated || result.truncated) return;
  }
}

function checkStep(result: StepResult, where: string, complain: (text: string) => void): void {
  checkMessages(result.observation, where, complain);
  if (!Number.isFinite(result.reward)) complain(`${where}: the reward is ${result.reward}`);
  if (typeof result.terminated !== 'boolean' || typeof result.truncated !== 'boolean')
    complain(`${where}: terminated and truncated are booleans`);
  if (!(result.terminated || result.truncated) && result.observation.length === 0)
    complain(`${where}: the episode goes on, but nothing is observed`);
  try {
    if (JSON.stringify(structuredClone(result.info)) !== JSON.stringify(JSON.parse(JSON.stringify(result.info))))
      complain(`${where}: info does not survive JSON`);
  } catch (e) {
    complain(`${where}: info is not serialisable: ${String(e)}`);
  }
}

function checkMessages(messages: readonly Message[], where: string, complain: (text: string) => void): void {
  for (const m of messages) {
    if (!ROLES.has(m.role) || typeof m.content !== 'string') complain(`${where}: not a message: ${JSON.stringify(m)}`);
    else if (m.role === 'assistant') complain(`${where}: an observation speaks as the assistant`);
  }
}

async function closing(environment: Environment, seed: number, complain: (text: string) => void): Promise<void> {
  try {
    await environment.close();
    await environment.close();
  } catch (e) {
    complain(`closing twice threw ${String(e)}`);
  }
  try {
    const { observation } = await environment.reset({ seed });
    if (observation.length === 0) complain('a reset after closing observes nothing');
    await environment.close();
  } catch (e) {
    complain(`a reset after closing threw ${String(e)}`);
  }
}
