/**
 * One chat format, shared by all conversations in it: which ids open a conversation, which ids a new observation adds, and what a turn of
 * the policy says. Everything is a pure function of content and remembered, so a turn costs microseconds once its words were seen.
 */
import type { Action, ActionParser, ChatFormat, Message, ToolSchema } from '../environment/types.ts';
import { ActorsError } from '../errors.ts';
import { ChatTemplate, type ConversationTemplate, type RenderOptions } from './chat-template.ts';
import { Memo } from './memo.ts';
import { readModelChat } from './model-chat.ts';
import { Tokenizer } from './tokenizer.ts';
import { type TurnFormat, turnReader } from './turn-reader.ts';

export interface EpisodeIds {
  ids: Int32Array;
  /** 1 exactly on what the policy produces, its end-of-turn token included. */
  mask: Uint8Array;
}

/** Stands for a turn of the policy where a template is asked what follows one. */
const STAND_IN = 'q7Zturn7Zq';
const QUESTION: Message = { role: 'user', content: 'x' };
/** Prompts that name a day name this one: the same run has the same prompts, whenever it is made. */
const DAY = Date.UTC(2025, 5, 30);
const THOUGHT = /^[\s\S]*?<\/think>|<think>[\s\S]*$/;

interface Parts {
  tokenizer: Tokenizer;
  template: ConversationTemplate;
  /** Text of the token that closes an assistant's turn in the template. */
  endOfTurn: string;
  /** What closes a turn that the policy did not end itself, where that is more than one thing. */
  closings: readonly string[];
  stopIds: readonly number[];
  parse: ActionParser;
  variables: Record<string, unknown>;
  /** Assistant turns are written by the template, not as their text and the end. */
  writtenTurns: boolean;
}

export class Chat {
  readonly tokenizer: Tokenizer;
  readonly template: ConversationTemplate;
  /** What the policy emits to end its turn. */
  readonly endOfTurn: number;
  /** Every id that ends a turn. */
  readonly stopIds: readonly number[];
  readonly #p: Parts;
  readonly #prompts = new Memo<string, Int32Array>(512);
  readonly #deltas = new Memo<string, Int32Array>(16384);
  readonly #turns = new Memo<string, Action>(16384);

