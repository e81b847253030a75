// Rewards: how components become one number, and what becomes of those that give none.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import {
  type Action,
  checkEnvironment,
  checkReward,
  composeReward,
  EngineStates,
  EnvironmentHost,
  entry,
  environmentReward,
  fitHead,
  headValue,
  isInfrastructureFailure,
  JudgeReward,
  modelReward,
  type RewardComponent,
  RewardComponentSettings,
  RewardComposition,
  RewardedEnvironment,
  RULES,
  readHead,
  type ScoredEpisode,
  writeHead,
} from '../../actors/index.ts';
import { Engine, readModelConfig, WeightStore } from '../../kernels/index.ts';
import { writeByteModel } from '../serving/byte-model.ts';

const episode = (more: Partial<ScoredEpisode> = {}): ScoredEpisode => ({
  environment: 'desk',
  seed: 7,
  messages: [
    { role: 'user', content: 'hello' },
    { role: 'assistant', content: 'one' },
    { role: 'assistant', content: 'one' },
  ],
  reward: 0.5,
  rewardParts: { told: 1 },
  terminated: true,
  turns: 2,
  malformed: 1,
  info: {},
  ...more,
});
const constant = (name: string, value: unknown, asked?: string[]): RewardComponent => ({
  name,
  score: () => {
    asked?.push(name);
    return value as number;
  },
});
const weigh = (component: RewardComponent, weight = 1, gate?: number, timeoutMs = 1000) => ({
  component,
  weight,
  timeoutMs,
  ...(gate === undefined ? {} : { gate }),
});
const component = (settings: object) => RewardComponentSettings.parse(settings);

t.test('weights add up and gates decide first', async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.double({ min: -9, max: 9, noNaN: true }), fc.double({ min: -9, max: 9, noNaN: true })), {
        minLength: 1,
        maxLength: 6,
      }),
      async (pairs) => {
        const c = new RewardComposition(pairs.map(([value, weight], i) => weigh(constant(`c${i}`, value), weight)));
        const { reward, parts } = await c.score(episode());
        t.equal(
          reward,
          pairs.reduce((s, [value, weight]) => s + weight * value, 0),
        );
        t.same(Object.keys(parts), c.names);
      },
    ),
    { seed: 1, numRuns: 50 },
  );
  const asked: string[] = [];
  const gated = new RewardComposition([weigh(constant('dear', 1, asked)), weigh(constant('gate', 0.4, asked), 0, 0.5)], -1);
  t.same(await gated.score(episode()), { reward: -1, parts: { gate: 0.4 }, shut: 'gate' });
  t.same(asked, ['gate'], 'nothing dear is asked behind a shut gate');
  t.match(await new RewardComposition([weigh(constant('a', 3), 2), weigh(constant('gate', 0.5), 1, 0.5)]).score(episode()), {
    reward: 6.5,
    parts: { a: 3, gate: 0.5 },
  });
});

t.test('what is no finite number is an error, and so is what does not come', async (t) => {
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY, '1', undefined, null, 1n])
    await t.rejects(
      new RewardComposition([weigh(constant('bad', value))]).score(episode()),
      { code: 'SINKFLEX_REWARD_INVALID', message: /bad/ },
      String(value),
    );
  const overflow = [weigh(constant('a', 1e308), 10), weigh(constant('b', 1))];
  await t.rejects(new RewardComposition(overflow).score(episode()), { code: 'SINKFLEX_REWARD_INVALID', message: /sum/ });
  let aborted = false;
  const slow: RewardComponent = {
    name: 'slow',
    score: (_, signal) =>
      new Promise((_, reject) =>
        signal.addEventListener('abort', () => {
          aborted = true;
          reject(signal.reason);
        }),
      ),
  };
  const late = await new RewardComposition([weigh(slow, 1, undefined, 20)]).score(episode()).catch((e: unknown) => e);
  t.match(late, { code: 'SINKFLEX_REWARD_FAILED', message: /slow.*20 ms/ });
  t.ok(isInfrastructureFailure(late) && aborted, 'the episode is redone, and the component is told to stop');
  const thrown: RewardComponent = {
    name: 'thrown',
    score: () => {
      throw new Error('of its own');
    },
  };
  await t.rejects(new RewardComposition([weigh(thrown)]).score(episode()), { code: 'SINKFLEX_REWARD_FAILED', message: /of its own/ });
});

