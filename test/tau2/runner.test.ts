/** The other way round: what tau2-bench's own runner sends is answered by `sinkflex serve` with what that runner reads of an answer. */
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { createServer, ServedModel } from '../../actors/index.ts';
import { writeByteModel } from '../serving/byte-model.ts';
import { HEADERS, REQUESTS } from './runner-exchange.ts';

const folder = join(t.testdir({}), 'byte-model');
writeByteModel(folder);
const model = new ServedModel(folder, { maxSequences: 2, maxModelLength: 2048, waitMs: 5000 });
const apiKey = 'a key of this test';
const app = createServer({ model, apiKey, nextSeed: () => 1, now: () => 1_700_000_000_000 });
await app.listen({ host: '127.0.0.1', port: 0 });
const url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}/v1/chat/completions`;
t.teardown(async () => {
  await app.close();
  await model.close();
});

interface Answer {
  model: string;
  choices: {
    finish_reason: string;
    message: {
      role: string;
      content: string | null;
      tool_calls?: { id: string; type: string; function: { name: string; arguments: string } }[];
    };
  }[];
  usage: { prompt_tokens: number; completion_tokens: number; prompt_tokens_details: { cached_tokens: number } };
}

const ask = async (request: unknown) => {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { ...HEADERS, authorization: `Bearer ${apiKey}` },
    body: JSON.stringify(request),
    signal: AbortSignal.timeout(30_000),
  });
  return { status: answer.status, body: (await answer.json()) as Answer };
};

t.test('every request of the exchange is answered with what the runner reads', async (t) => {
  const prompts: number[] = [];
  for (const [i, request] of REQUESTS.entries()) {
    const { status, body } = await ask(request);
    t.equal(status, 200, `request ${i}: ${JSON.stringify(body)}`);
    const { message, finish_reason: finish } = body.choices[0]!;
    t.equal(message.role, 'assistant');
    t.ok(['stop', 'length', 'tool_calls'].includes(finish), finish);
    // The runner refuses a message with neither.
    t.ok((message.content ?? '') !== '' || (message.tool_calls ?? []).length > 0, `request ${i} has an answer`);
    for (const call of message.tool_calls ?? []) t.type(JSON.parse(call.function.arguments), 'object');
    t.ok(body.usage.prompt_tokens > 0 && body.usage.completion_tokens > 0);
    t.equal(body.model, 'byte-model');
    prompts.push(body.usage.prompt_tokens);
  }
  t.ok(prompts[1]! > prompts[0]!, 'tools are in the prompt');
  t.ok(prompts[2]! > prompts[1]!, 'and so are the call and its answer');
});

t.test('the same request again says the same, and costs only what is new', async (t) => {
  const [first, again] = [await ask(REQUESTS[2]), await ask(REQUESTS[2])];
  t.strictSame(again.body.choices, first.body.choices);
  t.ok(again.body.usage.prompt_tokens_details.cached_tokens > 0);
});

t.test('what the runner is told where it goes wrong', async (t) => {
  const { status, body } = await ask({ ...REQUESTS[1], messages: [{ role: 'user', content: 'x'.repeat(9000) }] });
  t.equal(status, 400, 'its client does not try that again');
  t.match(body, { error: { message: String, type: 'invalid_request_error' } });
});