  /** `endOfTurn`: the token that closes an assistant's turn in the template; eos_token unless told otherwise. */
  constructor(format: ChatFormat | Parts, o: { endOfTurn?: string } = {}) {
    this.#p = 'stopIds' in format ? format : partsOf(format, o.endOfTurn);
    this.tokenizer = this.#p.tokenizer;
    this.template = this.#p.template;
    this.endOfTurn = this.tokenizer.id(this.#p.endOfTurn);
    this.stopIds = this.#p.stopIds;
  }

  /**
   * The chat format of a model's folder: its tokenizer, its template, the calls that its family writes, all that ends its turns.
   * `variables` go to the template (`enable_thinking`, ...). `words` reads what is said in turns without a call, where an environment has a
   * language of its own. SINKFLEX_CHAT_TEMPLATE where the folder has no template, or one that no conversation can be held in.
   */
  static ofModel(folder: string, o: { variables?: Record<string, unknown>; words?: ActionParser } = {}): Chat {
    const { tokenizer, template, turnFormat, stopIds } = readModelChat(folder, { now: () => DAY });
    if (template === undefined)
      throw new ActorsError(
        'SINKFLEX_CHAT_TEMPLATE',
        `${folder} has no chat template: take the instruct variant of the model, or put the chat_template.jinja of its family there`,
        { details: { folder } },
      );
    const variables = o.variables ?? {};
    // In harmony what closes a turn of the past is not what the policy says.
    const harmony = turnFormat === 'harmony' && tokenizer.has('<|return|>');
    const end = harmony ? '<|return|>' : endOf({ tokenizer, template, stopIds, variables, folder });
    const ends = new Set([...stopIds, tokenizer.id(end)]);
    return new Chat({
      tokenizer,
      template,
      endOfTurn: end,
      closings: [...[...ends].map((id) => tokenizer.token(id)!), ...(harmony ? ['<|end|>'] : [])],
      stopIds: [...ends],
      parse: parserOf(turnFormat, o.words),
      variables,
      writtenTurns: true,
    });
  }

  /** Ids of the first messages and of the generation prompt. Shared: do not write into the result. */
  prompt(messages: readonly Message[], tools?: readonly ToolSchema[]): Int32Array {
    const key = tools?.length ? `${keyOf(messages)}\u0002${JSON.stringify(tools)}` : keyOf(messages);
    return this.#prompts.get(key, () =>
      this.tokenizer.encode(this.#render(messages, { generationPrompt: true, ...(tools?.length ? { tools } : {}) })),
    );
  }

  /**
   * Ids that new messages add after a turn of the policy, up to and with the next generation prompt: what the template writes after such a
   * turn, so that nothing the policy produced is encoded again, and nothing that a template would change in earlier turns (thoughts that it
   * leaves out) is changed. `open`: the policy's turn was cut before its end-of-turn token, which then comes first. Shared: do not write
   * into the result.
   */
  delta(messages: readonly Message[], open = false): Int32Array {
    return this.#deltas.get(open ? `\u0001${keyOf(messages)}` : keyOf(messages), () => {
      const { text, closing } = this.#following(messages);
      return this.tokenizer.encode(open ? closing + text : text);
    });
  }

  /** What a turn says, without its end-of-turn token. */
  text(turn: ArrayLike<number>): string {
    const ids = Array.from(turn);
    if (this.stopIds.includes(ids.at(-1) ?? -1)) ids.pop();
    return this.tokenizer.decode(ids);
  }

  /** The action of a turn. Shared: do not write into the result. */
  parse(turn: ArrayLike<number>): Action {
    const key = Array.prototype.join.call(turn, ' ');
    return this.#turns.get(key, () => this.#p.parse(this.text(turn)));
  }

  /** The ids of a turn that says `text`, as the policy would emit them. */
  turn(text: string): Int32Array {
    const { endOfTurn: end, writtenTurns } = this.#p;
    if (!writtenTurns) return this.tokenizer.encode(text + end);
    const prompt = this.#render([QUESTION], { generationPrompt: true });
    const whole = this.#render([QUESTION, { role: 'assistant', content: STAND_IN }], { generationPrompt: false });
    const at = whole.indexOf(STAND_IN);
    const opening = whole.startsWith(prompt) ? whole.slice(prompt.length, at) : '';
    return this.tokenizer.encode(opening + text + end);
  }

  /** What the template writes after a turn of the policy for these messages, and what closes such a turn. */
  #following(messages: readonly Message[]): { text: string; closing: string } {
    const { closings, variables } = this.#p;
    let failure: unknown;
    for (const [stand, heard] of waysToAsk(messages)) {
      try {
        const whole = this.template.render([QUESTION, stand, ...heard], { generationPrompt: true, variables });
        const last = whole.lastIndexOf(STAND_IN);
        const after = whole.slice(last + STAND_IN.length);
        const ends = closings.map((closing) => ({ closing, at: after.indexOf(closing) })).filter(({ at }) => at >= 0);
        const first = ends.sort((a, b) => a.at - b.at)[0];
        if (last < 0 || first === undefined) continue;
        const text = after.slice(first.at + first.closing.length);
        // Some templates leave out what they do not know.
        if (heard.every(({ content }) => text.includes(content.trim()) || text.includes(JSON.stringify(content).slice(1, -1))))
          return { text, closing: first.closing };
      } catch (error) {
        failure ??= error;
      }
    }
    if (failure !== undefined) throw failure;
    throw new ActorsError(
      'SINKFLEX_CHAT_TEMPLATE',
      `the chat template does not close an assistant's turn with ${closings.join(' or ')}, or leaves out turns: ${messages.map((m) => m.role).join(', ')} after an assistant's`,
    );
  }

  #render(messages: readonly Message[], o: RenderOptions): string {
    return this.template.render(messages, { ...o, variables: this.#p.variables });
  }
}

