/**
 * One chat format, shared by all conversations in it: which ids open a conversation, which ids a new observation adds, and what a turn of
 * the policy says. Everything is a pure function of content and remembered, so a turn costs microseconds once its words were seen.
 */
import type { Action, ChatFormat, Message, ToolSchema } from '../environment/types.ts';
import { ActorsError } from '../errors.ts';
import { ChatTemplate } from './chat-template.ts';
import { Memo } from './memo.ts';
import { Tokenizer } from './tokenizer.ts';

export interface EpisodeIds {
  ids: Int32Array;
  /** 1 exactly on what the policy produces, its end-of-turn token included. */
  mask: Uint8Array;
}

export class Chat {
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate;
  /** What the policy emits to end its turn. */
  readonly endOfTurn: number;
  readonly stopIds: readonly number[];
  readonly #parse: ChatFormat['parse'];
  readonly #endText: string;
  readonly #prompts = new Memo<string, Int32Array>(4096);
  readonly #deltas = new Memo<string, Int32Array>(16384);
  readonly #turns = new Memo<string, Action>(16384);

  /** `endOfTurn`: the token that closes an assistant's turn in the template; eos_token unless told otherwise. */
  constructor(format: ChatFormat, o: { endOfTurn?: string } = {}) {
    this.tokenizer = new Tokenizer(format);
    this.template = ChatTemplate.of(this.tokenizer);
    const end = o.endOfTurn ?? this.tokenizer.special('eos_token');
    if (end === undefined)
      throw new ActorsError('SINKFLEX_TOKENIZER', 'no end of turn: tokenizer_config.json has no eos_token and none was passed');
    this.#endText = end;
    this.endOfTurn = this.tokenizer.id(end);
    this.stopIds = [this.endOfTurn];
    this.#parse = format.parse;
  }

  /** Ids of the first messages and of the generation prompt. Shared: do not write into the result. */
  prompt(messages: readonly Message[], tools?: readonly ToolSchema[]): Int32Array {
    const key = tools?.length ? `${keyOf(messages)}\u0002${JSON.stringify(tools)}` : keyOf(messages);
    return this.#prompts.get(key, () =>
      this.tokenizer.encode(this.template.render(messages, { generationPrompt: true, ...(tools?.length ? { tools } : {}) })),
    );
  }

  /**
   * Ids that new messages add after a turn of the policy, up to and with the next generation prompt: the suffix that the template gives
   * them, so that nothing the policy produced is encoded again. `open`: the policy's turn was cut before its end-of-turn token, which
   * then comes first. Shared: do not write into the result.
   */
  delta(messages: readonly Message[], open = false): Int32Array {
    return this.#deltas.get(open ? `\u0001${keyOf(messages)}` : keyOf(messages), () => {
      const before: Message[] = [
        { role: 'user', content: 'x' },
        { role: 'assistant', content: 'x' },
      ];
      const head = this.template.render(before, { generationPrompt: false });
      const at = head.lastIndexOf(this.#endText);
      const whole = this.template.render([...before, ...messages], { generationPrompt: true });
      // What the policy emitted ends with the end-of-turn token; a line feed after it, say, belongs to the suffix.
      const cut = at + this.#endText.length;
      if (at < 0 || !whole.startsWith(head.slice(0, cut))) {
        throw new ActorsError(
          'SINKFLEX_CHAT_TEMPLATE',
          `the chat template does not close an assistant's turn with ${this.#endText}, or changes earlier turns`,
        );
      }
      return this.tokenizer.encode(whole.slice(open ? at : cut));
    });
  }

  /** What a turn says, without its end-of-turn token. */
  text(turn: ArrayLike<number>): string {
    const ids = Array.from(turn);
    if (ids.at(-1) === this.endOfTurn) ids.pop();
    return this.tokenizer.decode(ids);
  }

  /** The action of a turn. Shared: do not write into the result. */
  parse(turn: ArrayLike<number>): Action {
    const key = Array.prototype.join.call(turn, ' ');
    return this.#turns.get(key, () => this.#parse(this.text(turn)));
  }

  /** The ids of a turn that says `text`, as the policy would emit them. */
  turn(text: string): Int32Array {
    return this.tokenizer.encode(text + this.#endText);
  }
}

function keyOf(messages: readonly Message[]): string {
  let key = '';
  for (const m of messages) {
    key += `${m.role}\u0000${m.name ?? ''}\u0000${m.content}\u0000`;
    if (m.toolCalls?.length) key += JSON.stringify(m.toolCalls);
  }
  return key;
}