t.test('rules', async (t) => {
  const e = episode();
  t.same(Object.fromEntries(Object.entries(RULES).map(([name, rule]) => [name, rule(e, 4)])), {
    finished: 1,
    well_formed: 0.5,
    few_turns: 1,
    brief: 0.5,
    no_repetition: 0.5,
  });
  t.equal(await environmentReward('x').score(e, AbortSignal.abort()), 0.5);
  t.equal(await environmentReward('x', 'told').score(e, AbortSignal.abort()), 1);
  await t.rejects(new RewardComposition([weigh(environmentReward('x', 'nope'))]).score(e), { code: 'SINKFLEX_REWARD_INVALID' });
});

t.test('a function of the user’s own, from a file', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'reward-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = (name: string, text: string) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const path = file(
    'mine.mjs',
    'export default async (e) => e.messages.length + e.reward;\nexport const named = () => 4;\nexport const stuck = () => { for (;;); };\nexport const none = () => NaN;\n',
  );
  const composed = composeReward({ path, components: [component({ kind: 'module', name: 'named', path, export: 'named', weight: 10 })] })!;
  t.same(await composed.score(episode()), { reward: 43.5, parts: { named: 4, custom: 3.5 } });
  await composed.close();

  const began = performance.now();
  const stuck = composeReward({
    path: null,
    components: [component({ kind: 'module', name: 'stuck', path, export: 'stuck', timeout_s: 0.3 })],
  })!;
  let turns = 0;
  const ticking = setInterval(() => turns++, 5);
  await t.rejects(stuck.score(episode()), { code: 'SINKFLEX_REWARD_FAILED' });
  clearInterval(ticking);
  t.ok(turns > 5, `a loop without end leaves the event loop free (${turns} turns in ${Math.round(performance.now() - began)} ms)`);
  await stuck.close();
  const none = composeReward({ path: null, components: [component({ kind: 'module', name: 'none', path, export: 'none' })] })!;
  await t.rejects(none.score(episode()), { code: 'SINKFLEX_REWARD_INVALID' });
  await none.close();

  await checkReward({ path, components: [] });
  for (const [bad, message] of [
    [join(folder, 'gone.mjs'), /no file/],
    [file('a.mjs', 'export const x = 1'), /no function "default".*x/],
    [file('b.mjs', 'throw new Error("at import")'), /at import/],
  ] as const)
    await t.rejects(checkReward({ path: bad, components: [] }), { code: 'SINKFLEX_REWARD_OPTION', message });
  t.throws(
    () =>
      composeReward({
        path: null,
        components: [component({ kind: 'environment', name: 'a' }), component({ kind: 'environment', name: 'a' })],
      }),
    { code: 'SINKFLEX_REWARD_OPTION', message: /two are named "a"/ },
  );
  await t.rejects(
    checkReward({
      path: null,
      components: [
        component({
          kind: 'judge',
          name: 'j',
          base_url: 'http://127.0.0.1:1/v1',
          model: 'm',
          rubric: 'r',
          api_key_env: 'SINKFLEX_NO_SUCH_KEY',
        }),
      ],
    }),
    { code: 'SINKFLEX_REWARD_OPTION', message: /SINKFLEX_NO_SUCH_KEY/ },
  );
  t.equal(composeReward({ path: null, components: [] }), undefined);
});

