/** The Jinja chat template of a tokenizer folder. Rendering only; what becomes of the text is chat.ts's business. */
import { Template } from '@huggingface/jinja';
import type { Message } from '../environment/types.ts';
import { ActorsError } from '../errors.ts';
import type { Tokenizer } from './tokenizer.ts';

export interface RenderOptions {
  generationPrompt: boolean;
  tools?: readonly unknown[];
  /** The template's own (`enable_thinking`, ...). */
  variables?: Record<string, unknown>;
}

/** What writes conversations: a Jinja template, or a format that is known. */
export interface ConversationTemplate {
  render(messages: readonly Message[], o: RenderOptions): string;
  /** Messages in OpenAI's shape, taken as they are. */
  renderRaw(messages: readonly Record<string, unknown>[], o: RenderOptions): string;
}

export class ChatTemplate implements ConversationTemplate {
  readonly source: string;
  readonly #template: Template;
  readonly #variables: Record<string, unknown>;

  constructor(source: string, variables: Record<string, unknown> = {}) {
    this.source = source;
    this.#variables = variables;
    try {
      // Jinja's own name cannot be given another clock.
      this.#template = new Template(source.replaceAll(/\bstrftime_now\b/g, 'formatted_time'));
    } catch (cause) {
      throw new ActorsError('SINKFLEX_CHAT_TEMPLATE', `cannot read the chat template: ${String(cause)}`, { cause });
    }
  }

  /**
   * The template of the folder that the tokenizer came from, with the special tokens that templates expect as variables. `now`: milliseconds
   * since 1970, for templates that name the day; the machine's clock without it.
   */
  static of(tokenizer: Tokenizer, o: { now?: () => number } = {}): ChatTemplate {
    const source = tokenizer.files.tokenizerConfig.chat_template;
    if (typeof source !== 'string') {
      throw new ActorsError('SINKFLEX_CHAT_TEMPLATE', 'tokenizer_config.json has no chat_template: add one, or pass a template');
    }
    const variables: Record<string, unknown> = {};
    for (const role of ['bos_token', 'eos_token', 'pad_token', 'unk_token'] as const) variables[role] = tokenizer.special(role) ?? '';
    const { now = Date.now } = o;
    variables.formatted_time = (format: string) => formatTime(new Date(now()), format);
    return new ChatTemplate(source, variables);
  }

  render(messages: readonly Message[], o: RenderOptions): string {
    return this.renderRaw(messages.map(asTemplateMessage), o);
  }

  renderRaw(messages: readonly Record<string, unknown>[], o: RenderOptions): string {
    try {
      return this.#template.render({
        ...this.#variables,
        ...o.variables,
        messages: [...messages],
        add_generation_prompt: o.generationPrompt,
        ...(o.tools ? { tools: o.tools } : {}),
      });
    } catch (cause) {
      const roles = messages.map((m) => m.role).join(', ');
      throw new ActorsError('SINKFLEX_CHAT_TEMPLATE', `the chat template cannot render [${roles}]: ${String(cause)}`, {
        cause,
        details: { roles },
      });
    }
  }
}

/** Templates know OpenAI's shape of a message. */
export function asTemplateMessage(m: Message): Record<string, unknown> {
  return {
    role: m.role,
    content: m.content,
    ...(m.name === undefined ? {} : { name: m.name }),
    ...(m.toolCallId === undefined ? {} : { tool_call_id: m.toolCallId }),
    ...(m.toolCalls?.length
      ? {
          tool_calls: m.toolCalls.map(({ id, ...call }) => ({ type: 'function', ...(id === undefined ? {} : { id }), function: call })),
        }
      : {}),
  };
}

/** The part of strftime that chat templates use, in UTC. */
function formatTime(time: Date, format: string): string {
  const two = (n: number): string => String(n).padStart(2, '0');
  const named = (style: 'short' | 'long') => time.toLocaleString('en-US', { month: style, timeZone: 'UTC' });
  const parts: Record<string, string> = {
    Y: String(time.getUTCFullYear()),
    m: two(time.getUTCMonth() + 1),
    d: two(time.getUTCDate()),
    H: two(time.getUTCHours()),
    M: two(time.getUTCMinutes()),
    S: two(time.getUTCSeconds()),
    b: named('short'),
    B: named('long'),
    '%': '%',
  };
  return format.replaceAll(/%([A-Za-z%])/g, (whole, letter: string) => parts[letter] ?? whole);
}
