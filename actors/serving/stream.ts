/** Answers as server-sent events: one chunk a piece of text, tool calls when they are whole, `[DONE]` at the end. */
import { TOOL_CALL_OPEN, unfinishedMarker } from '../language/index.ts';
import type { Completion } from './completions.ts';
import type { Answer, Piece } from './served-model.ts';

type Json = Record<string, unknown>;

/** What of a chat's text may be shown before it is known whether a tool call begins. */
class Shown {
  #text = '';
  #shown = 0;

  /** Answers what is new and cannot belong to a call. */
  push(text: string): string {
    this.#text += text;
    // What is shown holds no beginning of a call, so it need not be searched again.
    const open = this.#text.indexOf(TOOL_CALL_OPEN, this.#shown);
    return this.#take(open < 0 ? this.#text.length - unfinishedMarker(this.#text, [TOOL_CALL_OPEN]) : open);
  }

  /** What was held back for a call that never came. */
  rest(): string {
    return this.#text.includes(TOOL_CALL_OPEN, this.#shown) ? '' : this.#take(this.#text.length);
  }

  #take(end: number): string {
    const fresh = this.#text.slice(this.#shown, Math.max(this.#shown, end));
    this.#shown = Math.max(this.#shown, end);
    return fresh;
  }
}

/** Draws the answer and hands `send` every object of the stream. Resolves when all is drawn. */
export async function streamCompletion(completion: Completion, signal: AbortSignal, send: (chunk: Json) => void): Promise<void> {
  const { request, chat } = completion;
  const withTools = chat && completion.model.toolCallFormat !== 'none' && 'tools' in request && (request.tools?.length ?? 0) > 0;
  const shown = Array.from({ length: completion.choices }, () => new Shown());
  const envelope = completion.envelope('.chunk');
  const chunk = (choice: Json): void => send({ ...envelope, choices: [choice] });
  if (chat)
    for (let index = 0; index < completion.choices; index++)
      chunk({ index, delta: { role: 'assistant', content: '' }, finish_reason: null });

  const onPiece = (index: number, { text, token, logprob }: Piece): void => {
    const visible = withTools ? shown[index]!.push(text) : text;
    const ids = request.return_token_ids && token >= 0 ? { token_ids: [token] } : {};
    const wanted = token >= 0 && request.logprobs != null && request.logprobs !== false;
    if (visible === '' && !wanted && !('token_ids' in ids)) return;
    if (chat) {
      const logprobs = wanted ? { content: completion.logprobs([token], [logprob]), refusal: null } : null;
      chunk({ index, delta: { content: visible }, logprobs, finish_reason: null, ...ids });
    } else {
      const logprobs = wanted
        ? { tokens: [completion.model.tokenizer.decode([token])], token_logprobs: [logprob], top_logprobs: null, text_offset: [] }
        : null;
      chunk({ index, text: visible, logprobs, finish_reason: null, ...ids });
    }
  };
  const answers = await completion.run(signal, onPiece);
  for (const [index, answer] of answers.entries()) finish(completion, index, answer, withTools ? shown[index] : undefined, chunk);
  if (request.stream_options?.include_usage) send({ ...envelope, choices: [], usage: completion.usage });
}

function finish(completion: Completion, index: number, answer: Answer, shown: Shown | undefined, chunk: (choice: Json) => void): void {
  if (!completion.chat) {
    chunk({ index, text: '', logprobs: null, finish_reason: answer.finish });
    return;
  }
  const { toolCalls } = completion.toolCalls(answer.text);
  const rest = shown?.rest() ?? '';
  if (rest !== '') chunk({ index, delta: { content: rest }, finish_reason: null });
  if (toolCalls.length > 0) chunk({ index, delta: { tool_calls: toolCalls }, finish_reason: null });
  chunk({ index, delta: {}, finish_reason: toolCalls.length > 0 ? 'tool_calls' : answer.finish });
}
