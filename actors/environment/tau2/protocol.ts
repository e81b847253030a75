/**
 * The benchmark's half-duplex protocol as a state machine: who speaks to whom, what counts as a step and an error, and what ends a
 * conversation. It runs by itself up to the agent's turn.
 */

import type { MaybePromise } from '../types.ts';
import type { ExecutedCall, UserSimulator } from '../user/index.ts';
import type { Domain } from './domain.ts';
import type { Termination } from './evaluate.ts';
import { Session } from './session.ts';
import type { Fixes } from './settings.ts';
import { type Tau2Call, type Tau2Message, type Tau2Task, tau2Call } from './tasks.ts';

export const GREETING = 'Hi! How can I help you today?';
export const STOP = '###STOP###';
const USER_STOPS = [STOP, '###TRANSFER###', '###OUT-OF-SCOPE###'];
/** The tool by which an agent declares itself done, where the interface gives it one. */
export const DONE = 'done';

/** The user of a conversation, as the protocol needs it: the answer to what arrived since its last turn. */
export type UserReply = (incoming: readonly Tau2Message[]) => MaybePromise<Pick<Tau2Message, 'content' | 'tool_calls'>>;

export interface ProtocolOptions<W> {
  domain: Domain<W>;
  task: Tau2Task;
  fixes: Fixes;
  /** Absent: solo, the agent is alone. */
  user?: UserReply | undefined;
  maxSteps?: number;
  maxErrors?: number;
  /** Solo: any text of the agent ends the conversation, as a stop; else only one with the stop token does, and other text is an agent's error. */
  textStops?: boolean;
}

type Party = 'agent' | 'user' | 'env';

export class Protocol<W> {
  readonly session: Session<W>;
  readonly trajectory: Tau2Message[] = [];
  /** What arrived for the agent since its last turn; all of it, its own messages included, is `seen`. */
  incoming: Tau2Message[] = [];
  readonly seen: Tau2Message[] = [];
  /** Told of every call. */
  watch: ((call: ExecutedCall) => void) | undefined;
  steps = 0;
  errors = 0;
  termination: Termination | undefined;
  readonly #o: ProtocolOptions<W>;
  #from: Party = 'agent';
  #to: Party = 'user';
  #message: Tau2Message[] = [];
  #ids = 0;

  constructor(o: ProtocolOptions<W>) {
    this.#o = o;
    this.session = new Session(o.domain, { fixes: o.fixes, ...(o.user ? {} : { solo: true }) });
  }

  get done(): boolean {
    return this.termination !== undefined;
  }

  /** Whether the last message was for the agent: what a stopped agent still gets to see. */
  get lastForAgent(): boolean {
    return this.#to === 'agent';
  }

