/** One world with its two sides: calls answered as the benchmark answers them, a task's own set-up, and replay. */
import { readExact } from '../../exact-json.ts';
import type { Domain } from './domain.ts';
import { dumps } from './python/json.ts';
import { equals, PythonError, valueError } from './python/values.ts';
import type { Fixes } from './settings.ts';
import type { FunctionCall, InitialState, Tau2Call, Tau2Message } from './tasks.ts';
import { reservedArgument } from './toolkit.ts';

export interface Answer {
  content: string;
  error: boolean;
}

export class Session<W = unknown> {
  readonly domain: Domain<W>;
  readonly world: W;
  readonly #fixes: Fixes;
  readonly #solo: boolean;

  /** `solo`: the agent has the user's tools too, and there is no user. */
  constructor(domain: Domain<W>, o: { fixes: Fixes; solo?: boolean }) {
    this.domain = domain;
    this.world = domain.world(o.fixes);
    this.#fixes = o.fixes;
    this.#solo = o.solo ?? false;
    this.sync();
  }

  sync(): void {
    this.domain.sync?.(this.world);
  }

  /** Runs one call and what follows from it. Never throws: whatever goes wrong is the answer. */
  respond(call: Tau2Call): Answer {
    const restore = this.#fixes.has('atomic') ? this.domain.snapshot(this.world) : undefined;
    try {
      const content = this.call(call);
      this.sync();
      return { content, error: false };
    } catch (error) {
      restore?.();
      return { content: `Error: ${(error as Error).message}`, error: true };
    }
  }

  /** One call without what follows from it. Raises. */
  call({ name, arguments: args, requestor = 'assistant' }: Tau2Call): string {
    const collision = reservedArgument(args);
    if (collision) throw collision;
    const { agent, user } = this.domain;
    if (requestor === 'user' && this.#solo) throw valueError('User tool calls are not allowed in solo mode');
    const kit = requestor === 'user' || (this.#solo && user?.has(name)) ? user : agent;
    if (!kit) throw valueError('User tools not available');
    if (!kit.has(name)) throw valueError(`Tool '${name}' not found.`);
    return kit.call(this.world, name, args);
  }

  /** Whether the evaluator runs it again. */
  mutates(name: string): boolean {
    const { agent, user } = this.domain;
    return (agent.kind(name) ?? user?.kind(name)) === 'write';
  }

  /** A method of either side by name, tool or not. */
  run({ env_type, func_name, arguments: args }: FunctionCall): unknown {
    const kit = env_type === 'user' ? this.domain.user : this.domain.agent;
    const method = kit?.method(func_name);
    if (!method) {
      const name = kit ? `'${kit.className}'` : "'NoneType'";
      throw new PythonError('AttributeError', `${name} object has no attribute '${func_name}'`);
    }
    const result = method(this.world, args);
    this.sync();
    return result;
  }

  /** A task's beginning, and the calls of a history again; reads and unknown tools are left out, since they change nothing. */
  begin(state: InitialState | null | undefined, history: readonly Tau2Message[]): void {
    const { agent_data, user_data } = state?.initialization_data ?? {};
    if (agent_data) this.domain.update?.(this.world, 'assistant', agent_data);
    if (user_data) this.domain.update?.(this.world, 'user', user_data);
    for (const action of state?.initialization_actions ?? []) this.run(action);
    for (const { call, answer } of callsOf(history)) {
      if (!this.domain.agent.has(call.name) && !this.domain.user?.has(call.name)) continue;
      if (!this.mutates(call.name)) continue;
      const now = this.respond(call);
      if (!sameContent(now.content, answer.content ?? '')) {
        throw valueError(
          `Tool call:\n${call.name}(${dumps(new Map(Object.entries(call.arguments)))})\n\nReturned:\n${now.content}\n\nExpected:\n${answer.content}`,
        );
      }
    }
    this.sync();
  }
}

/** Calls with their answers, in order. */
export function callsOf(messages: readonly Tau2Message[]): { call: Tau2Call; answer: Tau2Message }[] {
  const out: { call: Tau2Call; answer: Tau2Message }[] = [];
  for (let i = 0; i < messages.length; ) {
    const message = messages[i++]!;
    if (message.role === 'tool') throw valueError('Tool message not expected. Tool messages should always follow a tool call.');
    for (const call of message.tool_calls ?? []) {
      const answer = messages[i++];
      if (answer?.role !== 'tool') throw valueError(`Tool message expected. Got ${answer?.role ?? 'None'}.`);
      if ((call.id ?? '') !== (answer.id ?? '')) throw valueError(`Tool call id mismatch. Got ${call.id} and ${answer.id}`);
      out.push({ call: { ...call, requestor: call.requestor ?? (message.role === 'user' ? 'user' : 'assistant') }, answer });
    }
  }
  return out;
}

/** As JSON where both are, else as text. */
function sameContent(a: string, b: string): boolean {
  if (a === b) return true;
  try {
    return equals(readExact(a), readExact(b));
  } catch {
    return false;
  }
}
