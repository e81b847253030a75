// The OpenAI-compatible endpoint: the official client against it, what it refuses, what it keeps, and who is let in.
import { mkdtempSync, rmSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import t from 'tap';
import { createServer, ServedModel } from '../../actors/index.ts';
import { until } from '../until.ts';
import { writeByteModel } from './byte-model.ts';

const apiKey = 'a key of this test';
const folder = join(mkdtempSync(join(tmpdir(), 'serving-')), 'byte-model');
writeByteModel(folder);
const model = new ServedModel(folder, { maxSequences: 4, maxModelLength: 256, waitMs: 5000 });
let seed = 100;
const app = createServer({ model, apiKey, nextSeed: () => seed++, now: () => 1_700_000_000_000 });
await app.listen({ host: '127.0.0.1', port: 0 });
const base = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`;
const client = new OpenAI({ apiKey, baseURL: `${base}/v1`, maxRetries: 0 });
t.teardown(async () => {
  await app.close();
  await model.close();
  rmSync(join(folder, '..'), { recursive: true });
});

const messages = [{ role: 'user' as const, content: 'hello' }];
const chat = { model: 'byte-model', messages, max_tokens: 24, seed: 7 };

t.test('models', async (t) => {
  const { data } = await client.models.list();
  t.match(data, [{ id: 'byte-model', object: 'model', max_model_len: 256 }]);
  t.match(await client.models.retrieve('byte-model'), { id: 'byte-model' });
  await t.rejects(client.models.retrieve('other'), { status: 404, code: 'model_not_found' });
});

t.test('a chat, whole and streamed, says the same; so does the same seed again', async (t) => {
  const whole = await client.chat.completions.create({ ...chat, logprobs: true });
  const choice = whole.choices[0]!;
  t.match(whole, { object: 'chat.completion', created: 1_700_000_000, model: 'byte-model' });
  t.equal(whole.usage!.total_tokens, whole.usage!.prompt_tokens + whole.usage!.completion_tokens);
  t.equal(choice.logprobs!.content!.length, whole.usage!.completion_tokens);
  t.ok(choice.logprobs!.content!.every(({ logprob }) => logprob < 0));
  let text = '';
  let finish: string | null = null;
  let usage: unknown;
  for await (const chunk of await client.chat.completions.create({ ...chat, stream: true, stream_options: { include_usage: true } })) {
    text += chunk.choices[0]?.delta.content ?? '';
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  t.equal(text, choice.message.content);
  t.equal(finish, choice.finish_reason);
  t.match(usage, { completion_tokens: whole.usage!.completion_tokens });
  const other = await client.chat.completions.create({ ...chat, seed: 8 });
  t.not(other.choices[0]!.message.content, choice.message.content);
});

t.test('choices are drawn side by side, each with its own key', async (t) => {
  const { choices } = await client.chat.completions.create({ ...chat, n: 3 });
  t.same(
    choices.map(({ index }) => index),
    [0, 1, 2],
  );
  t.equal(new Set(choices.map(({ message }) => message.content)).size, 3);
  const first = await client.chat.completions.create(chat);
  t.equal(choices[0]!.message.content, first.choices[0]!.message.content, 'company changes nothing');
});

t.test('completions take text or token ids, and give token ids, versions and log-probabilities', async (t) => {
  const ask = { model: 'byte-model', max_tokens: 10, temperature: 0 };
  const extra = { return_token_ids: true } as object;
  type Choice = { token_ids: number[]; versions: number[]; prompt_token_ids: number[] };
  const text = await client.completions.create({ ...ask, prompt: 'abc', logprobs: 1, ...extra });
  const fromText = text.choices[0] as unknown as Choice & OpenAI.CompletionChoice;
  t.same(
    fromText.prompt_token_ids,
    [97, 98, 99].map((byte) => model.tokenizer.encode(String.fromCharCode(byte))[0]),
  );
  t.equal(fromText.token_ids.length, fromText.logprobs!.token_logprobs!.length);
  t.ok(fromText.versions.every((version) => version === 0));
  t.equal(model.tokenizer.decode(fromText.token_ids.filter((id) => !model.tokenizer.isSpecial(id))), fromText.text);
  const ids = await client.completions.create({ ...ask, prompt: fromText.prompt_token_ids, ...extra });
  t.same((ids.choices[0] as unknown as Choice).token_ids, fromText.token_ids);
  const many = await client.completions.create({ ...ask, prompt: ['abc', 'xyz'], n: 2, ...extra });
  t.equal(many.choices.length, 4);
  t.same((many.choices[1] as unknown as Choice).token_ids, fromText.token_ids, 'greedy: every choice of a prompt is the same');
  t.same((many.choices[2] as unknown as Choice).prompt_token_ids, [...model.tokenizer.encode('xyz')]);
});

t.test('stop strings end the answer and are not part of it', async (t) => {
  const ask = { model: 'byte-model', prompt: 'stop here', max_tokens: 60, temperature: 1, seed: 3 };
  const all = (await client.completions.create({ ...ask, ...{ ignore_eos: true } })).choices[0]!;
  t.equal(all.finish_reason, 'length');
  const stop = all.text.slice(12, 15);
  const cut = (await client.completions.create({ ...ask, stop: [stop, 'never said, surely'], ...{ ignore_eos: true } })).choices[0]!;
  t.equal(cut.text, all.text.slice(0, all.text.indexOf(stop)));
  t.equal(cut.finish_reason, 'stop');
  let streamed = '';
  for await (const chunk of await client.completions.create({ ...ask, stop, stream: true, ...{ ignore_eos: true } }))
    streamed += chunk.choices[0]?.text ?? '';
  t.equal(streamed, cut.text);
});

t.test('every way of sampling, as OpenAI and vLLM name it', async (t) => {
  const ask = {
    model: 'byte-model',
    prompt: 'sample',
    max_tokens: 12,
    seed: 5,
    temperature: 1,
    ...({ ignore_eos: true, return_token_ids: true } as object),
  };
  const tokens = async (more: object): Promise<number[]> =>
    ((await client.completions.create({ ...ask, ...more })).choices[0] as unknown as { token_ids: number[] }).token_ids;
  const plain = await tokens({ top_k: -1 });
  const greedy = await tokens({ temperature: 0 });
  t.same(await tokens({ top_k: 1 }), greedy);
  t.same(await tokens({ top_p: 1e-9 }), greedy);
  t.same(await tokens({ min_p: 1 }), greedy);
  t.notSame(plain, greedy);
  t.same(await tokens({ logit_bias: { 65: 100 } }), new Array(12).fill(65));
  t.equal(new Set(await tokens({ temperature: 0, repetition_penalty: 100 })).size, 12);
  t.ok(new Set(await tokens({ temperature: 0, presence_penalty: 2, frequency_penalty: 2 })).size >= new Set(greedy).size);
  const stopped = await client.completions.create({
    ...ask,
    top_k: -1,
    ...{ stop_token_ids: [plain[3]!] },
  } as OpenAI.CompletionCreateParamsNonStreaming);
  t.equal(stopped.choices[0]!.finish_reason, 'stop');
  t.equal(stopped.usage!.completion_tokens, plain.indexOf(plain[3]!) + 1);
  const longer = await tokens({ top_k: -1, stop_token_ids: [plain[3]!], min_tokens: 7 });
  t.ok(longer.length >= 7 && !longer.slice(0, 6).includes(plain[3]!));
});

t.test('alternatives come with each token, whole and streamed', async (t) => {
  const ask = { ...chat, max_tokens: 6, logprobs: true, top_logprobs: 4, ...({ return_tokens_as_token_ids: true } as object) };
  const whole = (await client.chat.completions.create(ask)).choices[0]!.logprobs!.content!;
  for (const { token, logprob, bytes, top_logprobs: top } of whole) {
    const id = Number(token.slice('token_id:'.length));
    t.same(bytes, [...model.bytesOf(id)]);
    if (id < 256) t.equal(bytes!.length, 1, 'a part of a character has its byte');
    t.equal(top.length, 4);
    t.ok(top.every((each, i) => i === 0 || each.logprob <= top[i - 1]!.logprob));
    const same = top.find((each) => each.token === token);
    t.ok(same === undefined ? logprob <= top[3]!.logprob : same.logprob === logprob);
  }
  const streamed: OpenAI.ChatCompletionTokenLogprob[] = [];
  for await (const chunk of await client.chat.completions.create({ ...ask, stream: true }))
    streamed.push(...(chunk.choices[0]?.logprobs?.content ?? []));
  t.same(streamed, whole);
  const text = (
    await client.completions.create({
      model: 'byte-model',
      prompt: 'ab',
      max_tokens: 4,
      logprobs: 3,
      seed: 1,
      ...{ return_tokens_as_token_ids: true },
    })
  ).choices[0]!.logprobs!;
  t.ok(text.top_logprobs!.every((top, i) => Object.keys(top).length >= 3 && top[text.tokens![i]!] === text.token_logprobs![i]));
  t.ok(text.tokens!.every((token) => /^token_id:\d+$/.test(token)));
});

t.test('streams carry token ids', async (t) => {
  const ask = { model: 'byte-model', prompt: 'ids', max_tokens: 5, seed: 2, ...{ return_token_ids: true, ignore_eos: true } };
  type Choice = { token_ids?: number[]; prompt_token_ids?: number[] };
  const whole = (await client.completions.create(ask)).choices[0] as unknown as Choice;
  const ids: number[] = [];
  let prompt: number[] | undefined;
  for await (const chunk of await client.completions.create({ ...ask, stream: true })) {
    const choice = chunk.choices[0] as unknown as Choice;
    ids.push(...(choice.token_ids ?? []));
    prompt ??= choice.prompt_token_ids;
  }
  t.same(ids, whole.token_ids);
  t.same(prompt, whole.prompt_token_ids);
});

t.test('a draining server answers what is under way and refuses the rest', async (t) => {
  const drain = new AbortController();
  const leaving = createServer({ model, apiKey, nextSeed: () => 1, draining: drain.signal });
  await leaving.listen({ host: '127.0.0.1', port: 0 });
  const at = `http://127.0.0.1:${(leaving.server.address() as AddressInfo).port}`;
  const caller = new OpenAI({ apiKey, baseURL: `${at}/v1`, maxRetries: 0 });
  const stream = await caller.completions.create({
    model: 'byte-model',
    prompt: 'last',
    max_tokens: 200,
    stream: true,
    seed: 1,
    ...{ ignore_eos: true },
  });
  let pieces = 0;
  for await (const chunk of stream) {
    if (chunk.choices[0]?.finish_reason === 'length') pieces = -pieces;
    if (pieces++ !== 0) continue;
    drain.abort();
    await t.rejects(caller.completions.create({ model: 'byte-model', prompt: 'late' }), { message: /503/ });
    t.equal((await fetch(`${at}/readyz`)).status, 503);
    t.equal((await fetch(`${at}/livez`)).status, 200);
  }
  t.ok(pieces < 0, 'to its end');
  await leaving.idle();
  await leaving.close();
});

