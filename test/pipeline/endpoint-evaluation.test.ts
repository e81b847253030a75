// Evaluation at an OpenAI-compatible endpoint: calls and answers as the API has them, failures left out, and our own server on the other side.
import { execFile } from 'node:child_process';
import { createServer as createHttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';
import { z } from 'zod';
import {
  createServer,
  defineTool,
  evaluateEndpoint,
  parseConfig,
  register,
  ServedModel,
  toolMessage,
  toolSet,
} from '../../actors/index.ts';
import { writeByteModel } from '../serving/byte-model.ts';

const say = defineTool({
  name: 'say',
  description: 'Says a word.',
  parameters: z.object({ word: z.string() }),
  execute: ({ word }, world: { word: string }) => (word === world.word ? 'right' : 'wrong'),
});
const tools = toolSet([say]);

/** The word of the task has to be said by a call. */
register({
  name: 'parrot',
  summary: 'says a word back',
  create: () => {
    let world = { word: '' };
    return {
      reset: ({ seed }) => {
        world = { word: `w${seed % 1000}` };
        return { observation: [{ role: 'user', content: `say ${world.word}` }], tools: tools.schemas, info: {} };
      },
      async step(action) {
        const [call] = action.toolCalls;
        if (call === undefined) {
          const content = action.malformed === undefined ? 'call say' : `not read: ${action.malformed}`;
          return {
            observation: [{ role: action.malformed ? 'tool' : 'user', content }],
            reward: 0,
            terminated: false,
            truncated: false,
            info: {},
          };
        }
        const outcome = await tools.call(call, world);
        const reward = Number(outcome.content === 'right');
        return { observation: [toolMessage(call, outcome)], reward, terminated: true, truncated: false, info: { rewardParts: { reward } } };
      },
      close() {},
    };
  },
});

/** Never answers. */
register({
  name: 'stuck',
  summary: 'does not answer',
  create: () => ({
    reset: () => new Promise(() => {}),
    step: () => new Promise(() => {}),
    close() {},
  }),
});

type Sent = { role: string; content: string; tool_call_id?: string; tool_calls?: { id: string }[] };

t.test('a model that errs and learns better, a wrong one, and a server that fails', async (t) => {
  const asked: { messages: Sent[]; seed: number; model: string; tools: unknown[]; temperature: number }[] = [];
  const server = createHttpServer((request, response) => {
    let text = '';
    request.on('data', (part) => {
      text += part;
    });
    request.on('end', () => {
      const body = JSON.parse(text);
      asked.push(body);
      const { messages } = body as { messages: Sent[] };
      const word = messages[0]!.content.slice(4);
      const number = Number(word.slice(1));
      if (number % 4 === 3) return void response.writeHead(400).end();
      const call = (args: string) => ({
        content: null,
        tool_calls: [{ id: `c${messages.length}`, type: 'function', function: { name: 'say', arguments: args } }],
      });
      // Speech first, then a call that cannot be read, then a right one; every fourth in hermes text; every other fourth a wrong word.
      const turns = [{ content: 'hello' }, call('{"word": '), call(JSON.stringify({ word }))];
      const message =
        number % 4 === 1
          ? { content: `<tool_call>{"name": "say", "arguments": {"word": "${word}"}}</tool_call>` }
          : number % 4 === 2
            ? call('{"word": "no"}')
            : turns[(messages.length - 1) / 2]!;
      response.setHeader('content-type', 'application/json').end(JSON.stringify({ choices: [{ message }] }));
    });
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  t.teardown(() => server.close());
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  const config = parseConfig([
    {
      source: 'test',
      values: { 'env.name': 'parrot', 'data.val_size': 12, 'data.val_interim_size': 1, 'val.n': 2, 'val.temperature': 0.5 },
    },
  ]);
  const o = { endpoint: { baseUrl, retries: 0, backoffMs: 1 }, model: 'bird', signal: new AbortController().signal };
  const r = await evaluateEndpoint(config, o);
  t.equal(r.episodes.length, 24);
  for (const { seed, reward, ended, messages } of r.episodes) {
    const kind = (seed % 1000) % 4;
    if (kind === 3) t.match({ reward: String(reward), ended }, { reward: 'NaN', ended: /endpoint: HTTP 400/ });
    else t.same([reward, ended], [kind === 2 ? 0 : 1, 'stop']);
    if (kind === 0) t.equal(messages.filter(({ role }) => role === 'assistant').length, 3);
  }
  const scored = r.episodes.filter(({ reward }) => Number.isFinite(reward));
  t.equal(r.failed, 24 - scored.length);
  t.ok(scored.length > 4 && r.failed > 0);
  t.equal(r.passRates.length, 2);
  const last = asked.find(({ messages }) => messages.length === 5)!;
  t.match(last, { model: 'bird', temperature: 0.5, tools: [{ function: { name: 'say' } }] });
  t.match(last.messages, [
    { role: 'user' },
    { role: 'assistant', content: 'hello' },
    { role: 'user', content: 'call say' },
    { role: 'assistant', tool_calls: [{ id: 'c3', type: 'function' }] },
    { role: 'tool', content: /are no JSON: expected/, tool_call_id: 'c3' },
  ]);
  t.equal(new Set(asked.map(({ seed }) => seed)).size, asked.length, 'each draw by itself');
  const stop = new AbortController();
  const stuck = parseConfig([{ source: 'test', values: { 'env.name': 'stuck', 'data.val_size': 2, 'data.val_interim_size': 1 } }]);
  setTimeout(() => stop.abort(new Error('enough')), 50);
  await t.rejects(evaluateEndpoint(stuck, { ...o, signal: stop.signal }), /enough/, 'also while an environment does not answer');
  const nobody = { ...o, endpoint: { ...o.endpoint, baseUrl: 'http://127.0.0.1:1/v1' } };
  await t.rejects(evaluateEndpoint(config, nobody), { code: 'SINKFLEX_ENDPOINT_FAILED', message: /none of 24 episodes/ });
});

t.test('sinkflex evaluate --endpoint plays with sinkflex serve', async (t) => {
  const folder = join(t.testdir({ model: {} }), 'model');
  writeByteModel(folder);
  const model = new ServedModel(folder, { maxSequences: 4, maxModelLength: 1024 });
  let seed = 1;
  const app = createServer({ model, apiKey: 'secret-of-a-test', nextSeed: () => seed++ });
  await app.listen({ host: '127.0.0.1', port: 0 });
  t.teardown(async () => {
    await app.close();
    await model.close();
  });
  const command = fileURLToPath(new URL('../../scripts/sinkflex.js', import.meta.url));
  const url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}/v1`;
  const { NODE_OPTIONS: _, ...env } = process.env;
  const words = ['evaluate', 'tiny', '--endpoint', url, '--api-key-env', 'TEST_KEY', '--json', 'data.val_size=3', 'env.max_turns=2'];
  const { stdout } = await promisify(execFile)(process.execPath, [command, ...words, 'rollout.max_tokens_per_turn=8'], {
    env: { ...env, TEST_KEY: 'secret-of-a-test' },
  });
  t.match(JSON.parse(stdout), { environment: 'desk', model: 'model', tasks: 3, n: 1, failed: 0, score: { n: 3 } });
});