/**
 * A turn of the policy that such messages can follow, and the messages as a template may take them. What a tool answers needs a call before
 * it; some templates know one at a time; and for those that know no tools at all the user says what came.
 */
function* waysToAsk(messages: readonly Message[]): Generator<[Message, readonly Message[]]> {
  const said: Message = { role: 'assistant', content: STAND_IN };
  const answers = messages.filter(({ role }) => role === 'tool');
  if (answers.length === 0) {
    yield [said, messages];
    return;
  }
  const calls = answers.map(({ name = 'tool', toolCallId }, i) => ({
    name,
    arguments: { x: STAND_IN },
    id: toolCallId ?? `call${String(i).padStart(5, '0')}`,
  }));
  yield [{ ...said, toolCalls: calls }, messages];
  yield [{ ...said, toolCalls: calls.slice(0, 1) }, messages];
  yield [said, [{ role: 'user', content: messages.map(({ content }) => content).join('\n\n') }]];
}

function partsOf(format: ChatFormat, endOfTurn: string | undefined): Parts {
  const tokenizer = new Tokenizer(format);
  const end = endOfTurn ?? tokenizer.special('eos_token');
  if (end === undefined)
    throw new ActorsError('SINKFLEX_TOKENIZER', 'no end of turn: tokenizer_config.json has no eos_token and none was passed');
  return {
    tokenizer,
    template: ChatTemplate.of(tokenizer, { now: () => DAY }),
    endOfTurn: end,
    closings: [end],
    stopIds: [tokenizer.id(end)],
    parse: format.parse,
    variables: {},
    writtenTurns: false,
  };
}

/** The token with which the template closes a turn in a conversation: a special one, or one that ends generation. */
function endOf(o: {
  tokenizer: Tokenizer;
  template: ConversationTemplate;
  stopIds: readonly number[];
  variables: Record<string, unknown>;
  folder: string;
}): string {
  const { tokenizer, variables } = o;
  const messages: Message[] = [QUESTION, { role: 'assistant', content: STAND_IN }, QUESTION];
  const whole = o.template.render(messages, { generationPrompt: false, variables });
  const last = whole.lastIndexOf(STAND_IN);
  const after = last < 0 ? [] : [...tokenizer.encode(whole.slice(last + STAND_IN.length))];
  const end = after.find((id) => o.stopIds.includes(id) || tokenizer.isSpecial(id));
  const text = end === undefined ? undefined : tokenizer.token(end);
  if (text === undefined)
    throw new ActorsError(
      'SINKFLEX_CHAT_TEMPLATE',
      `the chat template of ${o.folder} writes no token that ends an assistant's turn, so no conversation could be held in it`,
      { details: { folder: o.folder } },
    );
  return text;
}

/** Calls as the model's family writes them; what it thought is not part of what it says. */
function parserOf(format: TurnFormat, words: ActionParser | undefined): ActionParser {
  return (text) => {
    const reader = turnReader(format, { tools: true });
    reader.push(format === 'harmony' ? text : text.replace(THOUGHT, ''));
    const { turn } = reader.end();
    const said = turn.text.trim();
    if (turn.malformed === undefined && turn.toolCalls.length === 0 && words !== undefined) return words(said);
    const malformed = turn.toolCalls.length === 0 ? turn.malformed : undefined;
    return { text: said, toolCalls: turn.toolCalls, finish: false, ...(malformed === undefined ? {} : { malformed }) };
  };
}

function keyOf(messages: readonly Message[]): string {
  let key = '';
  for (const m of messages) {
    key += `${m.role}\u0000${m.name ?? ''}\u0000${m.content}\u0000`;
    if (m.toolCalls?.length) key += JSON.stringify(m.toolCalls);
  }
  return key;
}
