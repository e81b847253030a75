/**
 * Requests of OpenAI's API as this server takes them: what is known is checked, what would change the answer and is not supported is
 * refused by name, anything else is ignored as OpenAI's own servers do. Token ids go in and out as with vLLM.
 */
import { z } from 'zod';
import { ActorsError } from '../errors.ts';
import type { GenerationDefaults, Sampling } from './served-model.ts';

const count = z.int().min(1);

const sampling = {
  model: z.string().optional(),
  max_tokens: count.nullish(),
  temperature: z.number().min(0).max(100).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  /** vLLM. 0 or -1: all. */
  top_k: z.int().min(-1).nullish(),
  /** vLLM. */
  min_p: z.number().min(0).max(1).nullish(),
  min_tokens: z.int().min(0).nullish(),
  stop_token_ids: z.array(z.int().min(0)).max(64).nullish(),
  repetition_penalty: z.number().gt(0).max(1000).nullish(),
  /** vLLM: tokens of log-probabilities are written `token_id:7`, so that every one is told from every other. */
  return_tokens_as_token_ids: z.boolean().nullish(),
  stop: z.union([z.string(), z.array(z.string()).max(16)]).nullish(),
  seed: z.int().nullish(),
  n: z.int().min(1).max(128).nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.object({ include_usage: z.boolean().nullish() }).nullish(),
  /** vLLM. */
  ignore_eos: z.boolean().nullish(),
  /** vLLM: `token_ids` in each choice and `prompt_token_ids`. Here also `versions`, of the weights that drew each token. */
  return_token_ids: z.boolean().nullish(),
  presence_penalty: z.number().min(-2).max(2).nullish(),
  frequency_penalty: z.number().min(-2).max(2).nullish(),
  logit_bias: z.record(z.string().regex(/^\d+$/, 'keys must be token ids'), z.number().min(-100).max(100)).nullish(),
};

const text = z.union([z.string(), z.array(z.object({ type: z.literal('text', 'only text parts are supported'), text: z.string() }))]);

const toolCall = z.object({
  id: z.string().optional(),
  type: z.literal('function').optional(),
  function: z.object({ name: z.string(), arguments: z.string() }),
});

const message = z.object({
  role: z.enum(['system', 'developer', 'user', 'assistant', 'tool']),
  content: text.nullish(),
  name: z.string().optional(),
  /** What the assistant thought: vLLM's names. */
  reasoning: z.string().nullish(),
  reasoning_content: z.string().nullish(),
  tool_calls: z.array(toolCall).nullish(),
  tool_call_id: z.string().optional(),
});

export const chatRequest = z.object({
  ...sampling,
  messages: z.array(message).min(1),
  max_completion_tokens: count.nullish(),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.int().min(0).max(20).nullish(),
  tools: z.array(z.object({ type: z.literal('function'), function: z.looseObject({ name: z.string() }) })).nullish(),
  tool_choice: z.enum(['auto', 'none'], 'only auto and none are supported').nullish(),
  response_format: z.object({ type: z.literal('text', 'only text is supported') }).nullish(),
  /** vLLM: variables of the chat template, such as { enable_thinking: false }. */
  chat_template_kwargs: z.record(z.string(), z.unknown()).nullish(),
});

const ids = z.array(z.int().min(0)).min(1);

export const completionRequest = z.object({
  ...sampling,
  prompt: z.union([z.string(), ids, z.array(z.string()).min(1), z.array(ids).min(1)]),
  echo: z.literal(false, 'echo is not supported').nullish(),
  suffix: z.literal('', 'suffix is not supported').nullish(),
  best_of: z.literal(1, 'best_of is not supported').nullish(),
  logprobs: z.int().min(0).max(20).nullish(),
});

export type ChatRequest = z.infer<typeof chatRequest>;
export type CompletionRequest = z.infer<typeof completionRequest>;

/** Throws SINKFLEX_REQUEST_INVALID that names the field. */
export function parseRequest<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body ?? {});
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  const param = issue.path.join('.');
  throw new ActorsError('SINKFLEX_REQUEST_INVALID', `${param === '' ? 'the request' : param}: ${issue.message}`, { details: { param } });
}

/** What a request asks of the sampler; `seed`: of requests that name none. */
export function samplingOf(
  request: ChatRequest | CompletionRequest,
  defaults: GenerationDefaults,
  seed: number,
): Omit<Sampling, 'key'> & { seed: number } {
  const most = 'messages' in request ? (request.max_completion_tokens ?? request.max_tokens ?? 2 ** 30) : (request.max_tokens ?? 16);
  const topK = request.top_k ?? defaults.topK;
  const chat = 'messages' in request;
  const alternatives = chat ? (request.logprobs ? (request.top_logprobs ?? 0) : 0) : (request.logprobs ?? 0);
  if (chat && request.top_logprobs && !request.logprobs)
    throw new ActorsError('SINKFLEX_REQUEST_INVALID', 'top_logprobs: needs logprobs', { details: { param: 'top_logprobs' } });
  return {
    maxNewTokens: most,
    temperature: request.temperature ?? defaults.temperature,
    topP: request.top_p ?? defaults.topP,
    topK: Math.max(topK, 0),
    minP: request.min_p ?? defaults.minP,
    minTokens: request.min_tokens ?? 0,
    stopTokens: request.stop_token_ids ?? [],
    presencePenalty: request.presence_penalty ?? 0,
    frequencyPenalty: request.frequency_penalty ?? 0,
    repetitionPenalty: request.repetition_penalty ?? defaults.repetitionPenalty,
    topLogprobs: alternatives,
    ...(request.logit_bias == null
      ? {}
      : { logitBias: new Map(Object.entries(request.logit_bias).map(([id, bias]) => [Number(id), bias])) }),
    stop: request.stop == null ? [] : typeof request.stop === 'string' ? [request.stop] : request.stop,
    ignoreEos: request.ignore_eos ?? false,
    seed: (request.seed ?? seed) >>> 0,
  };
}

/** Messages as chat templates know them: content as one string, arguments of calls as objects. */
export function templateMessages(messages: ChatRequest['messages']): Record<string, unknown>[] {
  return messages.map(({ role, content, tool_calls: calls, reasoning, reasoning_content: thought, ...rest }, i) => ({
    ...rest,
    // Templates have different names for it.
    ...((reasoning ?? thought) ? { thinking: reasoning ?? thought, reasoning_content: reasoning ?? thought } : {}),
    role: role === 'developer' ? 'system' : role,
    content: content == null ? '' : typeof content === 'string' ? content : content.map((part) => part.text).join(''),
    ...(calls?.length
      ? { tool_calls: calls.map((call, j) => ({ ...call, type: 'function', function: withArguments(call.function, i, j) })) }
      : {}),
  }));
}

function withArguments(call: { name: string; arguments: string }, message: number, index: number): { name: string; arguments: unknown } {
  try {
    return { name: call.name, arguments: JSON.parse(call.arguments === '' ? '{}' : call.arguments) as unknown };
  } catch (cause) {
    const param = `messages.${message}.tool_calls.${index}.function.arguments`;
    throw new ActorsError('SINKFLEX_REQUEST_INVALID', `${param}: no JSON (${(cause as Error).message})`, { details: { param } });
  }
}
