/**
 * One question to an OpenAI-compatible chat endpoint, asked again where that may help: after errors of the network or the server, and answers
 * that cannot be used. What an error means is the caller's business.
 */
import { setTimeout as after } from 'node:timers/promises';
import { z } from 'zod';

const Reply = z.object({
  choices: z
    .array(
      z.object({
        message: z.object({
          content: z.string().nullish(),
          tool_calls: z
            .array(z.object({ id: z.string().optional(), function: z.object({ name: z.string(), arguments: z.string() }) }))
            .nullish(),
        }),
      }),
    )
    .min(1),
});

/** What a chat endpoint has said. */
export type EndpointMessage = z.infer<typeof Reply>['choices'][0]['message'];

/** Throws where the answer has none. */
export const messageOf = (answer: unknown): EndpointMessage => Reply.parse(answer).choices[0]!.message;

export interface EndpointOptions {
  /** Such as http://127.0.0.1:8000/v1. */
  baseUrl: string;
  /** Name of the environment variable with the key; none is sent without it. */
  apiKeyEnv?: string | undefined;
  /** Tries after the first. */
  retries: number;
  /** Before the first retry, milliseconds; doubled each time. */
  backoffMs: number;
  /** Of one request, milliseconds; without it `signal` alone ends one. */
  timeoutMs?: number;
  fetch?: typeof fetch;
}

/** No try brought an answer; the message says what the last one met. */
export class EndpointFailure extends Error {}

/**
 * `read` makes something of an answer's JSON; what it throws is worth another try. `before` is called ahead of each request, and what that
 * throws ends the asking. Rejects with EndpointFailure, or with the reason of `signal`.
 */
export async function askEndpoint<T>(
  o: EndpointOptions,
  body: Record<string, unknown>,
  read: (answer: unknown) => T,
  signal: AbortSignal,
  before: () => void = () => {},
): Promise<T> {
  const key = o.apiKeyEnv === undefined ? undefined : process.env[o.apiKeyEnv];
  const headers = { 'content-type': 'application/json', ...(key === undefined ? {} : { authorization: `Bearer ${key}` }) };
  let why = '';
  for (let attempt = 0; attempt <= o.retries; attempt++) {
    if (attempt > 0) await after(o.backoffMs * 2 ** (attempt - 1), undefined, { signal });
    before();
    try {
      const response = await (o.fetch ?? fetch)(`${o.baseUrl.replace(/\/$/, '')}/chat/completions`, {
        method: 'POST',
        headers,
        body: JSON.stringify(body),
        signal: o.timeoutMs === undefined ? signal : AbortSignal.any([signal, AbortSignal.timeout(o.timeoutMs)]),
      });
      if (response.ok) return read(await response.json());
      await response.body?.cancel();
      why = `HTTP ${response.status}`;
      // What is wrong with the request stays wrong.
      if (response.status < 500 && response.status !== 429 && response.status !== 408) break;
    } catch (cause) {
      if (signal.aborted) throw cause;
      why = cause instanceof Error ? cause.message : String(cause);
    }
  }
  throw new EndpointFailure(why);
}
