/**
 * An OpenAI-compatible endpoint over one model: /v1/chat/completions, /v1/completions, /v1/models, /metrics behind a bearer key; /livez,
 * /readyz and /health open and without a body. A caller that goes away frees its sequences.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { isSinkflexError } from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';
import { Completion } from './completions.ts';
import { ServingMetrics } from './metrics.ts';
import { type ChatRequest, type CompletionRequest, chatRequest, completionRequest, parseRequest } from './requests.ts';
import type { ServedModel } from './served-model.ts';
import { streamCompletion } from './stream.ts';

export interface ServerOptions {
  model: ServedModel;
  /** What callers must present as `Authorization: Bearer ...`. */
  apiKey: string;
  /** PEM of certificate and key; without them it speaks plain HTTP, which is for loopback only. */
  tls?: { cert: Buffer; key: Buffer };
  /** Seeds of requests that name none: each takes the next. */
  nextSeed: () => number;
  /** Milliseconds since 1970. */
  now?: () => number;
  /** Once aborted, new questions are refused (503) and /readyz says so; what is under way is answered. */
  draining?: AbortSignal;
}

/** A fastify instance that does not listen yet: `await app.listen({ host, port })`. */
export type ModelServer = FastifyInstance & {
  /** Resolves when no answer is under way. */
  idle(): Promise<void>;
};

const OPEN_ROUTES = new Set(['/livez', '/readyz', '/health']);
const MAX_BODY_BYTES = 16 * 2 ** 20;

export function createServer(o: ServerOptions): ModelServer {
  const { model, now = Date.now } = o;
  const metrics = new ServingMetrics(model);
  let underWay = 0;
  const waiting: (() => void)[] = [];
  const app = fastify({
    bodyLimit: MAX_BODY_BYTES,
    logger: false,
    forceCloseConnections: true,
    ...(o.tls ? { https: o.tls } : {}),
  }) as unknown as FastifyInstance;
  // Digests have one length, so that the comparison takes one time.
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  const expected = digest(`Bearer ${o.apiKey}`);

  app.addHook('onRequest', async (request, reply) => {
    if (OPEN_ROUTES.has(request.routeOptions.url ?? '')) return;
    if (!timingSafeEqual(digest(request.headers.authorization ?? ''), expected))
      await reply.code(401).send(failure('the API key is missing or wrong', 'authentication_error', { code: 'invalid_api_key' }));
  });
  app.setNotFoundHandler(async (request, reply) => {
    await reply.code(404).send(failure(`there is no ${request.method} ${request.url} here`, 'invalid_request_error'));
  });
  app.setErrorHandler(async (error, _request, reply) => {
    const { status, body } = explain(error);
    await reply.code(status).send(body);
  });
  for (const url of OPEN_ROUTES)
    app.get(url, async (_request, reply) => reply.code(o.draining?.aborted && url === '/readyz' ? 503 : 200).send());

  const created = Math.floor(now() / 1000);
  const card = { id: model.name, object: 'model', created, owned_by: 'sinkflex', max_model_len: model.maxLength };
  app.get('/v1/models', async () => ({ object: 'list', data: [card] }));
  app.get<{ Params: { id: string } }>('/v1/models/:id', async (request, reply) =>
    request.params.id === model.name
      ? card
      : reply
          .code(404)
          .send(failure(`the model ${request.params.id} is not served here`, 'invalid_request_error', { code: 'model_not_found' })),
  );
  app.get('/metrics', async (_request, reply) => {
    const text = await metrics.registry.metrics();
    return reply.type(metrics.registry.contentType).send(text);
  });

  const answer = async (
    endpoint: string,
    body: ChatRequest | CompletionRequest,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<unknown> => {
    if (o.draining?.aborted) throw new ActorsError('SINKFLEX_SERVER_BUSY', 'the server is shutting down: ask another, or again later');
    const start = performance.now();
    underWay++;
    reply.raw.once('close', () => {
      if (--underWay === 0) for (const resolve of waiting.splice(0)) resolve();
    });
    const gone = new AbortController();
    reply.raw.once('close', () => gone.abort());
    let status = 200;
    try {
      const completion = new Completion(model, body, { seed: o.nextSeed(), now: now() });
      completion.onFirstToken = () => metrics.firstToken((performance.now() - start) / 1000);
      if (!body.stream) {
        const whole = completion.whole(await completion.run(gone.signal));
        metrics.tokens(completion.usage);
        return whole;
      }
      await stream(completion, gone.signal, reply);
      metrics.tokens(completion.usage);
      return reply;
    } catch (error) {
      status = gone.signal.aborted ? 499 : explain(error).status;
      if (reply.raw.headersSent || gone.signal.aborted) {
        reply.raw.destroy();
        return reply.hijack();
      }
      throw error;
    } finally {
      metrics.answered(endpoint, status, (performance.now() - start) / 1000);
      request.raw.resume();
    }
  };
  app.post('/v1/chat/completions', async (request, reply) => answer('chat', parseRequest(chatRequest, request.body), request, reply));
  app.post('/v1/completions', async (request, reply) =>
    answer('completions', parseRequest(completionRequest, request.body), request, reply),
  );
  const idle = (): Promise<void> => (underWay === 0 ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve)));
  return Object.assign(app, { idle });
}

/** Headers are sent with the first event, so that what fails before is an ordinary error. */
async function stream(completion: Completion, signal: AbortSignal, reply: FastifyReply): Promise<void> {
  const { raw } = reply;
  const send = (data: string): void => {
    if (!raw.headersSent) {
      reply.hijack();
      raw.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache', 'x-accel-buffering': 'no' });
    }
    if (!raw.destroyed) raw.write(`data: ${data}\n\n`);
  };
  try {
    await streamCompletion(completion, signal, (chunk) => send(JSON.stringify(chunk)));
  } catch (error) {
    if (!raw.headersSent) throw error;
    if (!signal.aborted) send(JSON.stringify(explain(error).body));
    raw.end();
    return;
  }
  send('[DONE]');
  raw.end();
}

function failure(message: string, type: string, o: { code?: string; param?: string } = {}): { error: Record<string, string | null> } {
  return { error: { message, type, param: o.param ?? null, code: o.code ?? null } };
}

const STATUS: Record<string, number> = {
  SINKFLEX_REQUEST_INVALID: 400,
  SINKFLEX_CHAT_TEMPLATE: 400,
  SINKFLEX_BAD_ARGUMENT: 400,
  SINKFLEX_TOKENIZER: 400,
  SINKFLEX_SERVER_BUSY: 503,
};

/** Any error as OpenAI's clients expect one. */
function explain(error: unknown): { status: number; body: { error: Record<string, string | null> } } {
  if (isSinkflexError(error)) {
    const { param, code } = (error.details ?? {}) as { param?: string; code?: string };
    const status = code === 'model_not_found' ? 404 : (STATUS[error.code] ?? 500);
    const type = status < 500 ? 'invalid_request_error' : 'server_error';
    return { status, body: failure(error.message, type, { code: code ?? error.code, ...(param === undefined ? {} : { param }) }) };
  }
  const { statusCode = 500, message } = error as { statusCode?: number; message: string };
  return { status: statusCode, body: failure(message, statusCode < 500 ? 'invalid_request_error' : 'server_error') };
}