t.test('a language model as judge', async (t) => {
  const replies: (number | string)[] = [];
  const seen: { headers: Record<string, unknown>; prompt: string }[] = [];
  const probes: number[] = [];
  const server = createServer((request, response) => {
    if (request.url === '/v1/models') return void response.writeHead(probes.shift()!).end();
    let body = '';
    request.on('data', (d) => {
      body += d;
    });
    request.on('end', () => {
      seen.push({ headers: request.headers, prompt: JSON.parse(body).messages[0].content });
      const reply = replies.shift() ?? 500;
      if (typeof reply === 'number') response.writeHead(reply).end('{}');
      else
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ choices: [{ message: { content: reply } }] }));
    });
  }).listen(0, '127.0.0.1');
  await new Promise((go) => server.once('listening', go));
  t.teardown(() => server.close());
  const baseUrl = `http://127.0.0.1:${(server.address() as { port: number }).port}/v1`;
  process.env.SINKFLEX_TEST_JUDGE_KEY = 'secret';
  const judge = (more: object = {}) =>
    new JudgeReward('judge', { baseUrl, model: 'm', rubric: 'polite', apiKeyEnv: 'SINKFLEX_TEST_JUDGE_KEY', backoffMs: 1, ...more });
  const score = (j: JudgeReward, e = episode()) => new RewardComposition([weigh(j, 1, undefined, 3000)]).score(e);

  const j = judge();
  replies.push(503, 'no grade here', 'I quote {"grade": 1}. Mine: {"grade": 7}');
  t.equal((await score(j)).reward, 0.7, 'tried again, and the last grade counts');
  t.same(j.stats, { requests: 3, cacheHits: 0, budgetLeft: 9997 });
  t.equal((await score(j)).reward, 0.7);
  t.same(j.stats, { requests: 3, cacheHits: 1, budgetLeft: 9997 }, 'the same episode is not asked twice');
  t.equal(seen[0]!.headers.authorization, 'Bearer secret');
  t.match(seen[0]!.prompt, /polite[\s\S]*\{"role":"assistant","content":"one"\}[\s\S]*from 0 \(worst\) to 10/);

  // Before a run: whether the judge is there.
  const check = (base_url: string) =>
    checkReward({
      path: null,
      components: [component({ kind: 'judge', name: 'j', base_url, model: 'm', rubric: 'r', api_key_env: 'SINKFLEX_TEST_JUDGE_KEY' })],
    });
  for (const [status, message] of [[200], [404], [401, /refuses the key/], [500, /in trouble/]] as const) {
    probes.push(status);
    if (message) await t.rejects(check(baseUrl), { code: 'SINKFLEX_REWARD_OPTION', message });
    else await check(baseUrl);
  }
  await t.rejects(check('http://127.0.0.1:9/v1'), { code: 'SINKFLEX_REWARD_OPTION', message: /cannot be reached/ });

  replies.push(400, '{"grade": 5}');
  await t.rejects(score(judge()), { code: 'SINKFLEX_REWARD_FAILED', message: /HTTP 400/ }, 'a wrong request is not repeated');
  replies.length = 0;
  replies.push('{"grade": 11}', '{"grade": "7"}');
  await t.rejects(score(judge({ retries: 1 })), { code: 'SINKFLEX_REWARD_FAILED', message: /no grade/ }, 'beyond the scale');
  replies.push('{"grade": 2}');
  const poor = judge({ budget: 1 });
  t.equal((await score(poor)).reward, 0.2);
  const over = await score(poor, episode({ messages: [] })).catch((e: unknown) => e);
  t.match(over, { code: 'SINKFLEX_REWARD_BUDGET' });
  t.notOk(isInfrastructureFailure(over), 'a budget that is used up ends the run');
  const gone = judge({ baseUrl: 'http://127.0.0.1:1/v1', retries: 0 });
  t.ok(isInfrastructureFailure(await score(gone).catch((e: unknown) => e)));
});

t.test('a linear head over hidden states', async (t) => {
  const truth = [1, -2, 0.5];
  const state = (seed: number) => Float32Array.from(truth, (_, i) => Math.sin(seed * 12.9898 + i * 78.233));
  const pairs = Array.from({ length: 60 }, (_, i) => {
    const [a, b] = [state(2 * i), state(2 * i + 1)];
    const value = (s: Float32Array) => s.reduce((sum, x, k) => sum + x * truth[k]!, 0);
    return value(a) > value(b) ? { better: a, worse: b } : { better: b, worse: a };
  });
  const { head, accuracy } = fitHead(pairs);
  t.ok(accuracy > 0.95, `orders ${accuracy} of the pairs`);
  t.equal(headValue({ weight: Float64Array.from([2, 3]), bias: 1 }, [10, 100]), 321);
  const model = modelReward('rm', { width: 3, last: async (e) => state(e.seed) }, head);
  t.equal((await new RewardComposition([weigh(model)]).score(episode())).reward, headValue(head, state(7)));
  t.throws(() => modelReward('rm', { width: 4, last: async () => new Float32Array(4) }, head), { code: 'SINKFLEX_REWARD_OPTION' });
});

