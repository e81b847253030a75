/** What the agent is told before the conversation. */
import { callText } from './action-text.ts';
import type { Tau2Message } from './tasks.ts';

const DIALOGUE = [
  'You are a customer service agent who helps the user as the policy below says.',
  'In each turn you either send a message to the user or make a tool call, never both.',
  'Follow the policy always, and write tool calls as valid JSON.',
];
const ALONE = [
  'You are a customer service agent who settles a ticket alone, as the policy below says: there is no user to talk to.',
  'Make tool calls, written as valid JSON.',
];
const ENDS_BY_CALL = 'When the ticket is settled, call `done`.';
const ENDS_BY_TEXT = 'When it is settled, end with one message that tells the user everything that was asked for.';

/** The blocks `<instructions>` and `<policy>`, as the benchmark lays its prompt out. */
export function agentPrompt(policy: string, solo: boolean, textStops: boolean): string {
  const lines = solo ? [...ALONE, textStops ? ENDS_BY_TEXT : ENDS_BY_CALL] : DIALOGUE;
  return `<instructions>\n${lines.join('\n')}\n</instructions>\n<policy>\n${policy}\n</policy>`;
}

/** A conversation that was under way before the agent took over. */
export function historyText(messages: readonly Tau2Message[]): string {
  const lines = messages.map((m) => `${m.role}: ${m.tool_calls ? m.tool_calls.map(callText).join(', ') : (m.content ?? '')}`);
  return `<conversation_so_far>\n${lines.join('\n')}\n</conversation_so_far>`;
}
