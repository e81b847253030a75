/** Answers as server-sent events: one chunk a piece of text, tool calls when they are whole, `[DONE]` at the end. */
import type { TurnReader } from '../language/index.ts';
import type { Completion } from './completions.ts';
import type { Answer, Piece } from './served-model.ts';

type Json = Record<string, unknown>;

/** Draws the answer and hands `send` every object of the stream. Resolves when all is drawn. */
export async function streamCompletion(completion: Completion, signal: AbortSignal, send: (chunk: Json) => void): Promise<void> {
  const { request, chat } = completion;
  const readers = Array.from({ length: completion.choices }, () => (chat ? completion.reader() : undefined));
  const characters = new Array<number>(completion.choices).fill(0);
  const envelope = completion.envelope('.chunk');
  const chunk = (choice: Json, more: Json = {}): void => send({ ...envelope, choices: [choice], ...more });
  const ids = request.return_token_ids === true;
  for (let index = 0; index < completion.choices; index++) {
    const prompt = ids ? { prompt_token_ids: [...completion.promptOf(index)] } : {};
    if (chat) chunk({ index, delta: { role: 'assistant', content: '' }, finish_reason: null }, prompt);
    else if (ids) chunk({ index, text: '', logprobs: null, finish_reason: null, ...prompt });
  }

  const onPiece = (index: number, piece: Piece): void => {
    const { text, token, logprob } = piece;
    const drawn = { ...piece, tokens: [token], logprobs: [logprob] };
    const own = ids && token >= 0 ? { token_ids: [token] } : {};
    const wanted = token >= 0 && request.logprobs != null && request.logprobs !== false;
    if (chat) {
      const { content, reasoning } = readers[index]!.push(text);
      if (content === '' && reasoning === '' && !wanted && !('token_ids' in own)) return;
      const logprobs = wanted ? { content: completion.logprobs(drawn), refusal: null } : null;
      chunk({ index, delta: { content, ...thought(reasoning) }, logprobs, finish_reason: null, ...own });
      return;
    }
    if (text === '' && !wanted && !('token_ids' in own)) return;
    chunk({ index, text, logprobs: wanted ? completion.textLogprobs(drawn, characters[index]) : null, finish_reason: null, ...own });
    if (wanted) characters[index]! += completion.model.tokenizer.decode([token]).length;
  };
  const answers = await completion.run(signal, onPiece);
  for (const [index, answer] of answers.entries()) finish(completion, index, answer, readers[index], chunk);
  if (request.stream_options?.include_usage) send({ ...envelope, choices: [], usage: completion.usage });
}

const thought = (reasoning: string): Json => (reasoning === '' ? {} : { reasoning, reasoning_content: reasoning });

function finish(
  completion: Completion,
  index: number,
  answer: Answer,
  reader: TurnReader | undefined,
  chunk: (choice: Json) => void,
): void {
  if (reader === undefined) {
    chunk({ index, text: '', logprobs: null, finish_reason: answer.finish });
    return;
  }
  const { content, reasoning, turn } = reader.end();
  const { toolCalls } = completion.turn(turn);
  if (content !== '' || reasoning !== '') chunk({ index, delta: { content, ...thought(reasoning) }, finish_reason: null });
  if (toolCalls.length > 0) chunk({ index, delta: { tool_calls: toolCalls }, finish_reason: null });
  chunk({ index, delta: {}, finish_reason: toolCalls.length > 0 ? 'tool_calls' : answer.finish });
}
