/** Requests to answers: prompts, the choices of a request drawn side by side, and the objects that OpenAI's clients read. */
import { nanoid } from 'nanoid';
import { ActorsError } from '../errors.ts';
import { parseToolCalls } from '../language/index.ts';
import { type ChatRequest, type CompletionRequest, samplingOf, templateMessages } from './requests.ts';
import type { Answer, Piece, ServedModel } from './served-model.ts';

type Json = Record<string, unknown>;

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
}

/** One request under way: its prompts (chats have one), how many choices each, and what every object of its answer begins with. */
export class Completion {
  readonly model: ServedModel;
  readonly request: ChatRequest | CompletionRequest;
  readonly prompts: readonly Int32Array[];
  readonly id: string;
  readonly created: number;
  readonly #seed: number;
  #usage: Usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0, prompt_tokens_details: { cached_tokens: 0 } };

  /** `seed`: where the request names none. `now`: milliseconds since 1970. */
  constructor(model: ServedModel, request: ChatRequest | CompletionRequest, o: { seed: number; now: number }) {
    this.model = model;
    this.request = request;
    if (request.model !== undefined && request.model !== model.name)
      throw new ActorsError('SINKFLEX_REQUEST_INVALID', `the model ${JSON.stringify(request.model)} is not served here; ${model.name} is`, {
        details: { param: 'model', code: 'model_not_found' },
      });
    this.prompts = 'messages' in request ? [chatPrompt(model, request)] : completionPrompts(model, request.prompt);
    this.id = `${this.chat ? 'chatcmpl' : 'cmpl'}-${nanoid()}`;
    this.created = Math.floor(o.now / 1000);
    this.#seed = o.seed;
  }

  get chat(): boolean {
    return 'messages' in this.request;
  }

  get choices(): number {
    return this.prompts.length * (this.request.n ?? 1);
  }

  get usage(): Usage {
    return this.#usage;
  }

  /** Draws every choice, all at once; `onPiece` hears each as it comes. The first failure ends the others. */
  async run(signal: AbortSignal, onPiece: (choice: number, piece: Piece) => void = () => {}): Promise<Answer[]> {
    const { seed, ...sampling } = samplingOf(this.request, this.model.defaults, this.#seed);
    const each = this.request.n ?? 1;
    const failed = new AbortController();
    const either = AbortSignal.any([signal, failed.signal]);
    const answers = this.prompts.flatMap((prompt, p) =>
      Array.from({ length: each }, (_, i) =>
        this.model.answer(
          prompt,
          { ...sampling, key: [seed, p, i, 0] },
          { signal: either, onPiece: (piece) => onPiece(p * each + i, piece) },
        ),
      ),
    );
    let first: { error: unknown } | undefined;
    await Promise.all(
      answers.map((answer) =>
        answer.catch((error) => {
          first ??= { error };
          failed.abort();
        }),
      ),
    );
    if (first !== undefined) throw first.error;
    const all = await Promise.all(answers);
    const prompt_tokens = this.prompts.reduce((sum, prompt) => sum + prompt.length, 0);
    const completion_tokens = all.reduce((sum, answer) => sum + answer.tokens.length, 0);
    const cached_tokens = all.reduce((sum, answer) => sum + answer.cachedTokens, 0);
    this.#usage = {
      prompt_tokens,
      completion_tokens,
      total_tokens: prompt_tokens + completion_tokens,
      prompt_tokens_details: { cached_tokens },
    };
    return all;
  }

  envelope(kind: '' | '.chunk'): Json {
    const object = this.chat ? `chat.completion${kind}` : 'text_completion';
    return { id: this.id, object, created: this.created, model: this.model.name };
  }

  /** The answer of a request that does not stream. */
  whole(answers: readonly Answer[]): Json {
    const ids = this.request.return_token_ids === true;
    const choices = answers.map((answer, index) => ({
      index,
      ...(this.chat ? this.#chatChoice(answer) : { text: answer.text, logprobs: this.#textLogprobs(answer), finish_reason: answer.finish }),
      ...(ids ? { token_ids: [...answer.tokens], versions: [...answer.versions] } : {}),
      ...(ids && !this.chat ? { prompt_token_ids: [...this.prompts[Math.floor(index / (this.request.n ?? 1))]!] } : {}),
    }));
    return { ...this.envelope(''), choices, usage: this.usage, ...(ids && this.chat ? { prompt_token_ids: [...this.prompts[0]!] } : {}) };
  }

  #chatChoice(answer: Answer): Json {
    const request = this.request as ChatRequest;
    const { text, toolCalls } = this.toolCalls(answer.text);
    return {
      message: {
        role: 'assistant',
        content: text === '' && toolCalls.length > 0 ? null : text,
        refusal: null,
        ...(toolCalls.length > 0 ? { tool_calls: toolCalls } : {}),
      },
      logprobs: request.logprobs ? { content: this.logprobs(answer.tokens, answer.logprobs), refusal: null } : null,
      finish_reason: toolCalls.length > 0 ? 'tool_calls' : answer.finish,
    };
  }

  /** Calls in a chat's answer, if the request has tools. */
  toolCalls(text: string): { text: string; toolCalls: Json[] } {
    const request = this.request as ChatRequest;
    if (!request.tools?.length || request.tool_choice === 'none') return { text, toolCalls: [] };
    const parsed = parseToolCalls(this.model.toolCallFormat, text);
    const toolCalls = parsed.toolCalls.map((call, index) => ({
      index,
      id: `call_${nanoid()}`,
      type: 'function',
      function: { name: call.name, arguments: JSON.stringify(call.arguments) },
    }));
    return { text: parsed.text, toolCalls };
  }

  logprobs(tokens: ArrayLike<number>, logprobs: ArrayLike<number>): Json[] {
    return Array.from(tokens, (token, i) => {
      const text = this.model.tokenizer.decode([token]);
      return { token: text, logprob: logprobs[i], bytes: [...Buffer.from(text)], top_logprobs: [] };
    });
  }

  #textLogprobs(answer: Answer): Json | null {
    if ((this.request as CompletionRequest).logprobs == null) return null;
    const tokens = Array.from(answer.tokens, (token) => this.model.tokenizer.decode([token]));
    let at = 0;
    const text_offset = tokens.map((token) => {
      at += token.length;
      return at - token.length;
    });
    return { tokens, token_logprobs: [...answer.logprobs], top_logprobs: null, text_offset };
  }
}

function chatPrompt(model: ServedModel, request: ChatRequest): Int32Array {
  if (model.template === undefined)
    throw new ActorsError('SINKFLEX_REQUEST_INVALID', `${model.name} has no chat template: use /v1/completions`, {
      details: { param: 'messages' },
    });
  const tools = request.tool_choice === 'none' || !request.tools?.length ? undefined : request.tools;
  const prompt = model.template.renderRaw(templateMessages(request.messages), {
    generationPrompt: true,
    ...(tools === undefined ? {} : { tools }),
    ...(request.chat_template_kwargs == null ? {} : { variables: request.chat_template_kwargs }),
  });
  return model.tokenizer.encode(prompt);
}

function completionPrompts(model: ServedModel, prompt: CompletionRequest['prompt']): Int32Array[] {
  if (typeof prompt === 'string') return [model.tokenizer.encode(prompt)];
  if (typeof prompt[0] === 'number') return [Int32Array.from(prompt as number[])];
  return (prompt as (string | number[])[]).map((each) => (typeof each === 'string' ? model.tokenizer.encode(each) : Int32Array.from(each)));
}
