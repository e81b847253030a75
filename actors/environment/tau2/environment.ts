/** A domain of tau2-bench as an environment: a task from a seed, messages and calls in, the benchmark's reward at the end. */

import { ActorsError } from '../../errors.ts';
import { CounterRandom } from '../random.ts';
import { isValidationTask } from '../seeds.ts';
import { malformedMessage } from '../tools/index.ts';
import type { Action, Environment, Message, ResetOptions, ResetResult, StepResult, ToolSchema } from '../types.ts';
import { type ExecutedCall, makeUser, SOLO, type UserSimulator, userRefuses } from '../user/index.ts';
import { type DomainData, tau2Data } from './data.ts';
import { diagnose, referenceFacts } from './diagnostics.ts';
import type { DomainName } from './domain.ts';
import { type Evaluation, evaluate, type Termination } from './evaluate.ts';
import { userGuidelines } from './guidelines.ts';
import { readOptions, type Tau2Options } from './options.ts';
import { agentPrompt, historyText } from './prompt.ts';
import { DONE, Protocol, replyOf, STOP } from './protocol.ts';
import { PythonError } from './python/values.ts';
import { basisText, doNothingRate, referenceOf } from './score.ts';
import { scenarioText, type Tau2Message, type Tau2Task, tau2Call, ticketOf } from './tasks.ts';

/** Ids by user, its options and split: asked for at every reset, and often before a run. */
const playable = new WeakMap<DomainData, Map<string, string[]>>();

/** A turn that could not be read ends an episode only through max_errors. */
const THOUGHT = /<think>[\s\S]*?(<\/think>|$)/g;

export class Tau2Environment implements Environment {
  readonly #domain: DomainName;
  readonly #given: Record<string, unknown>;
  #episode: Episode | undefined;

  constructor(domain: DomainName, options: Record<string, unknown> = {}) {
    this.#domain = domain;
    this.#given = options;
    readOptions(`tau2-${domain}`, options);
  }

  /** The task that a seed stands for. */
  static taskOf(data: DomainData, o: Tau2Options, seed: number): { task: Tau2Task; split: string } {
    const split = o.split === 'auto' ? splitOf(data, seed) : o.split;
    if (o.task !== undefined) return { task: data.task(o.task), split: o.split === 'auto' ? 'base' : o.split };
    return { task: data.task(new CounterRandom(seed, 0).pick(Tau2Environment.tasksOf(data, o, split))), split };
  }

  /** Ids of a split, without those that the kind of user does not play. */
  static tasksOf(data: DomainData, o: Tau2Options, split: string): string[] {
    const known = playable.get(data) ?? new Map<string, string[]>();
    playable.set(data, known);
    const key = JSON.stringify([o.user, o.userOptions, split]);
    const found = known.get(key);
    if (found !== undefined) return found;
    const ids = data.split(split);
    const played = ids.filter((id) => userRefuses(o.user, data.domain.name, id, o.userOptions) === undefined);
    if (played.length > 0 || ids.length === 0) {
      known.set(key, played);
      return played;
    }
    const why = userRefuses(o.user, data.domain.name, ids[0]!, o.userOptions);
    throw new ActorsError(
      'SINKFLEX_ENVIRONMENT_OPTION',
      `tau2-${data.domain.name}: user=${o.user} plays no task of split ${split}: ${why}`,
      {
        details: { option: 'user', value: o.user },
      },
    );
  }

