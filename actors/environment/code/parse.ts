/**
 * What a turn means, as models write it: tool calls in hermes form, a fenced program (run it), `FINAL ANSWER` (the end, with what follows it),
 * `SEARCH: words`. The last one in the turn that can be read counts; anything else is speech.
 */
import { parseToolCalls } from '../../language/index.ts';
import type { Action, ToolCall } from '../types.ts';
import type { CodeLanguage } from './tasks.ts';

const FENCE = /```([A-Za-z0-9_+-]*)[ \t]*\r?\n([\s\S]*?)(?:\r?\n[ \t]*)?```/g;
const OPEN_FENCE = /```([A-Za-z0-9_+-]*)[ \t]*\r?\n([\s\S]*)$/;
const FINAL = /FINAL ANSWER[ \t]*:?/;
const SEARCH = /^SEARCH:[ \t]*(.+)$/m;

const LANGUAGES: Readonly<Record<string, CodeLanguage>> = {
  python: 'python',
  py: 'python',
  python3: 'python',
  javascript: 'javascript',
  js: 'javascript',
  node: 'javascript',
};

export function parseCodeTurn(text: string): Action {
  const hermes = parseToolCalls('hermes', text);
  if (hermes.malformed !== undefined && hermes.toolCalls.length === 0)
    return { text, toolCalls: [], finish: false, malformed: hermes.malformed };
  const toolCalls = hermes.toolCalls.length > 0 ? hermes.toolCalls : spoken(text);
  if (toolCalls.length === 0 && text.trim() === '') return { text, toolCalls, finish: false, malformed: 'the turn is empty' };
  return { text, toolCalls, finish: toolCalls.some((call) => call.name === 'finish') };
}

/** Calls in words. */
export function spoken(text: string): ToolCall[] {
  const final = FINAL.exec(text);
  if (final) {
    const rest = text.slice(final.index + final[0].length);
    const answer = programs(rest).at(-1)?.code ?? rest.trim();
    // A program in the turn of the final answer is the answer, where nothing follows the words.
    const before = programs(text.slice(0, final.index)).at(-1)?.code;
    return [{ name: 'finish', arguments: { answer: answer === '' && before !== undefined ? before : answer } }];
  }
  const program = programs(text).at(-1);
  if (program)
    return [{ name: 'execute_code', arguments: { code: program.code, ...(program.language ? { language: program.language } : {}) } }];
  const search = SEARCH.exec(text);
  return search ? [{ name: 'search', arguments: { query: search[1]!.trim() } }] : [];
}

function programs(text: string): { code: string; language: CodeLanguage | undefined }[] {
  const found = [...text.matchAll(FENCE)].map((m) => ({ code: m[2]!, language: LANGUAGES[m[1]!.toLowerCase()] }));
  // A fence that the turn's end cut off.
  const open = OPEN_FENCE.exec(text.replace(FENCE, ''));
  if (open) found.push({ code: open[2]!, language: LANGUAGES[open[1]!.toLowerCase()] });
  return found;
}
