/** Conversations in the harmony format of gpt-oss, for folders that bring no chat template. Messages and tools in OpenAI's shape. */
import type { Message } from '../environment/types.ts';
import { ActorsError } from '../errors.ts';
import { asTemplateMessage, type ConversationTemplate } from './chat-template.ts';

type Json = Record<string, unknown>;

export interface HarmonyOptions {
  generationPrompt: boolean;
  tools?: readonly unknown[];
  /** `reasoning_effort` (low, medium, high), `model_identity`, `current_date` (YYYY-MM-DD), as gpt-oss' template knows them. */
  variables?: Json;
}

const IDENTITY = 'You are ChatGPT, a large language model trained by OpenAI.';

export class HarmonyTemplate implements ConversationTemplate {
  readonly #today: () => string;

  /** `today`: YYYY-MM-DD, where a conversation names no current_date. */
  constructor(o: { today: () => string }) {
    this.#today = o.today;
  }

  render(messages: readonly Message[], o: HarmonyOptions): string {
    return this.renderRaw(messages.map(asTemplateMessage), o);
  }

  renderRaw(messages: readonly Json[], o: HarmonyOptions): string {
    const {
      reasoning_effort: effort = 'medium',
      model_identity: identity = IDENTITY,
      current_date: date = this.#today(),
    } = o.variables ?? {};
    const tools = (o.tools ?? []).map((tool) => ((tool as Json).function ?? tool) as Json);
    let text = message('system', [
      `${identity}\nKnowledge cutoff: 2024-06\nCurrent date: ${date}\n\nReasoning: ${effort}`,
      `# Valid channels: analysis, commentary, final. Channel must be included for every message.${tools.length > 0 ? "\nCalls to these tools must go to the commentary channel: 'functions'." : ''}`,
    ]);
    const first = messages[0];
    const instructed = first !== undefined && (first.role === 'system' || first.role === 'developer');
    const instructions = instructed ? contentOf(first) : '';
    if (instructions !== '' || tools.length > 0)
      text += message('developer', [
        ...(instructions === '' ? [] : [`# Instructions\n\n${instructions}`]),
        ...(tools.length === 0
          ? []
          : [`# Tools\n\n## functions\n\nnamespace functions {\n\n${tools.map(declaration).join('')}} // namespace functions`]),
      ]);
    const rest = instructed ? messages.slice(1) : messages;
    // What was thought is shown while its calls are being answered, and no longer.
    const answered = rest.findLastIndex((m) => m.role === 'assistant' && !calls(m).length);
    let called: string | undefined;
    for (const [i, m] of rest.entries()) {
      if (m.role === 'assistant') {
        const thought = m.thinking ?? m.reasoning_content ?? m.reasoning;
        const last = i === rest.length - 1 && !o.generationPrompt;
        if (typeof thought === 'string' && thought !== '' && (i > answered || last)) text += said('analysis', thought, '<|end|>');
        const content = contentOf(m);
        if (calls(m).length === 0) text += said('final', content, last ? '<|return|>' : '<|end|>');
        else if (content !== '') text += said('commentary', content, '<|end|>');
        for (const { name, arguments: args } of calls(m)) {
          called = name;
          text += `<|start|>assistant to=functions.${name}<|channel|>commentary <|constrain|>json<|message|>${typeof args === 'string' ? args : JSON.stringify(args)}<|call|>`;
        }
      } else if (m.role === 'tool') {
        const name = typeof m.name === 'string' ? m.name : called;
        if (name === undefined)
          throw new ActorsError('SINKFLEX_CHAT_TEMPLATE', 'a message of role tool follows no call of the assistant, and has no name');
        text += `<|start|>functions.${name} to=assistant<|channel|>commentary<|message|>${contentOf(m)}<|end|>`;
      } else text += message(String(m.role), [contentOf(m)]);
    }
    return o.generationPrompt ? `${text}<|start|>assistant` : text;
  }
}

const message = (role: string, parts: string[]): string => `<|start|>${role}<|message|>${parts.join('\n\n')}<|end|>`;
const said = (channel: string, content: string, end: string): string =>
  `<|start|>assistant<|channel|>${channel}<|message|>${content}${end}`;
const contentOf = (m: Json): string => (typeof m.content === 'string' ? m.content : '');
const calls = (m: Json): { name: string; arguments: unknown }[] =>
  ((m.tool_calls as { function?: Json }[] | null | undefined) ?? []).map(
    (call) => (call.function ?? call) as { name: string; arguments: unknown },
  );

/** A tool as a TypeScript type, as the model was trained to read it. */
function declaration({ name, description, parameters }: Json): string {
  const shape = parameters as Json | undefined;
  const empty = shape === undefined || Object.keys((shape.properties as Json | undefined) ?? {}).length === 0;
  return `${comment(description, '')}type ${name} = (${empty ? '' : `_: ${typeOf(shape, '')}`}) => any;\n\n`;
}

function comment(text: unknown, indent: string): string {
  if (typeof text !== 'string' || text === '') return '';
  return `${text
    .split('\n')
    .map((line) => `${indent}// ${line}`)
    .join('\n')}\n`;
}

function typeOf(schema: Json, indent: string): string {
  const alternatives = (schema.oneOf ?? schema.anyOf) as Json[] | undefined;
  if (Array.isArray(alternatives)) return alternatives.map((each) => typeOf(each, indent)).join(' | ');
  if (Array.isArray(schema.enum)) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  if (Array.isArray(schema.type)) return schema.type.map((type) => typeOf({ ...schema, type }, indent)).join(' | ');
  const nullable = schema.nullable === true ? ' | null' : '';
  switch (schema.type) {
    case 'string':
    case 'boolean':
    case 'null':
      return `${schema.type}${nullable}`;
    case 'number':
    case 'integer':
      return `number${nullable}`;
    case 'array':
      return `${schema.items === undefined ? 'any' : typeOf(schema.items as Json, indent)}[]${nullable}`;
    case 'object':
      return `${objectType(schema, indent)}${nullable}`;
    default:
      return schema.properties === undefined ? 'any' : objectType(schema, indent);
  }
}

function objectType(schema: Json, indent: string): string {
  const required = new Set((schema.required as string[] | undefined) ?? []);
  const lines = Object.entries((schema.properties as Record<string, Json> | undefined) ?? {}).map(([name, property]) => {
    const fallback =
      property.default === undefined
        ? ''
        : ` // default: ${typeof property.default === 'string' ? property.default : JSON.stringify(property.default)}`;
    return `${comment(property.description, indent)}${indent}${name}${required.has(name) ? '' : '?'}: ${typeOf(property, `${indent}    `)},${fallback}\n`;
  });
  return `{\n${lines.join('')}${indent.slice(4)}}`;
}
