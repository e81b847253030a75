/** The tools of an environment: the schemas for its prompt, and calls by name that never throw for what a policy wrote. */
import { didYouMean } from '../../errors.ts';
import type { Action, MaybePromise, Message, ToolCall, ToolSchema } from '../types.ts';
import type { Tool, ToolOutcome } from './define-tool.ts';

export interface ToolSet<C> {
  readonly tools: readonly Tool<C>[];
  readonly names: readonly string[];
  /** For `ResetResult.tools`. */
  readonly schemas: ToolSchema[];
  get(name: string): Tool<C> | undefined;
  /** Rejects or throws only where a tool threw what is not a ToolError. */
  call(call: ToolCall, context: C): MaybePromise<ToolOutcome>;
}

/** @example const tools = toolSet([lookUp, cancel]); const { content } = await tools.call(action.toolCalls[0], world); */
export function toolSet<C>(tools: readonly Tool<C>[]): ToolSet<C> {
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  if (byName.size < tools.length) {
    const twice = tools.find((tool, i) => tools.findIndex((other) => other.name === tool.name) < i);
    throw new TypeError(`toolSet: two tools are named ${twice?.name}`);
  }
  const names = [...byName.keys()];
  return {
    tools,
    names,
    schemas: tools.map((tool) => tool.schema),
    get: (name) => byName.get(name),
    call(call, context) {
      const tool = byName.get(call.name);
      if (tool) return tool.run(call.arguments, context);
      const near = didYouMean(call.name, names);
      const content = `there is no tool "${call.name}"${near ? `: did you mean "${near}"?` : `; there are ${names.join(', ') || 'none'}.`}`;
      return { content, error: true, refused: 'unknown_tool' };
    },
  };
}

/** The observation of one call. */
export function toolMessage(call: ToolCall, outcome: ToolOutcome): Message {
  return { role: 'tool', name: call.name, content: outcome.content, ...(call.id === undefined ? {} : { toolCallId: call.id }) };
}

/** The observation of a turn whose calls could not be read. */
export function malformedMessage(action: Action): Message {
  return { role: 'tool', content: `The call could not be read: ${action.malformed ?? 'it is malformed'}.` };
}

/** The tools as a page for people: a table a tool. */
export function toolsPage(tools: readonly Tool<never>[]): string {
  return tools.map(section).join('\n');
}

function section(tool: Tool<never>): string {
  const { properties = {}, required = [] } = tool.schema.function.parameters as {
    properties?: Record<string, { type?: string; enum?: unknown[]; description?: string; items?: { type?: string } }>;
    required?: string[];
  };
  const rows = Object.entries(properties).map(([name, p]) => {
    const type = p.enum
      ? p.enum.map((v) => `\`${String(v)}\``).join(' ')
      : p.type === 'array'
        ? `${p.items?.type ?? ''}[]`
        : (p.type ?? 'any');
    return `| \`${name}\` | ${type} | ${required.includes(name) ? 'yes' : ''} | ${(p.description ?? '').replaceAll('\n', ' ').replaceAll('|', '\\|')} |`;
  });
  const head = [`### ${tool.name}`, '', `${tool.description}${tool.writes ? ' (writes)' : ''}`, ''];
  return [...head, ...(rows.length > 0 ? ['| argument | type | required | what |', '|---|---|---|---|', ...rows, ''] : [])].join('\n');
}
