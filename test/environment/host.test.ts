/** Seeds, latencies, the registry, the host of many episodes, and the conformance check. */
import t from 'tap';
import {
  CounterRandom,
  checkEnvironment,
  desk,
  type Environment,
  EnvironmentActor,
  type EnvironmentEntry,
  EnvironmentHost,
  entry,
  environmentNames,
  isValidationTask,
  make,
  parseLatency,
  register,
  threefry,
  trainingTask,
  validationTask,
} from '../../actors/environment/index.ts';
import { init, shutdown, spawn } from '../../runtime/index.ts';

t.test('random numbers are those of Threefry-2x32-20', async (t) => {
  // Known answers of the Random123 distribution.
  const block = (k0: number, k1: number, c0: number, c1: number): number[] => {
    const out = new Uint32Array(2);
    threefry(k0, k1, c0, c1, out);
    return [...out];
  };
  t.strictSame(block(0, 0, 0, 0), [0x6b200159, 0x99ba4efe]);
  t.strictSame(block(0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff), [0x1cb996fc, 0xbb002be7]);
  t.strictSame(block(0x13198a2e, 0x03707344, 0x243f6a88, 0x85a308d3), [0xc4923a9c, 0x483df7a0]);
  const random = new CounterRandom(1, 2);
  const counts = [0, 0, 0];
  for (let i = 0; i < 30000; i++) counts[random.weighted([1, 2, 3])]!++;
  t.ok(Math.abs(counts[0]! / 5000 - 1) < 0.06 && Math.abs(counts[2]! / 15000 - 1) < 0.06, counts.join(' '));
  t.strictSame(random.sample([1, 2, 3, 4], 4).sort(), [1, 2, 3, 4]);
});

t.test('training and validation tasks never meet', async (t) => {
  const validation = new Set(Array.from({ length: 4096 }, (_, i) => validationTask(i)));
  t.equal(validation.size, 4096);
  t.ok([...validation].every(isValidationTask));
  for (const run of [1, 2, 3]) {
    const training = Array.from({ length: 4096 }, (_, i) => trainingTask(run, i));
    t.notOk(training.some((seed) => isValidationTask(seed) || validation.has(seed)));
    t.ok(new Set(training).size > 4090);
  }
  t.not(trainingTask(1, 0), trainingTask(2, 0));
});