t.test('a conversation that goes on costs its new tokens only', async (t) => {
  const first = await client.completions.create({
    model: 'byte-model',
    prompt: 'a long beginning',
    max_tokens: 8,
    seed: 1,
    ...{ return_token_ids: true, ignore_eos: true },
  });
  const { prompt_token_ids: prompt, token_ids: drawn } = first.choices[0] as unknown as { prompt_token_ids: number[]; token_ids: number[] };
  const next = [...prompt, ...drawn, ...model.tokenizer.encode(' and on')];
  const ask = { model: 'byte-model', prompt: next, max_tokens: 8, seed: 2, ...{ ignore_eos: true } };
  const reused = await client.completions.create(ask);
  t.equal(reused.usage!.prompt_tokens_details!.cached_tokens, prompt.length + drawn.length - 1, 'the token drawn last was not read');
  const fresh = new ServedModel(folder, { maxSequences: 1, maxModelLength: 256 });
  const alone = await fresh.answer(Int32Array.from(next), {
    maxNewTokens: 8,
    temperature: 0.7,
    topK: 20,
    topP: 1,
    stop: [],
    ignoreEos: true,
    key: [2, 0, 0, 0],
  });
  await fresh.close();
  t.equal(reused.choices[0]!.text, alone.text, 'and says what a new sequence says');
  t.equal(alone.cachedTokens, 0);
});

