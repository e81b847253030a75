/** The token ledger of one episode: prompt, turns of the policy, observations, in order; and the same for an episode written as messages. */
import type { Action, Message, ToolSchema } from '../environment/types.ts';
import { ActorsError } from '../errors.ts';
import type { Chat, EpisodeIds } from './chat.ts';

/**
 * Call `start` once, then `produced` and `observe` in turn. What `start` and `observe` return is what the engine must append to the
 * sequence's cache before it generates.
 *
 * @example
 * const c = new Conversation(chat);
 * let tokens = c.start(observation);
 * const action = c.produced((await engine.generate(s, { tokens, ... })).tokens);
 * tokens = c.observe((await environment.step(action)).observation);
 */
export class Conversation {
  readonly chat: Chat;
  readonly messages: Message[] = [];
  readonly #ids: number[] = [];
  readonly #mask: number[] = [];
  #expects: 'start' | 'turn' | 'observation' = 'start';

  constructor(chat: Chat) {
    this.chat = chat;
  }

  start(messages: readonly Message[], tools?: readonly ToolSchema[]): Int32Array {
    this.#expect('start', 'start');
    const ids = this.chat.prompt(messages, tools);
    this.messages.push(...messages);
    this.#append(ids, 0);
    this.#expects = 'turn';
    return ids;
  }

  /** Enters a turn of the policy, its ids exactly as the engine gave them, and reads it. */
  produced(ids: ArrayLike<number>): Action {
    this.#expect('turn', 'produced');
    this.#append(ids, 1);
    const action = this.chat.parse(ids);
    this.messages.push({ role: 'assistant', content: action.text, ...(action.toolCalls.length ? { toolCalls: action.toolCalls } : {}) });
    this.#expects = 'observation';
    return action;
  }

  /** Enters what the environment answered. After the last turn of an episode there is nothing to answer to: do not call it. */
  observe(messages: readonly Message[]): Int32Array {
    this.#expect('observation', 'observe');
    const ids = this.chat.delta(messages, !this.chat.stopIds.includes(this.#ids.at(-1)!));
    this.messages.push(...messages);
    this.#append(ids, 0);
    this.#expects = 'turn';
    return ids;
  }

  get length(): number {
    return this.#ids.length;
  }

  /** A copy of the ledger so far. */
  ids(): EpisodeIds {
    return { ids: Int32Array.from(this.#ids), mask: Uint8Array.from(this.#mask) };
  }

  #append(ids: ArrayLike<number>, mask: 0 | 1): void {
    for (let i = 0; i < ids.length; i++) {
      this.#ids.push(ids[i]!);
      this.#mask.push(mask);
    }
  }

  #expect(state: 'start' | 'turn' | 'observation', method: string): void {
    if (this.#expects !== state) {
      throw new ActorsError('SINKFLEX_CONVERSATION', `conversation: ${method} came where ${this.#expects} was due`, {
        details: { expected: this.#expects, called: method },
      });
    }
  }
}

/**
 * A written episode as ids and mask, token for token what a rollout's ledger would hold. Messages after the last turn of the assistant are
 * left out: nobody answers them.
 */
export function episodeIds(chat: Chat, messages: readonly Message[]): EpisodeIds {
  const turns = messages.flatMap((m, i) => (m.role === 'assistant' ? [i] : []));
  if (turns.length === 0) throw new ActorsError('SINKFLEX_CONVERSATION', 'an episode needs a turn of the assistant');
  const conversation = new Conversation(chat);
  let from = 0;
  for (const at of turns) {
    const between = messages.slice(from, at);
    if (from === 0) conversation.start(between);
    else conversation.observe(between);
    conversation.produced(chat.turn(messages[at]!.content));
    from = at + 1;
  }
  return conversation.ids();
}
