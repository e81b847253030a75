/** A language model as user, against a small server: what it is sent, what it answers, and that its failures are never a score. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { ModelUser, make } from '../../actors/environment/index.ts';
import { absent, dataFolder } from './traces.ts';

interface Request {
  model: string;
  messages: { role: string; content: string | null; tool_call_id?: string; tool_calls?: unknown[] }[];
  tools?: unknown[];
}
type Answer = { status?: number; body?: unknown; silent?: boolean };

async function server(t: Tap, answers: Answer[]) {
  const requests: Request[] = [];
  const http = createServer(async (request, response) => {
    let text = '';
    for await (const part of request) text += part;
    requests.push(JSON.parse(text));
    const { status = 200, body, silent } = answers.shift() ?? { status: 500 };
    if (silent) return;
    response.writeHead(status, { 'content-type': 'application/json' }).end(typeof body === 'string' ? body : JSON.stringify(body ?? {}));
  });
  await new Promise<void>((done) => http.listen(0, '127.0.0.1', done));
  t.teardown(() => {
    http.closeAllConnections();
    http.close();
  });
  return { requests, base_url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/v1` };
}
type Tap = typeof t;

const says = (content: string): Answer => ({ body: { choices: [{ message: { content } }] } });
const start = { seed: 1, taskId: '0', domain: 'mock', scenario: { text: 'SCENARIO', fields: {} }, tools: [], history: [], calls: [] };
const quick = { model: 'm', backoff_ms: 1 };

t.test('sees the conversation from its side, its own tools included', async (t) => {
  const calls = { body: { choices: [{ message: { tool_calls: [{ id: 'a', function: { name: 'look', arguments: '{"at":1}' } }] } }] } };
  const { requests, base_url } = await server(t as Tap, [says('Hello'), calls, says('###STOP###')]);
  const user = new ModelUser({ ...quick, base_url });
  user.start({ ...start, guidelines: 'GUIDE', tools: [{ type: 'function', function: { name: 'look', description: '', parameters: {} } }] });
  t.strictSame(await user.reply([{ role: 'assistant', content: 'Hi' }]), { text: 'Hello' });
  t.strictSame(await user.reply([{ role: 'assistant', content: 'Look' }]), {
    toolCalls: [{ id: 'a', name: 'look', arguments: { at: 1 } }],
  });
  t.strictSame(await user.reply([{ role: 'tool', content: 'seen', toolCallId: 'a' }]), { text: '###STOP###' });
  const { messages, tools, model } = requests[2]!;
  t.equal(model, 'm');
  t.equal(tools?.length, 1);
  t.strictSame(
    messages.map((m) => m.role),
    ['system', 'user', 'assistant', 'user', 'assistant', 'tool'],
  );
  t.match(messages[0]!.content, /^GUIDE[\s\S]*<scenario>\nSCENARIO/);
  t.equal(messages[5]!.tool_call_id, 'a');
});

t.test('tries again what passes, and what does not is an error of the machinery', async (t) => {
  const again = await server(t as Tap, [{ status: 503 }, { status: 429 }, { body: 'no json' }, says('Hello')]);
  const patient = new ModelUser({ ...quick, base_url: again.base_url });
  patient.start({ ...start, guidelines: 'G' });
  t.strictSame(await patient.reply([{ role: 'assistant', content: 'Hi' }]), { text: 'Hello' });
  t.equal(again.requests.length, 4);

  const cases: [Answer[], number, Record<string, unknown>][] = [
    [[{ status: 401 }], 1, {}],
    [[{ status: 500 }, { status: 500 }], 2, { retries: 1 }],
    [[{ silent: true }], 1, { retries: 0, timeout_ms: 50 }],
    [[{ body: { choices: [] } }], 1, { retries: 0 }],
  ];
  for (const [answers, asked, options] of cases) {
    const { requests, base_url } = await server(t as Tap, answers);
    const user = new ModelUser({ ...quick, base_url, ...options });
    user.start({ ...start, guidelines: 'G' });
    await t.rejects(user.reply([{ role: 'assistant', content: 'Hi' }]), { code: 'SINKFLEX_USER_FAILED' });
    t.equal(requests.length, asked);
  }
});

t.test('says what it needs', async (t) => {
  t.throws(() => new ModelUser({ model: 'm' }), { code: 'SINKFLEX_ENVIRONMENT_OPTION', message: /base_url/ });
  t.throws(() => new ModelUser({ base_url: 'http://h/v1', model: 'm', retry: 1 }), {
    code: 'SINKFLEX_ENVIRONMENT_OPTION',
    message: /retry/,
  });
  t.throws(() => new ModelUser({ base_url: 'http://h/v1', model: 'm' }).start(start), { code: 'SINKFLEX_TAU2_DATA' });
});

t.test('in retail', absent === undefined ? {} : { skip: absent }, async (t) => {
  const { requests, base_url } = await server(t as Tap, [says('My lamp broke.'), says('###STOP###'), { status: 400 }]);
  const environment = make('tau2-retail', { data: dataFolder, task: '2', user: 'llm', user_options: { ...quick, base_url } });
  const { observation } = await environment.reset({ seed: 5 });
  t.equal(observation.at(-1)!.content, 'My lamp broke.');
  const end = await environment.step({ text: 'Good bye', toolCalls: [], finish: false });
  t.equal(end.terminated, true);
  t.match(end.info, { user: 'model:m', termination: 'user_stop' });
  t.match(requests[0]!.messages[0]!.content, /User Simulation Guidelines[\s\S]*<scenario>/);
  await t.rejects(Promise.resolve(environment.reset({ seed: 5 })), { code: 'SINKFLEX_USER_FAILED' });
  await environment.close();
});