t.test('a reward model on our engine: the last state of an episode, and a head fitted to preferences', async (t) => {
  const folder = t.testdir({});
  writeByteModel(folder, 11);
  const states = new EngineStates(folder, { threads: 2 });
  t.equal(states.width, 32);
  const said = (text: string) =>
    episode({
      messages: [
        { role: 'user', content: 'hello' },
        { role: 'assistant', content: text },
      ],
    });
  const [a, b, long] = [said('yes, of course'), said('no'), said('a much longer answer '.repeat(9))];
  const alone = await Promise.all([a, b, long].map((e) => states.last(e, AbortSignal.timeout(30_000))));
  const packed = await states.lastOf([a, b, long]);
  t.strictSame(packed, alone, 'in one pass the states are those of each alone, bit for bit');
  t.notSame(alone[0], alone[1]);
  t.ok(alone[0]!.some((x) => x !== 0) && alone[0]!.every(Number.isFinite));
  // The state is what the vocabulary's head reads: with tied embeddings, its products are the logits of the next token.
  const store = WeightStore.create(readModelConfig(folder), { slots: 1 });
  store.loadFolder(folder);
  const engine = new Engine({ store, maxSequences: 1, maxSequenceTokens: 64 });
  const ids = states.ids(a);
  const next = Int32Array.from([...ids, 5]);
  const { logprobs, hidden } = await engine.forward({ ids: next, cuSeqlens: Int32Array.from([0, next.length]) });
  t.equal(hidden, undefined, 'only where it is asked for');
  const pin = store.pin();
  const embed = Float32Array.from(store.tensors(pin).get('model.embed_tokens.weight')!.data);
  pin.release();
  const logits = Array.from({ length: embed.length / 32 }, (_, v) => alone[0]!.reduce((sum, x, i) => sum + x * embed[v * 32 + i]!, 0));
  const most = Math.max(...logits);
  const expected = logits[5]! - most - Math.log(logits.reduce((sum, l) => sum + Math.exp(l - most), 0));
  t.ok(Math.abs(expected - logprobs.at(-1)!) < 1e-4, `${expected} and ${logprobs.at(-1)}`);
  await engine.dispose();
  store.close();

  // Preferences for the longer answer, and what was not seen is ordered as well.
  const answers = Array.from({ length: 24 }, (_, i) => said('word '.repeat(1 + (i % 12)) + String.fromCharCode(97 + i)));
  const seen = await states.lastOf(answers);
  const pairs = answers.flatMap((_, i) =>
    answers.flatMap((_, j) => (i % 12 > (j % 12) + 2 && i < 18 && j < 18 ? [{ better: seen[i]!, worse: seen[j]! }] : [])),
  );
  const { head, accuracy } = fitHead(pairs, { steps: 400 });
  t.ok(accuracy > 0.9, `orders ${accuracy} of ${pairs.length} pairs`);
  writeHead(join(folder, 'reward-head.json'), head);
  t.strictSame(readHead(join(folder, 'reward-head.json')), head);
  const settings = { path: null, components: [RewardComponentSettings.parse({ name: 'rm', kind: 'model', path: folder })] };
  await checkReward(settings);
  const composition = composeReward(settings)!;
  const scores = await Promise.all([answers[20]!, answers[12]!].map((e) => composition.score(e)));
  t.same(scores[0]!.reward, headValue(head, seen[20]!));
  await composition.close();
  await t.rejects(composition.score(a), { code: 'SINKFLEX_REWARD_FAILED' });
  await states.close();
  t.throws(
    () =>
      composeReward({
        path: null,
        components: [RewardComponentSettings.parse({ name: 'rm', kind: 'model', path: folder, head: 'nowhere.json' })],
      }),
    {
      code: 'SINKFLEX_REWARD_OPTION',
    },
  );
});

t.test('an environment with a composed score', async (t) => {
  const close: Action = { text: 'done refund 0', toolCalls: [], finish: true };
  const composition = new RewardComposition([weigh(environmentReward('own'), 2), weigh(constant('bonus', 0.25))]);
  const desk = entry('desk');
  t.same(
    await checkEnvironment({ ...desk, create: (o) => new RewardedEnvironment('desk', desk.create(o), composition) }, { seeds: [0, 1] }),
    [],
    'it conforms',
  );
  const host = new EnvironmentHost({
    environment: 'desk',
    reward: {
      path: null,
      components: [
        component({ kind: 'rule', name: 'ended', rule: 'finished' }),
        component({ kind: 'environment', name: 'own', weight: 0 }),
      ],
    },
  });
  await host.reset('a', { seed: 3 });
  t.match(await host.step('a', close), { reward: 1, info: { rewardParts: { ended: 1, own: 0 }, environmentReward: 0 } });
  await host.stop();
  const broken = new RewardedEnvironment('desk', desk.create(), new RewardComposition([weigh(constant('bad', Number.NaN))]));
  await broken.reset({ seed: 3 });
  const { reward, info } = await broken.step(close);
  t.ok(Number.isNaN(reward) && String(info.rewardError).includes('bad'), 'left out and reported, not a reward of 0');
});
