/**
 * A language model as user, behind any OpenAI-compatible endpoint, our own `sinkflex serve` included. It sees the conversation from its side:
 * the agent's words come as `user`, its own as `assistant`. Whatever the endpoint fails in is SINKFLEX_USER_FAILED, never a score.
 */
import { z } from 'zod';
import { askEndpoint, EndpointFailure, messageOf } from '../../endpoint.ts';
import { ActorsError } from '../../errors.ts';
import { readArguments } from '../../language/index.ts';
import type { Message, ToolCall, ToolSchema } from '../types.ts';
import type { UserSimulator, UserStart, UserTurn } from './types.ts';

const Options = z.strictObject({
  /** Such as http://127.0.0.1:8000/v1. */
  base_url: z.url(),
  model: z.string().min(1),
  /** Name of the environment variable with the key; none is sent without it. */
  api_key_env: z.string().min(1).optional(),
  temperature: z.number().min(0).default(0),
  max_tokens: z.number().int().positive().optional(),
  /** Of one request, milliseconds. */
  timeout_ms: z.number().positive().default(60_000),
  /** Tries after the first. */
  retries: z.number().int().min(0).default(3),
  /** Before the first retry, milliseconds; doubled each time. */
  backoff_ms: z.number().min(0).default(500),
  /** In place of the benchmark's. */
  guidelines: z.string().min(1).optional(),
});

type Wire = Record<string, unknown>;

export class ModelUser implements UserSimulator {
  readonly kind: string;
  readonly #o: z.infer<typeof Options>;
  #messages: Wire[] = [];
  #tools: ToolSchema[] = [];
  #seed = 0;
  #turns = 0;
  #closing = new AbortController();

  constructor(options: Record<string, unknown>) {
    const read = Options.safeParse(options);
    if (!read.success) {
      const { path, message } = read.error.issues[0]!;
      const option = ['user_options', ...path].join('.');
      throw new ActorsError('SINKFLEX_ENVIRONMENT_OPTION', `option ${option} of user=llm: ${message}; it needs base_url and model`, {
        details: { option },
      });
    }
    this.#o = read.data;
    this.kind = `model:${this.#o.model}`;
  }

  start(o: UserStart): void {
    const guidelines = this.#o.guidelines ?? o.guidelines;
    if (guidelines === undefined) {
      throw new ActorsError(
        'SINKFLEX_TAU2_DATA',
        'user=llm: the data folder has no user_simulator/simulation_guidelines.md; add it, or give user_options.guidelines',
      );
    }
    this.#closing = new AbortController();
    this.#seed = o.seed;
    this.#turns = 0;
    this.#tools = o.tools;
    this.#messages = [{ role: 'system', content: `${guidelines}\n\n<scenario>\n${o.scenario.text}\n</scenario>` }];
    // The last one of a history arrives with the first reply.
    for (const { role, content } of o.history.slice(0, -1)) {
      if (content === '' || (role !== 'assistant' && role !== 'user')) continue;
      this.#messages.push({ role: role === 'user' ? 'assistant' : 'user', content });
    }
  }

  async reply(incoming: readonly Message[]): Promise<UserTurn> {
    for (const m of incoming) {
      if (m.role === 'tool') this.#messages.push({ role: 'tool', content: m.content, tool_call_id: m.toolCallId ?? '' });
      else this.#messages.push({ role: 'user', content: m.content });
    }
    const { content, calls } = await this.#ask();
    this.#turns++;
    if (calls.length === 0) {
      this.#messages.push({ role: 'assistant', content });
      return { text: content };
    }
    this.#messages.push({
      role: 'assistant',
      content: null,
      tool_calls: calls.map((c) => ({
        id: c.id,
        type: 'function',
        function: { name: c.name, arguments: c.argumentsText ?? JSON.stringify(c.arguments) },
      })),
    });
    return { toolCalls: calls };
  }

  close(): void {
    this.#closing.abort();
  }

  async #ask(): Promise<{ content: string; calls: ToolCall[] }> {
    const { retries, backoff_ms, timeout_ms, base_url, api_key_env, model } = this.#o;
    const endpoint = { baseUrl: base_url, apiKeyEnv: api_key_env, retries, backoffMs: backoff_ms, timeoutMs: timeout_ms };
    try {
      return await askEndpoint(endpoint, this.#request(), (answer) => this.#read(answer), this.#closing.signal);
    } catch (cause) {
      if (!(cause instanceof EndpointFailure)) throw cause;
      throw new ActorsError('SINKFLEX_USER_FAILED', `the user ${this.kind} at ${base_url} gave no answer: ${cause.message}`, {
        details: { model, baseUrl: base_url },
      });
    }
  }

  #request(): Wire {
    const { model, temperature, max_tokens } = this.#o;
    return {
      model,
      temperature,
      // Another one each turn; 31 bits, which every server takes.
      seed: (this.#seed + this.#turns) & 0x7fffffff,
      messages: this.#messages,
      ...(max_tokens === undefined ? {} : { max_tokens }),
      ...(this.#tools.length === 0 ? {} : { tools: this.#tools }),
    };
  }

  #read(body: unknown): { content: string; calls: ToolCall[] } {
    const { content, tool_calls } = messageOf(body);
    const calls = (tool_calls ?? []).map((c, i) => {
      const args = readArguments(c.function.arguments);
      if (typeof args === 'string') throw new SyntaxError(`the arguments of ${c.function.name} are ${args}`);
      return { id: c.id ?? `user_${this.#turns}_${i}`, name: c.function.name, ...args };
    });
    return { content: content ?? '', calls };
  }
}