t.test('more requests than sequences wait, and all are answered', async (t) => {
  const answers = await Promise.all(
    Array.from({ length: 13 }, (_, i) =>
      client.completions.create({ model: 'byte-model', prompt: `request ${i}`, max_tokens: 12, seed: i, ...{ ignore_eos: true } }),
    ),
  );
  t.ok(answers.every(({ usage }) => usage!.completion_tokens === 12));
  t.equal(model.sequences.running, 0);
});

t.test('a caller that goes away frees its sequences', async (t) => {
  const long = new ServedModel(folder, { maxSequences: 2, maxModelLength: 30_000 });
  const other = createServer({ model: long, apiKey, nextSeed: () => 1 });
  await other.listen({ host: '127.0.0.1', port: 0 });
  const baseURL = `http://127.0.0.1:${(other.server.address() as AddressInfo).port}/v1`;
  const impatient = new OpenAI({ apiKey, baseURL, maxRetries: 0 });
  const ask = { model: 'byte-model', max_tokens: 29_000, ...{ ignore_eos: true } };
  // Two that stream, two that wait for a sequence, one that does not stream: all go.
  const controllers = Array.from({ length: 5 }, () => new AbortController());
  const calls = controllers.map(async ({ signal }, seed) => {
    if (seed === 4) return impatient.completions.create({ ...ask, prompt: 'whole', seed }, { signal });
    for await (const _ of await impatient.completions.create({ ...ask, prompt: 'endless', seed, stream: true }, { signal }))
      controllers[seed]!.abort();
    return undefined;
  });
  await Promise.race(calls.map((call) => call.catch(() => {})));
  for (const controller of controllers) controller.abort();
  await Promise.allSettled(calls);
  // Whoever comes next is served at once, not after 58,000 tokens.
  const next = await impatient.completions.create({ model: 'byte-model', prompt: 'x', max_tokens: 1 });
  t.equal(next.usage!.completion_tokens, 1);
  await until('all have ended', () => long.sequences.running === 0);
  t.ok(long.engine.stats().generatedTokens < 29_000, `${long.engine.stats().generatedTokens} tokens were drawn`);
  await other.close();
  await long.close();
});

