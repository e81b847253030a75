/** tasks.json as the benchmark writes it, and the text forms of a user's scenario. */
import { type ExactJson, exactJson, plainJson, readExact } from '../../exact-json.ts';
import type { ToolCall } from '../types.ts';
import type { Side } from './domain.ts';

export interface Tau2Call {
  id?: string;
  name: string;
  /** Exact values, as Python has them: an int is a bigint, a float a number, a dict a Map. */
  arguments: Record<string, unknown>;
  requestor?: Side;
}

/** A message of a trajectory, in the benchmark's own fields. */
export interface Tau2Message {
  role: 'assistant' | 'user' | 'tool';
  content?: string | null;
  tool_calls?: Tau2Call[] | null;
  /** Of a tool's message: whose call it answers, and whether it failed. */
  id?: string;
  requestor?: Side;
  error?: boolean;
}

export interface FunctionCall {
  env_type: Side;
  func_name: string;
  arguments: Record<string, unknown>;
}

export interface Assertion extends FunctionCall {
  assert_value?: boolean;
  message?: string | null;
}

/** A reference action: what leads to the wanted state. Not required of the agent unless the basis has ACTION. */
export interface ReferenceAction {
  action_id: string;
  requestor?: Side;
  name: string;
  arguments: Record<string, unknown>;
  info?: string | null;
  compare_args?: string[] | null;
}

export type RewardType = 'DB' | 'ENV_ASSERTION' | 'NL_ASSERTION' | 'ACTION' | 'COMMUNICATE';

export interface EvaluationCriteria {
  actions?: ReferenceAction[] | null;
  env_assertions?: Assertion[] | null;
  communicate_info?: string[] | null;
  nl_assertions?: string[] | null;
  reward_basis?: RewardType[];
}

export interface InitialState {
  initialization_data?: { agent_data?: Record<string, unknown> | null; user_data?: Record<string, unknown> | null } | null;
  initialization_actions?: FunctionCall[] | null;
  message_history?: Tau2Message[] | null;
}

export interface StructuredInstructions {
  domain: string;
  reason_for_call: string;
  known_info?: string | null;
  unknown_info?: string | null;
  task_instructions: string;
}

export interface UserScenario {
  persona?: string | null;
  instructions: string | StructuredInstructions;
}

export interface Tau2Task {
  id: string;
  description?: Record<string, unknown> | null;
  user_scenario: UserScenario;
  ticket?: string | null;
  initial_state?: InitialState | null;
  evaluation_criteria?: EvaluationCriteria | null;
  /** Names of the user's tools, where the task does not give all. */
  user_tools?: string[] | null;
}

/** What stands in these is seen by tools and databases, which tell 5 from 5.0. */
const EXACT = ['arguments', 'agent_data', 'user_data'];

/** The content of tasks.json. */
export function readTasks(text: string): Tau2Task[] {
  return plainJson(readExact(text), EXACT) as Tau2Task[];
}

/** What a policy or user called, as the domain's Python sees it. */
export function tau2Call(call: ToolCall): Tau2Call {
  const { id, name } = call;
  const args = call.argumentsText === undefined ? exactJson(call.arguments) : readExact(call.argumentsText);
  return { ...(id === undefined ? {} : { id }), name, arguments: Object.fromEntries(args as Map<string, ExactJson>) };
}

export const DEFAULT_BASIS: readonly RewardType[] = ['DB', 'COMMUNICATE'];

export function basisOf(task: Tau2Task): readonly RewardType[] {
  return task.evaluation_criteria?.reward_basis ?? DEFAULT_BASIS;
}

/** Python's textwrap.indent: lines of blanks only stay as they are. */
function indent(text: string): string {
  return text.replace(/^(?=.*\S)/gm, '\t');
}

/** The scenario as a language model that plays the user gets it. */
export function scenarioText({ persona, instructions }: UserScenario): string {
  const lines = persona === null || persona === undefined ? [] : ['Persona:', indent(persona)];
  return [...lines, 'Instructions:', indent(instructionsText(instructions))].join('\n');
}

function instructionsText(i: string | StructuredInstructions): string {
  if (typeof i === 'string') return i;
  const section = (title: string, text: string | null | undefined) =>
    text === null || text === undefined ? [] : [`${title}:\n${indent(text)}`];
  return [
    `Domain: ${i.domain}`,
    ...section('Reason for call', i.reason_for_call),
    ...section('Known info', i.known_info),
    ...section('Unknown info', i.unknown_info),
    ...section('Task instructions', i.task_instructions),
  ].join('\n');
}

/** What solo mode tells the agent: the task's ticket; where it has none, why the user calls and what the user knows. */
export function ticketOf(task: Tau2Task): string {
  if (task.ticket) return task.ticket;
  const { instructions } = task.user_scenario;
  if (typeof instructions === 'string') return instructions;
  return [instructions.reason_for_call, instructions.known_info].filter(Boolean).join('\n\n');
}