  async reset({ seed, options }: ResetOptions): Promise<ResetResult> {
    await this.close();
    const o = readOptions(`tau2-${this.#domain}`, { ...this.#given, ...options });
    const data = tau2Data(o.data, this.#domain);
    const { task, split } = Tau2Environment.taskOf(data, o, seed);
    this.#episode = new Episode(data, task, o, seed, split);
    return this.#episode.start();
  }

  async step(action: Action): Promise<StepResult> {
    if (!this.#episode) throw new Error(`tau2-${this.#domain}: step without a reset`);
    return this.#episode.step(action);
  }

  async close(): Promise<void> {
    const episode = this.#episode;
    this.#episode = undefined;
    await episode?.close();
  }
}

function splitOf(data: DomainData, seed: number): string {
  const wanted = isValidationTask(seed) ? 'test' : 'train';
  return data.splits.includes(wanted) ? wanted : 'base';
}

class Episode {
  readonly #data: DomainData;
  readonly #task: Tau2Task;
  readonly #o: Tau2Options;
  readonly #seed: number;
  readonly #split: string;
  readonly #user: UserSimulator | undefined;
  readonly #protocol: Protocol<unknown>;
  readonly #counts = { turns: 0, toolCalls: 0, malformed: 0 };
  readonly #calls: ExecutedCall[] = [];

  constructor(data: DomainData, task: Tau2Task, o: Tau2Options, seed: number, split: string) {
    this.#data = data;
    this.#task = task;
    this.#o = o;
    this.#seed = seed;
    this.#split = split;
    this.#user = makeUser(o.user, o.userOptions);
    this.#protocol = new Protocol({
      domain: data.domain,
      task,
      fixes: o.fixes,
      user: this.#user && replyOf(this.#user),
      maxSteps: o.maxSteps,
      maxErrors: o.maxErrors,
      // Domains without a solo policy of their own end with one text.
      textStops: !task.ticket,
    });
  }

  async start(): Promise<ResetResult> {
    const { domain } = this.#data;
    const history = this.#task.initial_state?.message_history ?? [];
    await this.#user?.start({
      seed: this.#seed,
      taskId: this.#task.id,
      domain: domain.name,
      scenario: { text: scenarioText(this.#task.user_scenario), fields: { ...this.#task.user_scenario } },
      guidelines: userGuidelines(this.#o.data, domain.user !== undefined),
      tools: domain.user?.schemas(this.#task.user_tools ?? undefined) ?? [],
      history: history.map((m) => ({ role: m.role, content: m.content ?? '' })),
      calls: this.#calls,
      reference: () => referenceOf(this.#data, this.#task, this.#o.fixes),
    });
    this.#protocol.watch = (call) => this.#calls.push(call);
    await this.#protocol.start();
    const observation: Message[] = [{ role: 'system', content: this.#system() }];
    if (!this.#user && history.length === 0) observation.push({ role: 'user', content: ticketOf(this.#task) });
    observation.push(...this.#observed());
    const tools = this.#tools();
    const info = { ...this.#labels(), task: this.#task.id, split: this.#split, seed: this.#seed };
    // The user may have ended it in the first message: the first step then says so.
    return { observation, tools, info };
  }

  async step(action: Action): Promise<StepResult> {
    const protocol = this.#protocol;
    this.#counts.turns++;
    if (!protocol.done) {
      const text = action.text.replace(THOUGHT, '').trim();
      const misread = action.malformed !== undefined || (action.toolCalls.length === 0 && text === '' && !action.finish);
      if (misread) {
        this.#counts.malformed++;
        protocol.misread();
        const answer = action.malformed === undefined ? { ...action, malformed: 'the turn is empty' } : action;
        if (!protocol.done) return { observation: [malformedMessage(answer)], reward: 0, terminated: false, truncated: false, info: {} };
      } else if (action.toolCalls.length > 0) {
        this.#counts.toolCalls += action.toolCalls.length;
        const calls = action.toolCalls.map((call, i) => ({ id: `call_${protocol.steps}_${i}`, ...tau2Call(call) }));
        await protocol.act(undefined, calls);
      } else await protocol.act(action.finish && !this.#user ? `${text} ${STOP}` : text);
    }
    if (!protocol.done) return { observation: this.#observed(), reward: 0, terminated: false, truncated: false, info: {} };
    return this.#end();
  }

  async close(): Promise<void> {
    await this.#user?.close();
  }

  async #end(): Promise<StepResult> {
    const { termination, trajectory, steps, errors } = this.#protocol;
    const { evaluation, raised } = await this.#evaluate(trajectory, termination!);
    const terminated = termination === 'user_stop' || termination === 'agent_stop' || termination === 'agent_error';
    return {
      observation: this.#observed(),
      reward: evaluation.reward,
      terminated,
      truncated: !terminated,
      info: {
        rewardParts: partsOf(evaluation),
        diagnostics: diagnose({
          calls: this.#calls,
          messages: trajectory,
          facts: referenceFacts(this.#data, this.#task, this.#o.fixes),
          dialogue: this.#user !== undefined,
          own: (tool) => this.#data.domain.agent.has(tool),
        }),
        ...this.#labels(),
        task: this.#task.id,
        split: this.#split,
        termination: termination!,
        userError: termination === 'user_error',
        ...(raised === undefined ? {} : { evaluatorException: raised }),
        // A diagnosis: reference actions are one way to the goal, not the only one.
        referenceActionsMatched: evaluation.actionsMatched ?? [],
        doNothing: doNothingRate(this.#data, Tau2Environment.tasksOf(this.#data, this.#o, this.#split), this.#o.fixes),
        steps,
        errors,
        ...this.#counts,
      },
    };
  }

  async #evaluate(messages: readonly Tau2Message[], termination: Termination): Promise<{ evaluation: Evaluation; raised?: string }> {
    const how = {
      domain: this.#data.domain,
      task: this.#task,
      messages,
      termination,
      ...(this.#user ? {} : { solo: true }),
      judge: this.#o.judge,
    };
    try {
      return { evaluation: await evaluate({ ...how, fixes: this.#o.fixes }) };
    } catch (error) {
      if (!(error instanceof PythonError)) throw error;
      // An assertion on what the agent did not make: the original's run crashes there. Here it is not met, and the result says so.
      return { evaluation: await evaluate({ ...how, fixes: new Set([...this.#o.fixes, 'assertions' as const]) }), raised: error.message };
    }
  }

  /** What every result says of how it came about. */
  #labels(): Record<string, string> {
    const { name } = this.#data.domain;
    return {
      benchmark: `tau2-${name}`,
      taskVersion: this.#data.version,
      rewardBasis: basisText(this.#task, this.#o.judge !== undefined),
      user: this.#user?.kind ?? SOLO,
      ...(name === 'telecom' ? { policy: this.#o.policy } : {}),
      fixes: [...this.#o.fixes].join(',') || 'none',
    };
  }

  #system(): string {
    const solo = this.#user === undefined;
    const prompt = agentPrompt(this.#data.policy({ solo, variant: this.#o.policy }), solo, !this.#task.ticket);
    const history = this.#task.initial_state?.message_history ?? [];
    return history.length === 0 ? prompt : `${prompt}\n\n${historyText(history)}`;
  }

  #tools(): ToolSchema[] {
    const { agent, user } = this.#data.domain;
    if (this.#user) return agent.schemas();
    const done: ToolSchema = {
      type: 'function',
      function: { name: DONE, description: 'Call this when you are done with the task.', parameters: { type: 'object', properties: {} } },
    };
    return [...agent.schemas(), ...(user?.schemas(this.#task.user_tools ?? undefined) ?? []), done];
  }

  #observed(): Message[] {
    return this.#protocol.incoming.map((m) => this.#message(m));
  }

  #message(m: Tau2Message): Message {
    if (m.role !== 'tool') return { role: 'user', content: m.content ?? '' };
    const call = this.#protocol.trajectory.flatMap((t) => t.tool_calls ?? []).find((c) => c.id === m.id);
    return { role: 'tool', content: m.content ?? '', ...(call ? { name: call.name } : {}), ...(m.id ? { toolCallId: m.id } : {}) };
  }
}

function partsOf(evaluation: Evaluation): Record<string, number> {
  const parts: Record<string, number> = {};
  for (const [name, value] of Object.entries(evaluation.breakdown)) parts[name.toLowerCase()] = value;
  return parts;
}