t.test('what cannot be answered is refused by name', async (t) => {
  const cases: [string, object, number, string | RegExp][] = [
    ['chat/completions', { messages: [] }, 400, 'messages'],
    ['chat/completions', { ...chat, model: 'other' }, 404, 'model'],
    ['chat/completions', { ...chat, top_logprobs: 3 }, 400, 'top_logprobs'],
    ['chat/completions', { ...chat, temperature: -1 }, 400, 'temperature'],
    ['chat/completions', { ...chat, frequency_penalty: 3 }, 400, 'frequency_penalty'],
    ['chat/completions', { ...chat, logprobs: true, top_logprobs: 21 }, 400, 'top_logprobs'],
    ['chat/completions', { ...chat, min_p: 1.1 }, 400, 'min_p'],
    ['chat/completions', { ...chat, logit_bias: { a: 1 } }, 400, /logit_bias/],
    ['chat/completions', { ...chat, logit_bias: { 99999: 1 } }, 400, ''],
    ['chat/completions', { ...chat, tool_choice: 'required', tools: [] }, 400, 'tool_choice'],
    ['chat/completions', { ...chat, messages: [{ role: 'user', content: [{ type: 'image_url' }] }] }, 400, /messages/],
    [
      'chat/completions',
      { messages: [{ role: 'assistant', content: '', tool_calls: [{ function: { name: 'f', arguments: '{' } }] }] },
      400,
      /arguments/,
    ],
    ['chat/completions', { ...chat, messages: [{ role: 'user', content: 'x'.repeat(400) }] }, 400, 'messages'],
    ['completions', { prompt: [300_000] }, 400, ''],
    ['completions', { prompt: 'x', best_of: 4 }, 400, 'best_of'],
    ['completions', {}, 400, 'prompt'],
    ['nothing', {}, 404, ''],
  ];
  for (const [path, body, status, param] of cases) {
    const response = await fetch(`${base}/v1/${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const { error } = (await response.json()) as { error: { message: string; type: string; param: string | null } };
    t.equal(response.status, status, JSON.stringify(body).slice(0, 80));
    t.match(error, { message: /./, type: 'invalid_request_error', ...(param === '' ? {} : { param }) });
  }
  const broken = await fetch(`${base}/v1/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: '{"prompt',
  });
  t.equal(broken.status, 400);
  t.equal((await client.completions.create({ model: 'byte-model', prompt: 'alive', max_tokens: 1 })).choices.length, 1);
});

t.test('nobody is let in without the key, except to ask whether it lives', async (t) => {
  for (const path of ['/livez', '/readyz', '/health']) {
    const response = await fetch(base + path);
    t.equal(response.status, 200);
    t.equal(await response.text(), '');
  }
  for (const authorization of [undefined, '', 'Bearer', 'Bearer wrong', apiKey, `bearer ${apiKey}`]) {
    for (const [method, path] of [
      ['GET', '/v1/models'],
      ['GET', '/metrics'],
      ['POST', '/v1/completions'],
      ['GET', '/nothing'],
    ] as const) {
      const response = await fetch(base + path, { method, ...(authorization === undefined ? {} : { headers: { authorization } }) });
      t.equal(response.status, 401, `${method} ${path} with ${authorization}`);
    }
  }
});

t.test('metrics count requests and tokens', async (t) => {
  const response = await fetch(`${base}/metrics`, { headers: { authorization: `Bearer ${apiKey}` } });
  const text = await response.text();
  const value = (name: string): number => Number(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'm').exec(text)?.[1]);
  t.ok(value('sinkflex_generation_tokens_total') > 100);
  t.ok(value('sinkflex_prefix_cache_hits_total') > 20);
  t.match(text, /sinkflex_requests_total\{endpoint="chat",status="200"\} [1-9]/);
  t.match(text, /sinkflex_requests_total\{endpoint="completions",status="400"\} [1-9]/);
  t.ok(value('sinkflex_prefix_cache_queries_total') > value('sinkflex_prefix_cache_hits_total'));
  t.ok(value('sinkflex_time_to_first_token_seconds_count') > 10);
  t.ok(value('sinkflex_kv_cache_usage_perc') >= 0 && value('sinkflex_kv_cache_usage_perc') <= 1);
  t.same([value('sinkflex_num_requests_running'), value('sinkflex_num_requests_waiting')], [0, 0]);
});
