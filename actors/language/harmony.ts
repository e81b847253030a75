/**
 * The harmony format of gpt-oss: messages with channels. `analysis` is what the model thinks, `commentary` holds its tool calls (and what it says
 * before them), `final` the answer. A turn of the model is one or several messages; the prompt has begun the first with `<|start|>assistant`.
 */
import type { ToolCall } from '../environment/types.ts';
import { unfinishedMarker } from './text-stream.ts';
import { readArguments } from './tool-calls.ts';
import type { ParsedTurn, TurnDelta, TurnReader } from './turn-reader.ts';

export interface HarmonyMessage {
  channel: string;
  /** Who is called: `functions.name`, or a tool of the model's own. */
  recipient?: string;
  content: string;
}

const MESSAGE = '<|message|>';
const START = '<|start|>';
/** What ends a message: said, a call that waits for its result, the end of the turn. */
const ENDS = ['<|end|>', '<|call|>', '<|return|>', START];
const CHANNEL = '<|channel|>';

export const isHarmony = (template: string): boolean => template.includes(CHANNEL) && template.includes(MESSAGE);

/** Reads a turn as it comes. Total: a message that was cut is a message, a call whose arguments are no JSON is malformed. */
export class HarmonyReader implements TurnReader {
  readonly messages: HarmonyMessage[] = [];
  #rest = '';
  /** The message whose content is being read; undefined: its header is. */
  #open: HarmonyMessage | undefined;

  push(text: string): TurnDelta {
    this.#rest += text;
    return this.#advance(false);
  }

  end(): TurnDelta & { turn: ParsedTurn } {
    const delta = this.#advance(true);
    return { ...delta, turn: this.#turn() };
  }

  #advance(last: boolean): TurnDelta {
    const delta = { content: '', reasoning: '' };
    for (;;) {
      if (this.#open === undefined) {
        const at = this.#rest.indexOf(MESSAGE);
        if (at < 0) return delta;
        this.#open = readHeader(this.#rest.slice(0, at));
        this.messages.push(this.#open);
        this.#rest = this.#rest.slice(at + MESSAGE.length);
      }
      const found = ENDS.map((marker) => ({ marker, at: this.#rest.indexOf(marker) })).filter(({ at }) => at >= 0);
      const end = found.sort((a, b) => a.at - b.at)[0];
      const upTo = end?.at ?? this.#rest.length - (last ? 0 : unfinishedMarker(this.#rest, ENDS));
      const fresh = this.#rest.slice(0, upTo);
      this.#open.content += fresh;
      if (this.#open.recipient === undefined) delta[this.#open.channel === 'analysis' ? 'reasoning' : 'content'] += fresh;
      this.#rest = this.#rest.slice(upTo + (end?.marker.length ?? 0));
      if (end === undefined) return delta;
      this.#open = undefined;
    }
  }

  #turn(): ParsedTurn {
    const said = this.messages.filter(({ recipient }) => recipient === undefined);
    const text = (analysis: boolean): string =>
      said
        .filter(({ channel }) => (channel === 'analysis') === analysis)
        .map(({ content }) => content)
        .join('');
    const toolCalls: ToolCall[] = [];
    let malformed: string | undefined;
    for (const { recipient, content } of this.messages) {
      if (recipient === undefined) continue;
      const name = recipient.replace(/^functions\./, '');
      const args = readArguments(content);
      if (typeof args === 'string') malformed ??= `the arguments of ${name} are ${args}`;
      else toolCalls.push({ name, ...args });
    }
    const reasoning = text(true);
    return { text: text(false), toolCalls, ...(reasoning === '' ? {} : { reasoning }), ...(malformed === undefined ? {} : { malformed }) };
  }
}

/** ` to=functions.find<|channel|>commentary <|constrain|>json`, in either order. */
function readHeader(header: string): HarmonyMessage {
  const channel = header.includes(CHANNEL) ? /^\s*(\w+)/.exec(header.slice(header.indexOf(CHANNEL) + CHANNEL.length))?.[1] : undefined;
  const recipient = /\bto=([^\s<]+)/.exec(header)?.[1];
  return { channel: channel ?? 'final', ...(recipient === undefined ? {} : { recipient }), content: '' };
}