t.test('latencies: forms, draws and what is refused', async (t) => {
  const draws = (text: string): number[] => Array.from({ length: 20000 }, (_, i) => parseLatency(text).sample([7, i, 0, 1]));
  const mean = (values: number[]): number => values.reduce((a, b) => a + b, 0) / values.length;
  t.ok(draws('none').every((ms) => ms === 0));
  t.ok(draws('fixed(50ms)').every((ms) => ms === 50));
  t.ok(draws('fixed(0.05s)').every((ms) => ms === 50));
  const uniform = draws('uniform(10ms, 90)');
  t.ok(uniform.every((ms) => ms >= 10 && ms < 90) && Math.abs(mean(uniform) - 50) < 1);
  const lognormal = draws('lognormal(mean=200ms,sigma=1.0)');
  t.ok(Math.abs(mean(lognormal) - 200) < 12, `mean ${mean(lognormal)}`);
  t.ok(Math.abs(lognormal.sort((a, b) => a - b)[10000]! - 200 * Math.exp(-0.5)) < 5, 'the median of that lognormal');
  t.strictSame(draws('lognormal(sigma=1,mean=200)').slice(0, 9), draws('lognormal(200ms, 1.0)').slice(0, 9));
  for (const [text, hint] of [
    ['lognorml(mean=200ms,sigma=1)', /did you mean "lognormal/],
    ['poisson(3)', /known forms/],
    ['lognormal(mean=200ms)', /write it as/],
    ['lognormal(mean=200ms,sgma=1)', /"sgma" is not an argument/],
    ['fixed(-5ms)', /"-5ms" is below 0/],
    ['fixed(5 parsecs)', /is not a time: .*such as 50ms/],
    ['lognormal(mean=1,sigma=2ms)', /is not a sigma/],
    ['uniform(9,1)', /below the first/],
    ['lognormal(mean=1,mean=2)', /twice/],
    ['', /known forms/],
  ] as const) {
    t.throws(() => parseLatency(text), { code: 'SINKFLEX_LATENCY_SYNTAX', message: hint }, text);
  }
});

t.test('the registry knows names and near misses', async (t) => {
  t.ok(environmentNames().includes('desk'));
  t.equal(entry('desk'), desk);
  t.throws(() => entry('dsek'), { code: 'SINKFLEX_ENVIRONMENT_UNKNOWN', message: /did you mean "desk"/ });
  t.throws(() => make('warehouse'), { code: 'SINKFLEX_ENVIRONMENT_UNKNOWN', message: /known: .*desk/ });
  t.throws(() => register(desk), { code: 'SINKFLEX_ENVIRONMENT_TAKEN' });
});

/** Counts its steps; misbehaves on request. */
function counter(faults: Partial<Environment> & { shared?: boolean } = {}): EnvironmentEntry {
  let shared = 0;
  return {
    name: `counter-${Object.keys(faults).join('-') || 'good'}`,
    summary: 'for tests',
    chat: { ...desk.chat, parse: (text) => ({ text, toolCalls: [], finish: false }) },
    create() {
      let n = 0;
      return {
        reset: ({ seed }) => {
          n = seed % 3;
          return { observation: [{ role: 'user', content: 'count' }], info: {} };
        },
        step: () => {
          n++;
          shared++;
          return {
            observation: [{ role: 'user', content: String(faults.shared ? shared : n) }],
            reward: 0,
            terminated: false,
            truncated: false,
            info: {},
          };
        },
        close: () => {},
        ...faults,
      };
    },
  };
}

t.test('the conformance check passes the desk and finds what is broken', async (t) => {
  for (const level of [1, 2, 3, 4]) t.strictSame(await checkEnvironment(desk, { options: { level } }), [], `level ${level}`);
  t.strictSame(await checkEnvironment(counter()), []);
  const found = async (faults: Parameters<typeof counter>[0]): Promise<string> => (await checkEnvironment(counter(faults))).join('\n');
  t.match(await found({ shared: true }), /another episode/);
  t.match(await found({ step: () => Promise.reject(new Error('no')) }), /step 0 threw/);
  t.match(await found({ reset: () => ({ observation: [], info: {} }) }), /reset observes nothing/);
  let closed = 0;
  t.match(
    await found({
      close: () => {
        if (closed++ % 2 === 1) throw new Error('closed');
      },
    }),
    /closing twice/,
  );
  const step = (info: Record<string, unknown>, reward = 0) => ({ observation: [], reward, terminated: true, truncated: false, info });
  t.match(await found({ step: () => step({ when: () => 0 }) }), /not serialisable/);
  t.match(await found({ step: () => step({}, Number.NaN) }), /reward is NaN/);
  t.match(await found({ step: () => ({ ...step({}), terminated: false }) }), /nothing is observed/);
});

const speech = (text: string) => desk.chat.parse(text);

t.test('a host runs many episodes at once and loses none', async (t) => {
  const host = new EnvironmentHost({ environment: 'desk' });
  const ids = Array.from({ length: 200 }, (_, i) => `e${i}`);
  const scores = await Promise.all(
    ids.map(async (id, i) => {
      await host.reset(id, { seed: i });
      const lines = desk.demonstrate!(i, 1).messages.filter((m) => m.role === 'assistant');
      let reward = 0;
      for (const line of lines) reward += (await host.step(id, speech(line.content))).reward;
      await host.close(id);
      return reward;
    }),
  );
  t.strictSame(
    scores,
    ids.map((_, i) => desk.demonstrate!(i, 1).reward),
  );
  t.match(host.stats(), { open: 0, resets: 200, failures: 0 });
  await t.rejects(host.step('e0', speech('hello')), { code: 'SINKFLEX_ENVIRONMENT_LOST', details: { instance: 'e0' } });
  await host.close('e0');
  t.throws(() => new EnvironmentHost({ environment: 'desk', options: { level: 9 } }), { code: 'SINKFLEX_ENVIRONMENT_OPTION' });
  t.throws(() => new EnvironmentHost({ environment: 'desk', latency: 'soon' }), { code: 'SINKFLEX_LATENCY_SYNTAX' });
});

t.test('answers take their time, side by side, and closing cuts them short', async (t) => {
  const host = new EnvironmentHost({ environment: 'desk', latency: 'fixed(60ms)' });
  const began = performance.now();
  await Promise.all(Array.from({ length: 50 }, (_, i) => host.reset(`e${i}`, { seed: i, latencyKey: [1, i, 0] })));
  const took = performance.now() - began;
  t.ok(took >= 59 && took < 2000 /* one after the other would take 3000 */, `${took} ms for fifty at once`);
  const late = host.step('e0', speech('please tell me your code'));
  await host.close('e0');
  await t.rejects(late, { code: 'SINKFLEX_ENVIRONMENT_LOST' });
  await host.stop();
  t.equal(host.stats().open, 0);
});

t.test('calls of one episode keep their order, and an exception costs that episode only', async (t) => {
  register({ ...counter(), name: 'counter' });
  register({
    ...counter({
      step: () => {
        throw new TypeError('boom');
      },
    }),
    name: 'broken',
  });
  const host = new EnvironmentHost({ environment: 'counter', latency: 'uniform(0ms, 5ms)' });
  await host.reset('a', { seed: 0 });
  const answers = await Promise.all(Array.from({ length: 9 }, () => host.step('a', speech('x'))));
  t.strictSame(
    answers.map((r) => r.observation[0]!.content),
    ['1', '2', '3', '4', '5', '6', '7', '8', '9'],
  );
  await host.stop();

  const broken = new EnvironmentHost({ environment: 'broken' });
  await broken.reset('a', { seed: 0 });
  await broken.reset('b', { seed: 0 });
  await t.rejects(broken.step('a', speech('x')), {
    code: 'SINKFLEX_ENVIRONMENT_FAILED',
    message: /step of episode a threw: boom/,
    cause: { name: 'TypeError' },
  });
  await t.rejects(broken.step('a', speech('x')), { code: 'SINKFLEX_ENVIRONMENT_LOST' });
  t.match(broken.stats(), { open: 1, failures: 1 });
});

t.test('the actor plays the same episodes in a process of its own, and its errors keep their code', async (t) => {
  await init();
  t.teardown(() => shutdown());
  const actor = spawn(EnvironmentActor, { args: [{ environment: 'desk', options: { level: 2 } }], maxConcurrency: 64 });
  const told = desk.demonstrate!(5, 1, { noise: 0, options: { level: 2 } });
  const here = make('desk', { level: 2 });
  t.strictSame(await actor.reset('a', { seed: 5 }), await here.reset({ seed: 5 }));
  for (const m of told.messages.filter((m) => m.role === 'assistant')) {
    t.strictSame(await actor.step('a', speech(m.content)), await here.step(speech(m.content)));
  }
  await t.rejects(Promise.resolve(actor.step('b', speech('hello'))), { code: 'SINKFLEX_ENVIRONMENT_LOST', details: { instance: 'b' } });
  await t.rejects(Promise.resolve(actor.step('a', speech('hello'))), { code: 'SINKFLEX_ENVIRONMENT_FAILED', message: /after the end/ });
  await t.rejects(Promise.resolve(actor.reset('c', { seed: 1, options: { levl: 1 } })), { code: 'SINKFLEX_ENVIRONMENT_OPTION' });
});
