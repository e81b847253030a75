/**
 * Tool calls as models write them into their text. `hermes` (Qwen 2.5 and 3, Hermes): JSON between <tool_call> and </tool_call>. Total: what
 * is malformed stays text, with the reason.
 */
import type { ToolCall } from '../environment/types.ts';
import { type ExactJson, needsExact, plainJson, readExact, readMembers } from '../exact-json.ts';

export interface ParsedTurn {
  /** What is left for people: the text without the calls. */
  text: string;
  toolCalls: ToolCall[];
  /** What the model thought, where its format tells it from what it says. */
  reasoning?: string;
  /** Why a call could not be read, for an observation to the policy. */
  malformed?: string;
}

export type ToolCallFormat = 'hermes' | 'none';

/** What a call begins with in `hermes`. */
export const TOOL_CALL_OPEN = '<tool_call>';
const CLOSE = '</tool_call>';

/** The format that a chat template teaches its model. */
export function toolCallFormatOf(template: string): ToolCallFormat {
  return template.includes(TOOL_CALL_OPEN) ? 'hermes' : 'none';
}

/** @example parseToolCalls('hermes', '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>').toolCalls */
export function parseToolCalls(format: ToolCallFormat, turn: string): ParsedTurn {
  if (format === 'none' || !turn.includes(TOOL_CALL_OPEN)) return { text: turn, toolCalls: [] };
  const toolCalls: ToolCall[] = [];
  let text = '';
  let malformed: string | undefined;
  let at = 0;
  for (;;) {
    const open = turn.indexOf(TOOL_CALL_OPEN, at);
    if (open < 0) break;
    text += turn.slice(at, open);
    const close = turn.indexOf(CLOSE, open);
    // A turn that was cut, or a model that forgot the end: the JSON may still be whole.
    const body = turn.slice(open + TOOL_CALL_OPEN.length, close < 0 ? undefined : close);
    const call = readCall(body);
    if (typeof call === 'string') {
      malformed ??= call;
      text += turn.slice(open, close < 0 ? undefined : close + CLOSE.length);
    } else toolCalls.push(call);
    at = close < 0 ? turn.length : close + CLOSE.length;
  }
  text = (text + turn.slice(at)).trim();
  return { text, toolCalls, ...(malformed === undefined ? {} : { malformed }) };
}

function readCall(body: string): ToolCall | string {
  let members: ReturnType<typeof readMembers>;
  try {
    members = readMembers(body.trim());
  } catch (error) {
    return `a tool call is no JSON object: ${(error as Error).message}`;
  }
  const name = members.get('name')?.value;
  if (typeof name !== 'string' || name === '') return 'a tool call has no name';
  const { value, text } = members.get('arguments') ?? { value: new Map<string, ExactJson>(), text: '{}' };
  const args = argumentsFrom(value, text);
  return args ? { name, ...args } : `the arguments of ${name} are no object`;
}

/** The arguments of a call from their JSON; nothing says none. A string says why they cannot be read. */
export function readArguments(text: string): Pick<ToolCall, 'arguments' | 'argumentsText'> | string {
  if (text.trim() === '') return { arguments: {} };
  try {
    return argumentsFrom(readExact(text), text) ?? 'no object';
  } catch (error) {
    return `no JSON: ${(error as Error).message}`;
  }
}

function argumentsFrom(value: ExactJson, text: string): Pick<ToolCall, 'arguments' | 'argumentsText'> | undefined {
  if (!(value instanceof Map)) return undefined;
  return { arguments: plainJson(value) as Record<string, unknown>, ...(needsExact(value) ? { argumentsText: text } : {}) };
}