  /** Up to the agent's first turn, or the end. */
  async start(): Promise<void> {
    const { task, user } = this.#o;
    const history = task.initial_state?.message_history ?? [];
    this.session.begin(task.initial_state, history);
    const last = history.at(-1);
    if (last) {
      this.trajectory.push(...structuredClone(history));
      const calls = last.tool_calls ?? undefined;
      if (last.role === 'tool') {
        this.#from = 'env';
        this.#to = last.requestor === 'user' ? 'user' : 'agent';
      } else {
        this.#from = last.role === 'assistant' ? 'agent' : 'user';
        this.#to = calls ? 'env' : last.role === 'assistant' ? 'user' : 'agent';
        if (last.role === 'assistant' && isAgentStop(last)) this.termination = 'agent_stop';
        if (last.role === 'user' && isUserStop(last)) this.termination = 'user_stop';
      }
      this.#message = [last];
      if (this.#to === 'user' && !user) {
        this.#to = 'agent';
        this.#message = [];
      }
      this.seen.push(...history.slice(0, last.role === 'assistant' ? undefined : -1).filter(visibleToAgent));
    } else if (user) {
      this.#message = [{ role: 'assistant', content: GREETING }];
      this.trajectory.push(...this.#message);
      this.seen.push(...this.#message);
    } else {
      // Alone, the agent begins; its first message is no step.
      this.#from = 'env';
      this.#to = 'agent';
      this.#message = [];
    }
    this.session.sync();
    await this.#run();
  }

  /** The agent's turn: text or calls. Then up to its next turn, or the end. */
  async act(text: string | undefined, calls?: readonly Tau2Call[]): Promise<void> {
    if (this.done || this.#to !== 'agent') throw new Error("tau2: it is not the agent's turn");
    const stops = calls?.some((call) => call.name === DONE);
    const message: Tau2Message =
      calls && !stops
        ? { role: 'assistant', content: null, tool_calls: calls.map((call) => ({ ...call, id: call.id ?? '', requestor: 'assistant' })) }
        : { role: 'assistant', content: stops ? STOP : (text ?? '') };
    const first = this.trajectory.length === 0;
    if (isAgentStop(message)) this.termination = 'agent_stop';
    this.trajectory.push(message);
    this.seen.push(message);
    this.#message = [message];
    this.#from = 'agent';
    this.#to = message.tool_calls ? 'env' : 'user';
    if (!this.#o.user && !message.tool_calls && !this.done) this.termination = this.#o.textStops ? 'agent_stop' : 'agent_error';
    if (first) {
      // It ends without a look at the limits.
      if (!this.done) await this.#run();
      return;
    }
    this.#after();
    await this.#run();
  }

  /** A turn that could not be read counts as an error of the agent, and as nothing else. */
  misread(): void {
    this.errors++;
    this.#limits();
  }

  async #run(): Promise<void> {
    while (!this.done) {
      if (this.#to === 'agent') {
        this.incoming = this.#message;
        this.seen.push(...this.#message);
        return;
      }
      if (this.#to === 'env') this.#execute();
      else await this.#askUser();
      this.#after();
    }
    // The last message reaches an agent that will not answer it.
    this.incoming = this.#to === 'agent' ? this.#message : [];
    this.seen.push(...this.incoming);
  }

  #after(): void {
    this.steps++;
    this.session.sync();
    this.#limits();
  }

  #limits(): void {
    if (this.#to === 'env') return;
    if (this.#o.fixes.has('stop') && this.done) return;
    if (this.steps >= (this.#o.maxSteps ?? 100)) this.termination = 'max_steps';
    if (this.errors >= (this.#o.maxErrors ?? 10)) this.termination = 'too_many_errors';
  }

  #execute(): void {
    const calls = this.#message[0]!.tool_calls!;
    const requestor = this.#from === 'user' ? 'user' : 'assistant';
    const answers = calls.map((call): Tau2Message => {
      const answer = this.session.respond({ ...call, requestor });
      if (answer.error) this.errors++;
      this.watch?.({ requestor, call: { name: call.name, arguments: call.arguments }, ...answer, writes: this.session.mutates(call.name) });
      return { role: 'tool', id: call.id ?? '', requestor, ...answer };
    });
    this.trajectory.push(...answers);
    this.#message = answers;
    this.#to = this.#from;
    this.#from = 'env';
  }

  async #askUser(): Promise<void> {
    let reply = await this.#o.user!(this.#message);
    // A user may fall silent: once it is asked again, then the conversation ends as the user's fault.
    if (!reply.tool_calls && !reply.content?.trim()) reply = await this.#o.user!(this.#message);
    const calls = reply.tool_calls ?? undefined;
    if (!calls && !reply.content?.trim()) {
      this.termination = 'user_error';
      return;
    }
    const message: Tau2Message = calls
      ? {
          role: 'user',
          content: null,
          tool_calls: calls.map((call) => ({ ...call, id: call.id ?? `user_${this.#ids++}`, requestor: 'user' })),
        }
      : { role: 'user', content: reply.content! };
    if (isUserStop(message)) this.termination = 'user_stop';
    this.trajectory.push(message);
    this.#message = [message];
    this.#from = 'user';
    this.#to = calls ? 'env' : 'agent';
  }
}

/** In text only: tokens in the arguments of calls say nothing. */
function isUserStop(message: Tau2Message): boolean {
  return !message.tool_calls && USER_STOPS.some((token) => message.content?.includes(token));
}

function isAgentStop(message: Tau2Message): boolean {
  return message.tool_calls?.some((call) => call.name === DONE) || (message.content?.includes(STOP) ?? false);
}

function visibleToAgent(m: Tau2Message): boolean {
  if (m.role === 'tool') return (m.requestor ?? 'assistant') === 'assistant';
  return m.role === 'assistant' || !m.tool_calls;
}

/** A simulated user as the protocol asks it. */
export function replyOf(user: UserSimulator): UserReply {
  return async (incoming) => {
    const turn = await user.reply(
      incoming.map((m) => ({
        role: m.role,
        content: m.content ?? '',
        ...(m.role === 'tool' && m.id ? { toolCallId: m.id } : {}),
      })),
    );
    return turn.toolCalls ? { tool_calls: turn.toolCalls.map(tau2Call) } : { content: turn.text };
  };
}
