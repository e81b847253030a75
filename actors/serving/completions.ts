/** Requests to answers: prompts, the choices of a request drawn side by side, and the objects that OpenAI's clients read. */
import { nanoid } from 'nanoid';
import { ActorsError } from '../errors.ts';
import { type ParsedTurn, turnReader } from '../language/index.ts';
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
  /** Hears that the first token of any choice was drawn. */
  onFirstToken?: () => void;
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

  /** The prompt of a choice. */
  promptOf(choice: number): Int32Array {
    return this.prompts[Math.floor(choice / (this.request.n ?? 1))]!;
  }

  get usage(): Usage {
    return this.#usage;
  }

  /** Draws every choice, all at once; `onPiece` hears each as it comes. The first failure ends the others. */
  async run(signal: AbortSignal, onPiece: (choice: number, piece: Piece) => void = () => {}): Promise<Answer[]> {
    let first = true;
    const hear = (choice: number, piece: Piece): void => {
      if (first) this.onFirstToken?.();
      first = false;
      onPiece(choice, piece);
    };
    const { seed, ...sampling } = samplingOf(this.request, this.model.defaults, this.#seed);
    const each = this.request.n ?? 1;
    const failed = new AbortController();
    const either = AbortSignal.any([signal, failed.signal]);
    const answers = this.prompts.flatMap((prompt, p) =>
      Array.from({ length: each }, (_, i) =>
        this.model.answer(
          prompt,
          { ...sampling, key: [seed, p, i, 0] },
          { signal: either, specials: this.chat && this.model.chatSpecials, onPiece: (piece) => hear(p * each + i, piece) },
        ),
      ),
    );
    let failure: { error: unknown } | undefined;
    await Promise.all(
      answers.map((answer) =>
        answer.catch((error) => {
          failure ??= { error };
          failed.abort();
        }),
      ),
    );
    if (failure !== undefined) throw failure.error;
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
      ...(this.chat ? this.#chatChoice(answer) : { text: answer.text, logprobs: this.textLogprobs(answer), finish_reason: answer.finish }),
      ...(ids ? { token_ids: [...answer.tokens], versions: [...answer.versions] } : {}),
      ...(ids && !this.chat ? { prompt_token_ids: [...this.promptOf(index)] } : {}),
    }));
    return { ...this.envelope(''), choices, usage: this.usage, ...(ids && this.chat ? { prompt_token_ids: [...this.prompts[0]!] } : {}) };
  }

  #chatChoice(answer: Answer): Json {
    const request = this.request as ChatRequest;
    const reader = this.reader();
    reader.push(answer.text);
    const { text, reasoning, toolCalls } = this.turn(reader.end().turn);
    return {
      message: {
        role: 'assistant',
        content: text === '' && toolCalls.length > 0 ? null : text,
        refusal: null,
        ...(reasoning === undefined ? {} : { reasoning, reasoning_content: reasoning }),
        ...(toolCalls.length > 0 ? { tool_calls: toolCalls } : {}),
      },
      logprobs: request.logprobs ? { content: this.logprobs(answer), refusal: null } : null,
      finish_reason: toolCalls.length > 0 ? 'tool_calls' : answer.finish,
    };
  }

  get #withTools(): boolean {
    const request = this.request as ChatRequest;
    return (request.tools?.length ?? 0) > 0 && request.tool_choice !== 'none';
  }

  /** Reads one chat's text. */
  reader(): ReturnType<typeof turnReader> {
    return turnReader(this.model.turnFormat, { tools: this.#withTools });
  }

  /** A turn as OpenAI's clients read it; calls only if the request has tools. */
  turn(turn: ParsedTurn): { text: string; reasoning: string | undefined; toolCalls: Json[] } {
    const toolCalls = (this.#withTools ? turn.toolCalls : []).map((call, index) => ({
      index,
      id: `call_${nanoid()}`,
      type: 'function',
      function: { name: call.name, arguments: call.argumentsText ?? JSON.stringify(call.arguments) },
    }));
    return { text: turn.text, reasoning: turn.reasoning, toolCalls };
  }

  /** A token as log-probabilities name it. */
  tokenText(token: number): string {
    return this.request.return_tokens_as_token_ids ? `token_id:${token}` : this.model.tokenizer.decode([token]);
  }

  /** Chats: each token with its alternatives. */
  logprobs(drawn: Drawn): Json[] {
    const each = drawn.topTokens === undefined ? 0 : alternativesOf(this.request);
    const named = (token: number, logprob: number): Json => ({
      token: this.tokenText(token),
      logprob,
      bytes: [...this.model.bytesOf(token)],
    });
    return Array.from(drawn.tokens, (token, i) => ({
      ...named(token, drawn.logprobs[i]!),
      top_logprobs: Array.from({ length: each }, (_, j) => named(drawn.topTokens![i * each + j]!, drawn.topLogprobs![i * each + j]!)),
    }));
  }

  /** Completions: lists side by side; `offset`: characters before the first token. */
  textLogprobs(drawn: Drawn, offset = 0): Json | null {
    if ((this.request as CompletionRequest).logprobs == null) return null;
    const each = drawn.topTokens === undefined ? 0 : alternativesOf(this.request);
    let at = offset;
    const text_offset = Array.from(drawn.tokens, (token) => {
      const before = at;
      at += this.model.tokenizer.decode([token]).length;
      return before;
    });
    const top = Array.from(drawn.tokens, (token, i) =>
      Object.fromEntries([
        ...Array.from({ length: each }, (_, j) => [this.tokenText(drawn.topTokens![i * each + j]!), drawn.topLogprobs![i * each + j]!]),
        [this.tokenText(token), drawn.logprobs[i]!],
      ]),
    );
    return {
      tokens: Array.from(drawn.tokens, (token) => this.tokenText(token)),
      token_logprobs: [...drawn.logprobs],
      top_logprobs: each > 0 ? top : null,
      text_offset,
    };
  }
}

/** Tokens with what is known of them: an answer, or a piece of one. */
export interface Drawn {
  tokens: ArrayLike<number> & Iterable<number>;
  logprobs: ArrayLike<number> & Iterable<number>;
  topTokens?: ArrayLike<number>;
  topLogprobs?: ArrayLike<number>;
}

function alternativesOf(request: ChatRequest | CompletionRequest): number {
  return 'messages' in request ? (request.top_logprobs ?? 0) : (request.logprobs ?? 0);
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
