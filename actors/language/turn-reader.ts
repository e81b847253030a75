/** A turn of a model, read as it comes: what is said, what is thought, and the tool calls at its end, in the format that its template teaches. */
import { HarmonyReader, isHarmony } from './harmony.ts';
import { unfinishedMarker } from './text-stream.ts';
import { type ParsedTurn, parseToolCalls, TOOL_CALL_OPEN, type ToolCallFormat, toolCallFormatOf } from './tool-calls.ts';

export type { ParsedTurn } from './tool-calls.ts';

/** How turns are written: a format of tool calls in plain text, or channels. */
export type TurnFormat = ToolCallFormat | 'harmony';

/** What is new, for people: speech and thought. */
export interface TurnDelta {
  content: string;
  reasoning: string;
}

export interface TurnReader {
  push(text: string): TurnDelta;
  /** What was held back, and the whole turn. */
  end(): TurnDelta & { turn: ParsedTurn };
}

export function turnFormatOf(template: string): TurnFormat {
  return isHarmony(template) ? 'harmony' : toolCallFormatOf(template);
}

/** Whether the format is written in special tokens, which must then not be left out of the text. */
export function readsSpecialTokens(format: TurnFormat): boolean {
  return format === 'harmony';
}

/** `tools`: calls are looked for. Without them a plain format is text and nothing else. */
export function turnReader(format: TurnFormat, o: { tools: boolean }): TurnReader {
  if (format === 'harmony') return new HarmonyReader();
  return new PlainReader(o.tools ? format : 'none');
}

/** Text in which calls stand between markers: nothing that may belong to a call is shown before it is known. */
class PlainReader implements TurnReader {
  readonly #format: ToolCallFormat;
  #text = '';
  #shown = 0;

  constructor(format: ToolCallFormat) {
    this.#format = format;
  }

  push(text: string): TurnDelta {
    this.#text += text;
    if (this.#format === 'none') return this.#take(this.#text.length);
    // What is shown holds no beginning of a call, so it need not be searched again.
    const open = this.#text.indexOf(TOOL_CALL_OPEN, this.#shown);
    return this.#take(open < 0 ? this.#text.length - unfinishedMarker(this.#text, [TOOL_CALL_OPEN]) : open);
  }

  end(): TurnDelta & { turn: ParsedTurn } {
    const called = this.#format !== 'none' && this.#text.includes(TOOL_CALL_OPEN, this.#shown);
    return { ...this.#take(called ? this.#shown : this.#text.length), turn: parseToolCalls(this.#format, this.#text) };
  }

  #take(end: number): TurnDelta {
    const content = this.#text.slice(this.#shown, Math.max(this.#shown, end));
    this.#shown = Math.max(this.#shown, end);
    return { content, reasoning: '' };
  }
}
