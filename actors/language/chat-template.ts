/** The Jinja chat template of a tokenizer folder. Rendering only; what becomes of the text is chat.ts's business. */
import { Template } from '@huggingface/jinja';
import type { Message } from '../environment/types.ts';
import { ActorsError } from '../errors.ts';
import type { Tokenizer } from './tokenizer.ts';

export class ChatTemplate {
  readonly source: string;
  readonly #template: Template;
  readonly #variables: Record<string, unknown>;

  constructor(source: string, variables: Record<string, unknown> = {}) {
    this.source = source;
    this.#variables = variables;
    try {
      this.#template = new Template(source);
    } catch (cause) {
      throw new ActorsError('SINKFLEX_CHAT_TEMPLATE', `cannot read the chat template: ${String(cause)}`, { cause });
    }
  }

  /** The template of the folder that the tokenizer came from, with the special tokens that templates expect as variables. */
  static of(tokenizer: Tokenizer): ChatTemplate {
    const source = tokenizer.files.tokenizerConfig.chat_template;
    if (typeof source !== 'string') {
      throw new ActorsError('SINKFLEX_CHAT_TEMPLATE', 'tokenizer_config.json has no chat_template: add one, or pass a template');
    }
    const variables: Record<string, unknown> = {};
    for (const role of ['bos_token', 'eos_token', 'pad_token', 'unk_token'] as const) variables[role] = tokenizer.special(role) ?? '';
    return new ChatTemplate(source, variables);
  }

  render(messages: readonly Message[], o: { generationPrompt: boolean; tools?: readonly unknown[] }): string {
    return this.renderRaw(messages.map(asTemplateMessage), o);
  }

  /** Messages in OpenAI's shape, handed to the template as they are; `variables` are the template's own (`enable_thinking`, ...). */
  renderRaw(
    messages: readonly Record<string, unknown>[],
    o: { generationPrompt: boolean; tools?: readonly unknown[]; variables?: Record<string, unknown> },
  ): string {
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
function asTemplateMessage(m: Message): Record<string, unknown> {
  return {
    role: m.role,
    content: m.content,
    ...(m.name === undefined ? {} : { name: m.name }),
    ...(m.toolCalls?.length ? { tool_calls: m.toolCalls.map((call) => ({ type: 'function', function: call })) } : {}),
  };
}
